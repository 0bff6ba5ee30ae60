package backfill

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aguihub/aguihub/stream"
)

// trimming is a hub that trims runs as soon as it may.
func trimming(t *testing.T, log *stream.Memory) *rig {
	t.Helper()
	return newRigOn(t, log, Config{Store: log, MaxRunEntries: MinRunEntries})
}

// talk is the events of a run in which messages, calls and steps come and go, and which comes to a small conversation.
type talk struct {
	rng  *rand.Rand
	run  string
	n    int
	open []string // what ends the open items
	grow []string // what goes on with them
}

func (k *talk) next() string {
	k.n++
	id := fmt.Sprintf("%s-%d", k.run, k.n)
	switch c := k.rng.IntN(100); {
	case c == 0 && len(k.open) < 6:
		k.open = append(k.open, fmt.Sprintf(`{"type":"TEXT_MESSAGE_END","messageId":%q}`, id))
		k.grow = append(k.grow, fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":%q,"delta":"x"}`, id))
		return fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","messageId":%q,"role":"assistant"}`, id)
	case c == 1 && len(k.open) < 6:
		k.open = append(k.open, fmt.Sprintf(`{"type":"TOOL_CALL_END","toolCallId":%q}`, id))
		k.grow = append(k.grow, fmt.Sprintf(`{"type":"TOOL_CALL_ARGS","toolCallId":%q,"delta":"1"}`, id))
		return fmt.Sprintf(`{"type":"TOOL_CALL_START","toolCallId":%q,"toolCallName":"f"}`, id)
	case c == 2 && len(k.open) > 0:
		i := k.rng.IntN(len(k.open))
		end := k.open[i]
		k.open, k.grow = slices.Delete(k.open, i, i+1), slices.Delete(k.grow, i, i+1)
		return end
	case c < 6 && len(k.open) > 0:
		return k.grow[k.rng.IntN(len(k.grow))]
	case c == 6:
		return fmt.Sprintf(`{"type":"CUSTOM","name":"c","value":%d}`, k.n)
	case c == 7:
		return fmt.Sprintf(`{"type":"STATE_SNAPSHOT","snapshot":{"n":%d}}`, k.n)
	case c == 8:
		return `{"type":"TEXT_MESSAGE_CONTENT","messageId":"nobody","delta":"withheld"}`
	default:
		return fmt.Sprintf(`{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"P","content":{"i":%d}}`, k.n)
	}
}

// say publishes n events of a talk and returns their cursors.
func (r *rig) say(t *testing.T, k *talk, n int) (cursors []string) {
	t.Helper()
	for i := range n {
		cursors = append(cursors, r.publish(t, k.run, k.next()))
		if i%100 == 99 {
			synctest.Wait()
		}
	}
	synctest.Wait()
	return cursors
}

// mark is the cursor of the last entry that was trimmed, "" where none was.
func mark(t *testing.T, log *stream.Memory, run stream.RunID) string {
	t.Helper()
	m, ok, _, err := log.Trimmed(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return ""
	}
	return stream.Cursor{Entry: m.At, Sum: m.Sum}.String()
}

// The rule: an attach at any entry, after a trim at any other, gives what it gave without the trim, on a hub that has
// never seen the run; and a cursor at the last trimmed entry goes on.
func TestATrimmedRunIsTheSameToWhoeverAttaches(t *testing.T) {
	for seed := range uint64(4) {
		bubble(t, fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 9))
			log := memory(t)
			first, whole := trimming(t, log), newRigOn(t, log, Config{Store: log, NoCheckpoints: true})
			var watching []*reader
			for _, r := range []*rig{first, whole} {
				w := r.attach(t, Request{Run: "r1"})
				w.mute = true
				w.all()
				watching = append(watching, w)
			}
			defer func() {
				for _, w := range watching {
					w.leave()
				}
			}()
			first.begin(t, "r1", "t1")
			k := &talk{rng: rng, run: "r1"}
			var cursors []string
			hubs := []*rig{first}
			for range 3 {
				cursors = append(cursors, first.say(t, k, 900+rng.IntN(1500))...)
				at := mark(t, log, "r1")
				cold := trimming(t, log)
				hubs = append(hubs, cold)
				requests := []Request{{Run: "r1"}, {Thread: "t1"}, {Run: "r1", Raw: true}}
				if at != "" {
					later := cursors[slices.Index(cursors, at):]
					for _, after := range []string{at, later[1], later[rng.IntN(len(later))], later[len(later)-1]} {
						for _, how := range []Catchup{CatchupSnapshot, CatchupOnly} {
							requests = append(requests, Request{Run: "r1", After: after, Catchup: how})
						}
						requests = append(requests, Request{Thread: "t1", After: onThread(t, after, "r1")})
					}
				}
				for _, req := range requests {
					if got, want := bodies(t, cold, req), bodies(t, whole, req); got != want || strings.Contains(got, "reset") {
						t.Errorf("after %d, trimmed to %s: %+v: got\n%.2000s\nwant\n%.2000s", len(cursors), at, req, got, want)
					}
				}
			}
			if mark(t, log, "r1") == "" {
				t.Error("nothing was trimmed")
			}
			bounds, err := log.Bounds(t.Context(), "r1")
			if err != nil || bounds[0].Len < minKeep || bounds[0].Len > 2*MinRunEntries {
				t.Errorf("%d entries are left, %v", bounds[0].Len, err)
			}
			trimmed := int64(0)
			for _, r := range hubs {
				f := r.KeepFigures()
				if trimmed += f.Trimmed; f.Failed+f.Damaged+f.Headless > 0 {
					t.Errorf("%+v", f)
				}
			}
			if gone := bounds[0].Added - bounds[0].Len; trimmed != gone {
				t.Errorf("%d entries are gone, the hubs trimmed %d", gone, trimmed)
			}
			if f := whole.AttachFigures().Resets; sum(f) > 0 { // its feed stood far ahead of each trim
				t.Error(f)
			}
		})
	}
}

// trimmedRun is a run that was trimmed once or more, with the cursors of its entries.
func trimmedRun(t *testing.T, log *stream.Memory) (first *rig, k *talk, cursors []string) {
	t.Helper()
	first = trimming(t, log)
	w := first.attach(t, Request{Run: "r1"})
	w.mute = true
	w.all()
	t.Cleanup(func() { w.leave() })
	cursors = append(cursors, first.begin(t, "r1", "t1"))
	k = &talk{rng: rand.New(rand.NewPCG(1, 2)), run: "r1"}
	cursors = append(cursors, first.say(t, k, 3500)...)
	if mark(t, log, "r1") == "" {
		t.Fatal("nothing was trimmed")
	}
	return first, k, cursors
}

func TestWhatWasTrimmedIsSaid(t *testing.T) {
	bubble(t, "a cursor below the last trimmed entry is a reset with where the run begins and ends", func(t *testing.T) {
		log := memory(t)
		first, _, cursors := trimmedRun(t, log)
		at := slices.Index(cursors, mark(t, log, "r1"))
		for name, r := range map[string]*rig{"warm": first, "cold": trimming(t, log)} {
			for _, how := range []Catchup{CatchupSnapshot, CatchupOnly} {
				got := bodies(t, r, Request{Run: "r1", After: cursors[at-1], Catchup: how})
				want := fmt.Sprintf(`{"control":"reset","reason":"trimmed","requested":%q,"earliest":%q,"latest":%q}`, cursors[at-1], cursors[at+1], cursors[len(cursors)-1])
				if !strings.HasPrefix(got, want) || !strings.Contains(got, `"history":"full"`) || !strings.Contains(got, `"mode":"fresh"`) {
					t.Errorf("%s, %s: %.600s\nwant %s", name, how, got, want)
				}
			}
		}
	})
	bubble(t, "its first entries can't be had, and what is left can", func(t *testing.T) {
		log := memory(t)
		_, _, cursors := trimmedRun(t, log)
		at := slices.Index(cursors, mark(t, log, "r1"))
		cold := trimming(t, log)
		w := cold.attach(t, Request{Run: "r1", FromStart: true})
		w.ends(ErrTrimmed)
		list := func(after string) (n int, err error) {
			var c stream.Cursor
			if after != "" {
				if c, err = stream.ParseCursor(after); err != nil {
					t.Fatal(err)
				}
			}
			err = cold.Events(t.Context(), "r1", c, nil, func(it Item) error {
				if it.Cursor.String() != cursors[len(cursors)-1] {
					n++
				}
				return nil
			})
			return n + 1, err
		}
		if _, err := list(""); !errors.Is(err, ErrTrimmed) {
			t.Error(err)
		}
		if _, err := list(cursors[at-1]); !errors.Is(err, ErrGone) {
			t.Error(err)
		}
		for _, i := range []int{at, at + 1, len(cursors) - 9} {
			if n, err := list(cursors[i]); err != nil || n != len(cursors)-1-i {
				t.Errorf("after %d of %d: %d entries, %v", i, len(cursors), n, err)
			}
		}
	})
	bubble(t, "an agent that trims on its own, ahead of the checkpoints, loses what it trims, and that is said", func(t *testing.T) {
		log := memory(t)
		first, k, cursors := trimmedRun(t, log)
		left, _ := stream.ParseCursor(cursors[len(cursors)-5])
		if _, err := log.Trim(t.Context(), "r1", left.Entry); err != nil {
			t.Fatal(err)
		}
		first.say(t, k, 1)
		if n := first.AttachFigures().Resets; sum(n) > 0 { // the newest entry is there, and what came before it was read
			t.Error(n)
		}
		got := bodies(t, trimming(t, log), Request{Run: "r1", After: cursors[len(cursors)-9], Catchup: CatchupOnly})
		if got != "" && !strings.HasPrefix(got, `{"control":"reset","reason":"trimmed"`) {
			t.Error(got)
		}
	})
}

// The rule: of what nobody can tell any more as much is shown as is there, and that it is not all; never something else.
func TestATrimmedRunWithoutAUsableCheckpointIsShownInPart(t *testing.T) {
	spoil := func(c stream.Checkpoint) stream.Checkpoint {
		c.Data = bytes.Clone(c.Data)
		c.Data[len(c.Data)/2] ^= 1
		return c
	}
	bubble(t, "where the newest checkpoint is damaged the one of the trim is used", func(t *testing.T) {
		log := memory(t)
		whole := newRigOn(t, log, Config{})
		w := whole.attach(t, Request{Run: "r1"})
		w.mute = true
		w.all()
		trimmedRun(t, log)
		w.all()
		c, _, _, _ := log.Checkpoint(t.Context(), "r1")
		log.SetCheckpoint("r1", spoil(c))
		cold := trimming(t, log)
		if got, want := bodies(t, cold, Request{Run: "r1"}), bodies(t, whole, Request{Run: "r1"}); got != want {
			t.Errorf("got\n%.3000s\nwant\n%.3000s", got, want)
		}
		if f := cold.KeepFigures(); f.Damaged != 1 || f.Read != 1 || f.Headless != 0 {
			t.Errorf("%+v", f)
		}
	})
	bubble(t, "a hub with other limits takes the checkpoint all the same", func(t *testing.T) {
		log := memory(t)
		trimmedRun(t, log)
		cold := newRigOn(t, log, Config{Store: log, MaxEvent: 1 << 20})
		if got := bodies(t, cold, Request{Run: "r1"}); !strings.Contains(got, `"history":"full"`) {
			t.Errorf("%.500s", got)
		}
	})
	bubble(t, "a hub that keeps no checkpoints takes up the one of the trim", func(t *testing.T) {
		log := memory(t)
		first, _, _ := trimmedRun(t, log)
		cold := newRigOn(t, log, Config{Store: log, NoCheckpoints: true})
		if got, want := bodies(t, cold, Request{Run: "r1"}), bodies(t, first, Request{Run: "r1"}); got != want {
			t.Errorf("got\n%.500s\nwant\n%.500s", got, want)
		}
	})
	bubble(t, "where both are damaged the history is partial, in its thread, too", func(t *testing.T) {
		log := memory(t)
		first, k, cursors := trimmedRun(t, log)
		c, _, _, _ := log.Checkpoint(t.Context(), "r1")
		log.SetCheckpoint("r1", spoil(c))
		trim, _, _, _ := log.Trimmed(t.Context(), "r1")
		log.SetTrimmed("r1", spoil(trim.Checkpoint))
		cold := trimming(t, log)
		for _, req := range []Request{{Run: "r1"}, {Thread: "t1"}} {
			got := bodies(t, cold, req)
			for _, want := range []string{`"history":"partial"`, `"type":"RUN_STARTED","threadId":"t1","runId":"r1"`, `"type":"MESSAGES_SNAPSHOT"`, `"activityType":"P"`} {
				if !strings.Contains(got, want) {
					t.Errorf("%+v lacks %s: %.700s", req, want, got)
				}
			}
		}
		if f := cold.KeepFigures(); f.Headless != 1 || f.Damaged < 2 {
			t.Errorf("%+v", f)
		}
		if got := bodies(t, cold, Request{Run: "r1", After: cursors[len(cursors)-200], Catchup: CatchupOnly}); strings.Contains(got, `"full"`) {
			t.Errorf("%.500s", got)
		}
		first.say(t, k, 3000)
		first.publish(t, "r1", finished("r1", "t1"))
		synctest.Wait()
		if got := bodies(t, cold, Request{Run: "r1"}); !strings.Contains(got, "RUN_FINISHED") || !strings.Contains(got, `"partial"`) {
			t.Errorf("%.700s", got)
		}
		if got := bodies(t, trimming(t, log), Request{Run: "r1"}); !strings.Contains(got, "RUN_FINISHED") || !strings.Contains(got, `"full"`) {
			t.Errorf("another hub has written down all of it since: %.700s", got)
		}
	})
}

func TestARunGoesOnFromATrimmedOne(t *testing.T) {
	const last = `{"type":"TEXT_MESSAGE_CHUNK","messageId":"z","role":"assistant","delta":"the last word"}`
	for name, forget := range map[string]func(*stream.Memory){
		"as it was written down":                      func(*stream.Memory) {},
		"as folded from the checkpoint, at need":      func(log *stream.Memory) { log.SetLeft("t1", stream.Left{}) },
		"as it was written down, its stream is gone":  func(log *stream.Memory) { log.Delete("r1") },
		"as written down, its checkpoints are broken": func(log *stream.Memory) { log.SetCheckpoint("r1", stream.Checkpoint{}) },
	} {
		bubble(t, name, func(t *testing.T) {
			log := memory(t)
			first, _, _ := trimmedRun(t, log)
			first.publish(t, "r1", last, finished("r1", "t1"))
			synctest.Wait()
			time.Sleep(time.Second)
			want := bodies(t, first, Request{Run: "r1"})
			forget(log)
			cold := trimming(t, log)
			cold.begin(t, "r2", "t1")
			cold.publish(t, "r2", opening("r2"))
			got := bodies(t, cold, Request{Thread: "t1"})
			for _, part := range []string{`"history":"full"`, "the last word", `"u-r1"`, `"u-r2"`} {
				if !strings.Contains(got, part) {
					t.Errorf("no %s in %.900s", part, got)
				}
			}
			if n := strings.Count(want, `"role":"assistant"`); strings.Count(got, `"role":"assistant"`) < n {
				t.Errorf("less than %d messages: %.900s", n, got)
			}
			if strings.Contains(name, "gone") {
				return
			}
			page, _, err := cold.Thread(t.Context(), "t1", ThreadPlace{}, 10)
			if err != nil || len(page) != 2 || page[1].Thread != "t1" || page[1].Run != "r1" || page[1].Entries != 3503 || page[1].Started >= page[1].Newest+1 {
				t.Errorf("%+v %v", page, err)
			}
		})
	}
	bubble(t, "what was settled after the end is what the next run starts from", func(t *testing.T) {
		log := memory(t)
		first := kept(t, log)
		w := first.attach(t, Request{Run: "r1"})
		w.mute = true
		first.begin(t, "r1", "t1")
		first.publish(t, "r1", opening("r1"), delta("r1", "before"), closing("r1"), finished("r1", "t1"))
		w.all()
		synctest.Wait()
		first.publish(t, "r1", `{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"s","role":"user","content":"settled"}]}`)
		synctest.Wait()
		log.Delete("r1")
		cold := kept(t, log)
		cold.begin(t, "r2", "t1")
		if got := bodies(t, cold, Request{Run: "r2"}); !strings.Contains(got, "settled") {
			t.Error(got)
		}
	})
	bubble(t, "a run isn't folded whose end was written down", func(t *testing.T) {
		log := memory(t)
		first := kept(t, log)
		w := first.attach(t, Request{Run: "r1"})
		w.mute = true
		first.begin(t, "r1", "t1")
		first.publish(t, "r1", append(append([]string{opening("r1")}, deltas("r1", 500)...), closing("r1"), finished("r1", "t1"))...)
		w.all()
		cold := kept(t, log)
		read := 0
		cold.log.hook(func(_ int, p stream.Page) { read += len(p.Entries) })
		cold.begin(t, "r2", "t1")
		if got := bodies(t, cold, Request{Run: "r2"}); !strings.Contains(got, "499;") || read > 100 {
			t.Errorf("%d entries were read: %.300s", read, got)
		}
	})
}

func TestWhatComesLateForADeletedRunIsRemoved(t *testing.T) {
	bubble(t, "what was on its way is removed, a new run of that name stays", func(t *testing.T) {
		log := memory(t)
		r := kept(t, log)
		r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"))
		w := r.attach(t, Request{Run: "r1"})
		w.mute = true
		w.all()
		if err := r.Delete(t.Context(), "r1"); err != nil {
			t.Fatal(err)
		}
		w.ends(ErrDeleted)
		r.publish(t, "r1", delta("r1", "late"))
		late := r.attach(t, Request{Run: "r1"})
		late.mute = true
		late.all()
		if bounds, err := log.Bounds(t.Context(), "r1"); err != nil || bounds[0].Exists {
			t.Error("it is there", err)
		}
		r.publish(t, "r1", started("r1", "t1"), opening("r1"), delta("r1", "anew"))
		time.Sleep(time.Second)
		late.all()
		if got := bodies(t, r, Request{Run: "r1"}); !strings.Contains(got, "anew") || strings.Contains(got, "late") {
			t.Error(got)
		}
	})
}

func sum(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
