package agui_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/oracle"
)

// The rule: the official client that watched to entry j, then got the catch-up from j to k and then the tail, ends equal
// to one that watched everything, in the same pipeline.
func TestCatchUpBetweenAnyTwoEntriesEndsEqualToWatching(t *testing.T) {
	o := oracle.Start(t)
	corpus := oracle.Corpus(t)
	generated := uint64(40)
	if *sweep {
		generated = 200
	}
	// 0.0.57 keeps its own activity messages whatever a snapshot says, so that only events bring it on.
	for _, version := range []string{oracle.V1, oracle.V059} {
		t.Run(version, func(t *testing.T) {
			r := resume{measure{oracle: o, version: version, rng: rand.New(rand.NewPCG(*firstSeed, 3))}}
			streams := slices.Clone(corpus)
			if version != oracle.V1 {
				generated = 0 // odd ids, which 0.0.59 reads in its own way
			}
			for seed := range generated {
				s := oracle.GenerateWith(*firstSeed+seed, oracle.Options{Version: version, Runs: 1})
				s.Name = fmt.Sprintf("generated-%d", *firstSeed+seed)
				streams = append(streams, s)
			}
			for _, s := range streams {
				for _, withInput := range []bool{false, true} {
					r.stream(t, s, withInput)
				}
			}
			r.flush(t)
			t.Logf("%d streams, %d catch-ups compared; %d that this client can't watch; "+
				"read otherwise by this client than by 1.0.0: %v; owner conflicts: %v",
				r.streams, r.attaches, r.unwatchable, r.otherwise, r.conflicts)
			if r.attaches == 0 {
				t.Fatal("nothing was compared")
			}
		})
	}
}

type resume struct{ measure }

// pairsPerStream is how many pairs of a stream are tried where not all are.
const pairsPerStream = 8

func (r *resume) stream(t *testing.T, s oracle.Stream, withInput bool) {
	t.Helper()
	var input []byte
	initial := s.Initial
	if withInput {
		if input = userInput(s); input == nil {
			return
		}
		initial = &oracle.Initial{Messages: memberOf(input, "messages"), State: memberOf(input, "state")}
	}
	p := publish(s, input)
	if len(p.runs) != 1 || len(p.runs[0]) < 2 {
		return // several runs are the session's business
	}
	all := slices.Concat(p.sent[0]...)
	if len(all) == 0 {
		return
	}
	watched := r.oracle.Replay(t, oracle.Job{Version: r.version, Lines: all, Initial: initial})
	if !watched.OK {
		r.unwatchable++
		return
	}
	if !r.reads(t, s, all, initial, watched.Snapshot) {
		return
	}
	r.streams++
	n := len(p.runs[0])
	if total := n * (n - 1) / 2; total <= pairsPerStream || (*sweep && total <= 200) {
		for j := 1; j < n; j++ {
			for k := j + 1; k <= n; k++ {
				r.pair(t, s, p, initial, watched.Snapshot, j, k)
			}
		}
		return
	}
	tries := pairsPerStream
	if *sweep {
		tries = 60
	}
	for range tries {
		j := 1 + r.rng.IntN(n-1)
		r.pair(t, s, p, initial, watched.Snapshot, j, j+1+r.rng.IntN(n-j))
	}
}

// pair queues the catch-up from j to k, entries counted from 1.
func (r *resume) pair(t *testing.T, s oracle.Stream, p published, initial *oracle.Initial, want oracle.Snapshot, j, k int) {
	t.Helper()
	run := agui.NewRun(nil, agui.RunConfig{})
	for i, en := range p.runs[0][:k] {
		en.At = agui.Position{Hi: uint64(i + 1)}
		run.Apply(en)
		if i+1 == j && !run.Started() {
			return
		}
		if i+1 == j && run.Ended() {
			return
		}
	}
	c, ok := run.View().CatchUp(agui.Position{Hi: uint64(j)})
	if !ok {
		t.Errorf("%s j=%d k=%d: no catch-up", s.Name, j, k)
		return
	}
	tail := slices.Concat(p.sent[0][k:]...)
	lines := slices.Concat(p.sent[0][:j]...)
	for _, part := range [][][]byte{c.Closings, c.Past, c.Passing, c.Lanes, c.Terminal} {
		lines = append(lines, part...)
	}
	lines = append(lines, tail...)
	r.jobs = append(r.jobs, oracle.Job{Version: r.version, Lines: lines, Initial: initial})
	r.cases = append(r.cases, attachCase{
		name: fmt.Sprintf("%s j=%d", s.Name, j), k: k, want: want, legacy: s.Legacy,
		conflict: agui.OwnerConflict(run, tail), watched: oracle.Job{Version: r.version, Lines: p.until(0, k-1), Initial: initial},
	})
	if len(r.jobs) >= 200 {
		r.flush(t)
	}
}

// The rule: a client's own order of messages survives a catch-up that has nothing to correct: one snapshot is enough.
func TestCatchUpSendsOneSnapshotWhereNothingMoved(t *testing.T) {
	run := agui.NewRun(nil, agui.RunConfig{})
	for i, line := range []string{
		`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`,
		`{"type":"TEXT_MESSAGE_START","messageId":"a"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"x"}`,
		`{"type":"TEXT_MESSAGE_END","messageId":"a"}`, `{"type":"TEXT_MESSAGE_START","messageId":"b"}`,
	} {
		run.Apply(agui.Entry{At: agui.Position{Hi: uint64(i + 1)}, Event: []byte(line)})
	}
	c, ok := run.View().CatchUp(agui.Position{Hi: 2})
	if !ok {
		t.Fatal("no catch-up")
	}
	got := string(bytes.Join(slices.Concat(c.Closings, c.Past), []byte("\n")))
	want := `{"type":"TEXT_MESSAGE_END","messageId":"a"}
{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"assistant","content":"x"},{"id":"b","role":"assistant","content":""}]}
{"type":"TEXT_MESSAGE_START","messageId":"b"}`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
