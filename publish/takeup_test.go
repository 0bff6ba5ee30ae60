package publish_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/stream"
)

// trimmedRun is a run with an open message and an open call that was trimmed behind their openings.
func trimmedRun(t *testing.T, w *world) stream.RunID {
	t.Helper()
	run, fold := stream.RunID("r1"), agui.NewRun(nil, agui.RunConfig{})
	events := []string{
		`{"type":"RUN_STARTED","threadId":"t1","runId":"r1"}`, `{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`,
		`{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"f"}`,
	}
	for i := range 9 {
		events = append(events, fmt.Sprintf(`{"type":"CUSTOM","name":"n","value":%d}`, i))
	}
	for i, e := range events {
		ids, err := w.Append(t.Context(), run, stream.Record{Event: []byte(e)})
		if err != nil {
			t.Fatal(err)
		}
		fold.Apply(agui.Entry{At: agui.Position{Hi: ids[0].Ms, Lo: ids[0].Seq}, Event: []byte(e)})
		if i != 4 && i != 7 {
			continue
		}
		data, err := fold.Checkpoint().Pack(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		c := stream.Checkpoint{At: ids[0], Sum: stream.Checksum([]byte(e)), Entries: i + 1, Data: data}
		_, to, err := w.PutCheckpoint(t.Context(), run, c, true, 3)
		if err != nil {
			t.Fatal(err)
		}
		if to.IsZero() {
			continue
		}
		if n, err := w.TrimTo(t.Context(), run, to); n != 5 || err != nil {
			t.Fatal(n, err)
		}
	}
	return run
}

func TestARunThatWasTrimmedIsTakenUp(t *testing.T) {
	damaged := func(c stream.Checkpoint) stream.Checkpoint {
		c.Data = c.Data[:len(c.Data)/2]
		return c
	}
	spoilNewest := func(t *testing.T, w *world) {
		t.Helper()
		c, _, _, err := w.Checkpoint(t.Context(), "r1")
		if err != nil {
			t.Fatal(err)
		}
		w.SetCheckpoint("r1", damaged(c))
	}
	for name, spoil := range map[string]func(*testing.T, *world){
		"from its newest checkpoint":                      func(*testing.T, *world) {},
		"from that of the trim, if the newest is damaged": spoilNewest,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := trimmedRun(t, w)
			spoil(t, w)
			run := open(t, w, publish.RunConfig{Run: id, Continue: true})
			if run.Thread() != "t1" || !run.Existed() || !run.Started() || run.Ended() {
				t.Error(run.Thread(), run.Existed(), run.Started(), run.Ended())
			}
			err := run.Append(t.Context(), []byte(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x"}`), []byte(`{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"1"}`))
			if err != nil {
				t.Error(err)
			}
			var invalid *publish.InvalidError
			if err := run.Append(t.Context(), []byte(`{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`)); !errors.As(err, &invalid) {
				t.Error("an opening comes twice:", err)
			}
			if err := run.Finish(t.Context(), publish.End{}); err != nil {
				t.Fatal(err)
			}
			var end strings.Builder
			for _, en := range entries(t, w, id)[7:] {
				end.Write(en.Event)
			}
			for _, want := range []string{`"TEXT_MESSAGE_CONTENT"`, `"TOOL_CALL_ARGS"`, `"TEXT_MESSAGE_END"`, `"TOOL_CALL_END"`, `"RUN_FINISHED"`} {
				if strings.Count(end.String(), want) != 1 {
					t.Errorf("%s isn't there once: %s", want, end.String())
				}
			}
		})
	}
	t.Run("by a hub that ends it for its producer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			ok(t, w.Announce(t.Context(), stream.RunInfo{Run: "r1", Thread: "t1", State: stream.RunStarted}))
			_, err := w.Claim(t.Context(), "r1", stream.Claim{Producer: "p", TTL: publish.DefaultLeaseTTL})
			ok(t, err)
			id := trimmedRun(t, w)
			stop := reap(t, w, w, 1, publish.ReaperConfig{})
			time.Sleep(2 * publish.DefaultLeaseTTL)
			synctest.Wait()
			stop()
			if got := types(t, w, id); !strings.HasSuffix(got, "CUSTOM TOOL_CALL_END TEXT_MESSAGE_END RUN_ERROR") && !strings.HasSuffix(got, "CUSTOM TEXT_MESSAGE_END TOOL_CALL_END RUN_ERROR") {
				t.Error(got)
			}
		})
	})
	t.Run("not where no checkpoint can be read", func(t *testing.T) {
		w := newWorld(t)
		id := trimmedRun(t, w)
		spoilNewest(t, w)
		c, _, _, err := w.Trimmed(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		w.SetTrimmed(id, damaged(c.Checkpoint))
		if _, err := publisher(t, w, publish.Config{}).Open(t.Context(), publish.RunConfig{Run: id, Continue: true}); !errors.Is(err, publish.ErrTrimmed) {
			t.Error(err)
		}
		if n := len(entries(t, w, id)); n != 7 {
			t.Errorf("there are %d entries", n)
		}
	})
	t.Run("again by the publisher that knows what it was before", func(t *testing.T) {
		w := newWorld(t)
		id := trimmedRun(t, w)
		p := publisher(t, w, publish.Config{})
		for range 2 {
			run, err := p.Open(t.Context(), publish.RunConfig{Run: id, Continue: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := run.Append(t.Context(), []byte(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x"}`)); err != nil {
				t.Error(err)
			}
			if err := run.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
