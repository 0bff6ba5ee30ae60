package agui_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/aguihub/aguihub/agui"
)

// talkative is a run with a message of size bytes that is a system's, and one that is nobody's secret.
func talkative(size int) *agui.Run {
	run := agui.NewRun(nil, agui.RunConfig{})
	for _, l := range []string{
		`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`,
		`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"s","role":"system","content":"hidden"},{"id":"u","role":"user","content":"` +
			strings.Repeat("x", size) + `"}]}`,
	} {
		run.Apply(agui.Entry{Event: []byte(l)})
	}
	return run
}

func snapshotOf(v *agui.View) []byte { return v.Preamble().Past[0] }

func TestRestated(t *testing.T) {
	t.Run("is nothing for what isn't large", func(t *testing.T) {
		v := talkative(100).View()
		if v.Restated(snapshotOf(v)) != nil {
			t.Error("something")
		}
	})
	run := talkative(agui.LargeEvent)
	before := run.Size()
	v := run.View()
	event := snapshotOf(v)
	r := v.Restated(event)
	t.Run("is one for equal bytes, and its event is the first of them", func(t *testing.T) {
		again := v.Restated(bytes.Clone(event))
		if again != r || &again.Event[0] != &event[0] {
			t.Error("another")
		}
	})
	t.Run("is another for those who don't see all (I10)", func(t *testing.T) {
		w := v.Veiled()
		veiled := w.Restated(snapshotOf(w))
		if veiled == r || bytes.Contains(veiled.Event, []byte("hidden")) || !bytes.Contains(r.Event, []byte("hidden")) {
			t.Errorf("%.100s", veiled.Event)
		}
	})
	t.Run("is put into a form once, however many ask at once, unless that is put off", func(t *testing.T) {
		made := 0
		form := func(done bool) {
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					r.Form(1, func(event []byte) ([]byte, bool) {
						made++ // one at a time, or else the race detector tells
						return event[:3], done
					})
				})
			}
			all.Wait()
		}
		form(false)
		form(true)
		if made != 51 {
			t.Errorf("%d times", made)
		}
		if b := r.Form(0, func([]byte) ([]byte, bool) { return nil, true }); b != nil {
			t.Errorf("another form is %q", b)
		}
	})
	t.Run("counts as held until the run moves on (I5)", func(t *testing.T) {
		if held, least := run.Size()-before, 2*agui.LargeEvent+3; held < least || held > least+10_000 {
			t.Errorf("%d bytes", held)
		}
		for i := range 100 { // of which not all are kept
			v.Restated(bytes.Repeat([]byte{byte(i)}, agui.LargeEvent+1))
		}
		if held := run.Size() - before; held > 20*agui.LargeEvent {
			t.Errorf("%d bytes of what nobody else asks for", held)
		}
		run.Apply(agui.Entry{Event: []byte(`{"type":"CUSTOM","name":"n","value":1}`)})
		if held := run.Size() - before; held > 1000 {
			t.Errorf("%d bytes behind the next entry", held)
		}
	})
}
