package backfill

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aguihub/aguihub/stream"
)

// noticed is how long a quiet run's loss may stay unnoticed: docs/contract.md, section 2.
const noticed = 5 * time.Second

// drain returns what the session gives within so long, in words, the control lines and the bodies of the events.
func drain(t *testing.T, ses *Session, within time.Duration) (words string, controls map[string]string, bodies string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	controls = map[string]string{}
	var all []string
	var b strings.Builder
	for {
		items, err := ses.Next(ctx)
		if err != nil {
			if ctx.Err() != nil {
				err = nil
			}
			return strings.Join(all, " "), controls, b.String(), err
		}
		for _, it := range items {
			switch {
			case it.Control != "":
				all = append(all, it.Control)
				controls[it.Control] = string(it.Line)
			case it.Delivery != nil:
				for _, e := range it.Delivery.Events {
					all = append(all, "+"+short(e))
					b.Write(e)
				}
			default:
				all = append(all, short(it.Event))
				b.Write(it.Event)
			}
		}
	}
}

func TestLoss(t *testing.T) {
	each := func(name string, test func(t *testing.T, r *rig, ses *Session, place func(cursor string) string)) {
		for _, thread := range []bool{false, true} {
			kind, request, place := " (run)", Request{Run: "r1"}, func(cursor string) string { return cursor }
			if thread {
				kind, request = " (thread)", Request{Thread: "t1"}
				place = func(cursor string) string { return onThread(t, cursor, "r1") }
			}
			bubble(t, name+kind, func(t *testing.T) {
				r := newRig(t, Config{})
				r.begin(t, "r1", "t1")
				r.publish(t, "r1", opening("r1"), delta("r1", "a"))
				ses, err := r.Attach(t.Context(), request)
				if err != nil {
					t.Fatal(err)
				}
				defer ses.Close()
				if words, _, _, err := drain(t, ses, time.Second); err != nil || !strings.HasSuffix(words, "live") {
					t.Fatal(words, err)
				}
				test(t, r, ses, place)
			})
		}
	}
	each("a failover that loses the tail is a reset, and what is left is restated", func(t *testing.T, r *rig, ses *Session, place func(string) string) {
		kept := r.publish(t, "r1", delta("r1", "kept"))
		lost := r.publish(t, "r1", delta("r1", "lost"))
		if words, _, _, err := drain(t, ses, time.Second); words != "+text +text" || err != nil {
			t.Fatal(words, err)
		}
		at, err := stream.ParseCursor(kept)
		if err != nil {
			t.Fatal(err)
		}
		r.log.Lose("r1", at.Entry)
		words, controls, bodies, err := drain(t, ses, noticed)
		if err != nil || !strings.HasPrefix(words, "reset attached catchup ") || !strings.HasSuffix(words, " live") {
			t.Fatal(words, err)
		}
		if !strings.Contains(bodies, `"akept"`) || strings.Contains(bodies, "lost") {
			t.Error(bodies)
		}
		var reset struct{ Reason, Requested, Earliest, Latest string }
		if err := json.Unmarshal([]byte(controls["reset"]), &reset); err != nil {
			t.Fatal(err)
		}
		if reset.Reason != "ahead" || reset.Requested != place(lost) || reset.Latest != place(kept) || reset.Earliest == "" {
			t.Errorf("%+v", reset)
		}
		if !strings.Contains(controls["catchup"], `"fresh"`) {
			t.Error(controls["catchup"])
		}
		r.publish(t, "r1", delta("r1", "later"))
		if words, _, _, err := drain(t, ses, time.Second); words != "+text" || err != nil {
			t.Error(words, err)
		}
	})
	each("what follows a loss comes behind the reset", func(t *testing.T, r *rig, ses *Session, _ func(string) string) {
		kept := r.publish(t, "r1", delta("r1", "kept"))
		r.publish(t, "r1", delta("r1", "lost"))
		if words, _, _, err := drain(t, ses, time.Second); words != "+text +text" || err != nil {
			t.Fatal(words, err)
		}
		at, err := stream.ParseCursor(kept)
		if err != nil {
			t.Fatal(err)
		}
		r.log.Lose("r1", at.Entry)
		r.publish(t, "r1", delta("r1", "later")) // with a later id than what was lost
		words, controls, bodies, err := drain(t, ses, time.Second)
		if err != nil || !strings.HasPrefix(words, "reset attached catchup ") || !strings.Contains(bodies, `"akeptlater"`) {
			t.Error(words, controls, bodies, err)
		}
		if !strings.Contains(controls["reset"], `"lost"`) {
			t.Error(controls["reset"])
		}
	})
	each("a run whose key is recreated is followed anew", func(t *testing.T, r *rig, ses *Session, _ func(string) string) {
		r.log.Delete("r1")
		if words, controls, _, err := drain(t, ses, noticed); !strings.HasPrefix(words, "reset") || !strings.Contains(controls["reset"], `"lost"`) || err != nil {
			t.Fatal(words, controls, err)
		}
		r.begin(t, "r1", "t1")
		r.publish(t, "r1", opening("r1"), delta("r1", "new"))
		words, _, bodies, err := drain(t, ses, 2*time.Second)
		if err != nil || !strings.Contains(words+bodies, "new") {
			t.Error(words, bodies, err)
		}
	})
	each("a run whose key is gone for good is unknown, and its thread goes on", func(t *testing.T, r *rig, ses *Session, _ func(string) string) {
		r.log.Delete("r1")
		words, _, _, err := drain(t, ses, time.Minute)
		if ses.thread == nil {
			if words != "reset" || !errors.Is(err, ErrUnknownRun) {
				t.Error(words, err)
			}
			return
		}
		if words != "reset attached" || err != nil {
			t.Fatal(words, err)
		}
		r.begin(t, "r2", "t1")
		if words, _, _, err := drain(t, ses, time.Second); !strings.Contains(words, "catchup START") || err != nil {
			t.Error(words, err)
		}
	})
	each("while the server is away nothing is said, and what it lost is said when it is back", func(t *testing.T, r *rig, ses *Session, _ func(string) string) {
		r.log.SetFault(stream.ErrUnavailable)
		if words, _, _, err := drain(t, ses, time.Minute); words != "" || err != nil {
			t.Fatal(words, err)
		}
		r.log.SetFault(nil)
		if words, _, _, err := drain(t, ses, noticed); words != "" || err != nil {
			t.Fatal(words, err)
		}
		r.log.SetFault(stream.ErrUnavailable)
		r.log.Delete("r1")
		if words, _, _, err := drain(t, ses, time.Minute); words != "" || err != nil {
			t.Fatal(words, err)
		}
		r.log.SetFault(nil)
		if words, _, _, err := drain(t, ses, noticed); !strings.HasPrefix(words, "reset") || err != nil {
			t.Error(words, err)
		}
	})
}
