package agui_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/oracle"
)

const packLimit = 64 << 20

// The rule: a run restored from its checkpoint at any entry goes on as the one that was never packed: the same verdicts,
// preambles and catch-ups at every later entry.
func TestARestoredRunGoesOnAsTheOneThatWasPacked(t *testing.T) {
	rng := rand.New(rand.NewPCG(*firstSeed, 5))
	streams := slices.DeleteFunc(slices.Clone(oracle.Corpus(t)), func(oracle.Stream) bool { return !*sweep && rng.IntN(4) > 0 })
	generated := uint64(25)
	if *sweep {
		generated = 300
	}
	for seed := range generated {
		s := oracle.GenerateWith(*firstSeed+seed, oracle.Options{})
		s.Name = fmt.Sprintf("generated-%d", *firstSeed+seed)
		streams = append(streams, s)
	}
	restored := 0
	for _, s := range streams {
		for _, withInput := range []bool{false, true} {
			var input []byte
			if withInput {
				if input = userInput(s); input == nil {
					continue
				}
			}
			var base *agui.Conversation
			for i, entries := range publish(s, input).runs {
				for j := range entries {
					entries[j].At = agui.Position{Hi: uint64(j + 1), Lo: uint64(i)}
				}
				restored += restoreSome(t, rng, fmt.Sprintf("%s run %d", s.Name, i), base, entries)
				run := agui.NewRun(base, agui.RunConfig{})
				for _, en := range entries {
					run.Apply(en)
				}
				base = packConversation(t, run.Conversation())
			}
			// A run that a worker began anew.
			var all []agui.Entry
			for i, line := range s.Lines {
				all = append(all, agui.Entry{At: agui.Position{Hi: uint64(i + 1)}, Event: line})
			}
			if len(all) > 0 {
				all[0].Input = input
				restored += restoreSome(t, rng, s.Name+" as one run", base, all)
			}
		}
	}
	t.Logf("%d streams, %d runs restored", len(streams), restored)
}

// restoreSome restores a run at a few entries of it.
func restoreSome(t *testing.T, rng *rand.Rand, name string, base *agui.Conversation, entries []agui.Entry) int {
	t.Helper()
	n := 0
	for range min(3, len(entries)) {
		k := 1 + rng.IntN(len(entries))
		whole := agui.NewRun(base, agui.RunConfig{})
		for _, en := range entries[:k] {
			whole.Apply(en)
		}
		run := repack(t, whole)
		if n++; len(entries) > 40 && rng.IntN(4) > 0 { // or each would be compared hundreds of times
			run = repack(t, run)
		}
		if !sameRun(t, fmt.Sprintf("%s at %d", name, k), whole, run, entries[max(k/2-1, 0)].At) {
			return n
		}
		for i, en := range entries[k:] {
			want, got := whole.Apply(en), run.Apply(en)
			if diff := differs(want, got); diff != "" {
				t.Errorf("%s restored at %d, entry %d %.200s: verdict\n%s", name, k, k+i+1, en.Event, diff)
				return n
			}
			if i == 0 || rng.IntN(1+len(entries)/8) == 0 || k+i+1 == len(entries) {
				if !sameRun(t, fmt.Sprintf("%s restored at %d, entry %d", name, k, k+i+1), whole, run, entries[k/2].At) {
					return n
				}
			}
		}
	}
	return n
}

func differs(want, got agui.Verdict) string {
	if bytes.Equal(want.Event, got.Event) && bytes.Equal(want.Instead, got.Instead) && slices.EqualFunc(want.Closings, got.Closings, bytes.Equal) &&
		want.Reason == got.Reason && want.Detail == got.Detail && want.Send == got.Send && want.End == got.End &&
		want.Restart == got.Restart && want.Late == got.Late && want.Fold == got.Fold {
		return ""
	}
	return cmp.Diff(want, got)
}

func repack(t *testing.T, run *agui.Run) *agui.Run {
	t.Helper()
	data, err := run.Checkpoint().Pack(packLimit)
	if err != nil {
		t.Fatal(err)
	}
	got, err := agui.RestoreRun(data, agui.RunConfig{}, packLimit)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func packConversation(t *testing.T, c *agui.Conversation) *agui.Conversation {
	t.Helper()
	data, err := c.Pack(packLimit)
	if err != nil {
		t.Fatal(err)
	}
	got, err := agui.UnpackConversation(data, packLimit)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("conversation: %s", diff)
	}
	return got
}

// sameRun compares all that is shown of two runs.
func sameRun(t *testing.T, name string, want, got *agui.Run, j agui.Position) bool {
	t.Helper()
	if a, b := shown(want, j), shown(got, j); !bytes.Equal(a, b) {
		t.Errorf("%s: differs: %s", name, cmp.Diff(string(a), string(b)))
		return false
	}
	return true
}

// shown is all that is shown of a run, of which j is an entry.
func shown(r *agui.Run, j agui.Position) []byte {
	v := r.View()
	var out []byte
	list := func(name string, lines ...[]byte) {
		out = fmt.Appendf(out, "%s %d\n", name, len(lines))
		for _, line := range lines {
			out = append(append(out, line...), '\n')
		}
	}
	preamble := func(name string, p *agui.Preamble) {
		for _, part := range [][][]byte{p.Pending, p.Closings, p.Start, p.Past, p.Passing, p.PassingRaw, p.Lanes, p.Terminal} {
			list(name, part...)
		}
		out = fmt.Appendln(out, p.Omitted, p.OmittedRaw)
	}
	out = fmt.Appendln(out, v.Started, v.Ended, v.Full, v.StateKnown, r.InputKnown(), r.InputInEvent(), v.Size(), r.Entries(), r.At(), v.Holder(j))
	preamble("preamble", v.Preamble())
	if p, ok := v.CatchUp(j); ok {
		preamble("catch-up", p)
	}
	c := r.Conversation()
	list("messages", c.Messages...)
	start, finish := v.LastFinish()
	startBefore, finishBefore := v.LastFinishBefore()
	list("others", c.State, c.Pending, c.PendingEnd, c.LastStart, c.LastFinish, start, finish, startBefore, finishBefore)
	return fmt.Appendln(out, c.Full, c.StateKnown)
}

// The rule: a checkpoint is read as untrusted: whatever is wrong with it is an error, and never a panic.
func TestADamagedCheckpointIsAnError(t *testing.T) {
	s := oracle.GenerateWith(*firstSeed, oracle.Options{})
	run := agui.NewRun(nil, agui.RunConfig{})
	for i, line := range s.Lines[:len(s.Lines)/2] {
		run.Apply(agui.Entry{At: agui.Position{Hi: uint64(i + 1)}, Event: line})
	}
	data, err := run.Checkpoint().Pack(packLimit)
	if err != nil {
		t.Fatal(err)
	}
	read := func(data []byte, limit int) error {
		_, err := agui.RestoreRun(data, agui.RunConfig{}, limit)
		return err
	}
	for name, bad := range map[string][]byte{
		"nothing": nil, "another version": bytes.Replace(data, []byte("agui-run 2"), []byte("agui-run 1"), 1),
		"cut": data[:len(data)-9], "a conversation": mustPack(t, run.Conversation()),
	} {
		if err := read(bad, packLimit); !errors.Is(err, agui.ErrCheckpoint) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range 300 {
		bad := bytes.Clone(data)
		bad[rand.IntN(len(bad))] ^= byte(1 + rand.IntN(255))
		if err := read(bad, packLimit); err != nil && !errors.Is(err, agui.ErrCheckpoint) {
			t.Errorf("%v", err)
		}
	}
	if err := read(data, 100); !errors.Is(err, agui.ErrCheckpoint) {
		t.Errorf("over the limit: %v", err)
	}
	if _, err := run.Checkpoint().Pack(100); !errors.Is(err, agui.ErrCheckpointTooLarge) {
		t.Errorf("too large to pack: %v", err)
	}
}

func mustPack(t *testing.T, c *agui.Conversation) []byte {
	t.Helper()
	data, err := c.Pack(packLimit)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// FuzzRestoreRun reads packed bytes that somebody else may have written.
func FuzzRestoreRun(f *testing.F) {
	run := agui.NewRun(nil, agui.RunConfig{})
	for i, line := range oracle.GenerateWith(3, oracle.Options{}).Lines {
		run.Apply(agui.Entry{At: agui.Position{Hi: uint64(i + 1)}, Event: line})
		if i%40 == 10 {
			f.Add(agui.Unpacked(run.Checkpoint()))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := agui.RestoreRun(agui.Repacked(raw), agui.RunConfig{}, 1<<20)
		if err != nil {
			return
		}
		_ = r.View().Preamble()
		_, _ = r.View().CatchUp(agui.Position{Hi: 1})
		for _, line := range []string{
			`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"x"}`, `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/a","value":1}]}`,
			`{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`,
		} {
			r.Apply(agui.Entry{At: agui.Position{Hi: 1 << 50}, Event: []byte(line)})
		}
		_ = r.View().Preamble()
	})
}
