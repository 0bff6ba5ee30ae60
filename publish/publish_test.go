package publish_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/stream"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(producerEnv); url != "" {
		os.Exit(produce(url))
	}
	goleak.VerifyTestMain(m)
}

const input = `{"threadId":"t1","runId":"r1","messages":[{"id":"u1","role":"user","content":"Hello"}]}`

// world is a log in memory whose appends and announcements can be made to fail.
type world struct {
	*stream.Memory
	*stream.Registry

	mu       sync.Mutex
	appends  [][]stream.Record
	onAppend func(recs []stream.Record) (keep bool, err error) // nil: they are kept
	announce error
}

func (w *world) AppendFenced(ctx context.Context, run stream.RunID, a stream.FencedAppend, recs ...stream.Record) (stream.Appended, error) {
	w.mu.Lock()
	w.appends = append(w.appends, recs)
	hook := w.onAppend
	w.mu.Unlock()
	if hook == nil {
		return w.Memory.AppendFenced(ctx, run, a, recs...)
	}
	keep, err := hook(recs)
	if !keep {
		return stream.Appended{}, &stream.AppendError{Err: err}
	}
	got, failed := w.Memory.AppendFenced(ctx, run, a, recs...)
	if err != nil {
		return stream.Appended{}, &stream.AppendError{Err: err}
	}
	return got, failed
}

func (w *world) Announce(ctx context.Context, info stream.RunInfo) error {
	w.mu.Lock()
	err := w.announce
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.Registry.Announce(ctx, info)
}

// fails has appends be kept or fail as a hook says from now on; nil has them kept.
func (w *world) fails(hook func(recs []stream.Record) (keep bool, err error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onAppend = hook
}

// away has announcements fail from now on; nil has them made.
func (w *world) away(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.announce = err
}

func (w *world) writes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.appends)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	log, err := stream.NewMemory(stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &world{Memory: log, Registry: log.NewRegistry(nil)}
}

func publisher(t *testing.T, w *world, cfg publish.Config) *publish.Publisher {
	t.Helper()
	p, err := publish.New(w, w, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func open(t *testing.T, w *world, rc publish.RunConfig) *publish.Run {
	t.Helper()
	run, err := publisher(t, w, publish.Config{}).Open(t.Context(), rc)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func entries(t *testing.T, w *world, run stream.RunID) []stream.Entry {
	t.Helper()
	page, err := w.Range(t.Context(), run, stream.ID{}, 10_000, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	return page.Entries
}

// types lists the types of a run's entries.
func types(t *testing.T, w *world, run stream.RunID) string {
	t.Helper()
	var out []string
	for _, en := range entries(t, w, run) {
		var e struct{ Type string }
		if err := json.Unmarshal(en.Event, &e); err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Type)
	}
	return strings.Join(out, " ")
}

// states lists what the registry was told, oldest first, as state@thread.
func states(t *testing.T, w *world) string {
	t.Helper()
	events, _, err := w.List(t.Context(), stream.ID{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(events)
	out := make([]string, len(events))
	for i, e := range events {
		out[i] = string(e.State) + "@" + string(e.Thread)
	}
	return strings.Join(out, " ")
}

func wantText(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var start = publish.RunConfig{Run: "r1", Thread: "t1", Input: []byte(input), Start: true}

func TestARunFromStartToEnd(t *testing.T) {
	w := newWorld(t)
	run := open(t, w, start)
	ok(t, run.Append(t.Context(),
		[]byte(`{"type":"TEXT_MESSAGE_START","messageId":"m1"}`),
		[]byte("{\"type\":\"TEXT_MESSAGE_CONTENT\",\r\n\"messageId\":\"m1\",\"delta\":\"Hi\"}"),
		[]byte(`{"type":"STEP_STARTED","stepName":"s"}`),
	))
	ok(t, run.Finish(t.Context(), publish.End{Outcome: json.RawMessage(`{"type":"cancelled"}`)}))
	ok(t, run.Close(t.Context()))
	wantText(t, types(t, w, "r1"), "RUN_STARTED TEXT_MESSAGE_START TEXT_MESSAGE_CONTENT STEP_STARTED TEXT_MESSAGE_END STEP_FINISHED RUN_FINISHED")
	wantText(t, states(t, w), "started@t1 cancelled@t1")
	all := entries(t, w, "r1")
	wantText(t, string(all[0].Input), input)
	wantText(t, string(all[2].Event), `{"type":"TEXT_MESSAGE_CONTENT",  "messageId":"m1","delta":"Hi"}`)
	for i, en := range all {
		if i > 0 && en.Input != nil {
			t.Fatalf("entry %d has an input too", i)
		}
	}
	if n, last := run.Written(); n != 7 || last != all[6].ID {
		t.Fatalf("Written is %d, %v", n, last)
	}
	if err := run.Append(t.Context(), []byte(`{"type":"CUSTOM","name":"x","value":1}`)); !errors.Is(err, publish.ErrReleased) {
		t.Fatalf("Append after Close: %v", err)
	}
}

func TestAllThatIsOpenIsClosedBeforeAnError(t *testing.T) {
	w := newWorld(t)
	run := open(t, w, start)
	ok(t, run.Append(t.Context(),
		[]byte(`{"type":"SUBAGENT_STARTED","subagentRunId":"s1","name":"helper"}`),
		[]byte(`{"type":"TOOL_CALL_START","toolCallId":"c1","toolCallName":"f"}`),
		[]byte(`{"type":"REASONING_START","messageId":"z1"}`)))
	ok(t, run.Fail(t.Context(), "boom", "It broke."))
	wantText(t, types(t, w, "r1"), "RUN_STARTED SUBAGENT_STARTED TOOL_CALL_START REASONING_START TOOL_CALL_END REASONING_END SUBAGENT_FINISHED RUN_ERROR")
	wantText(t, states(t, w), "started@t1 error@t1")
	run2 := agui.NewRun(nil, agui.RunConfig{})
	for i, en := range entries(t, w, "r1") {
		if v := run2.Apply(agui.Entry{Event: en.Event, Input: en.Input}); v.Reason != "" {
			t.Fatalf("entry %d: %s %s", i, v.Reason, v.Detail)
		}
	}
	for name, call := range map[string]error{
		"Fail":   run.Fail(t.Context(), "", "again"),
		"Finish": run.Finish(t.Context(), publish.End{}),
		"Append": run.Append(t.Context(), []byte(`{"type":"CUSTOM","name":"x","value":1}`)),
	} {
		if !errors.Is(call, publish.ErrEnded) {
			t.Errorf("%s after the end: %v", name, call)
		}
	}
	ok(t, run.Append(t.Context(), []byte(`{"type":"MESSAGES_SNAPSHOT","messages":[]}`))) // some agents sync the history late
	ok(t, run.Close(t.Context()))
}

func TestAnEndThatLeavesItemsOpenIsTaken(t *testing.T) {
	w := newWorld(t)
	run := open(t, w, start)
	ok(t, run.Append(t.Context(), []byte(`{"type":"STEP_STARTED","stepName":"s"}`), []byte(`{"type":"RUN_FINISHED","threadId":"t1","runId":"r1"}`)))
	ok(t, run.Close(t.Context()))
	wantText(t, types(t, w, "r1"), "RUN_STARTED STEP_STARTED RUN_FINISHED")
	wantText(t, run.Unclosed(), `still open: step "s"`)
	wantText(t, states(t, w), "started@t1 finished@t1")
}

func TestARunLeftOpenIsFailedByClose(t *testing.T) {
	w := newWorld(t)
	run := open(t, w, start)
	ok(t, run.Close(t.Context()))
	ok(t, run.Close(t.Context()))
	wantText(t, types(t, w, "r1"), "RUN_STARTED RUN_ERROR")
}

func TestOpenRefuses(t *testing.T) {
	w := newWorld(t)
	ok(t, open(t, w, start).Release(t.Context()))
	done := start
	done.Run = "done"
	ok(t, open(t, w, done).Finish(t.Context(), publish.End{}))
	p := publisher(t, w, publish.Config{})
	for name, c := range map[string]struct {
		rc   publish.RunConfig
		want error
	}{
		"a run that has entries":              {start, publish.ErrExists},
		"a run that has ended":                {publish.RunConfig{Run: "done", Continue: true}, publish.ErrEnded},
		"a run id that breaks the rules":      {publish.RunConfig{Run: "a/b"}, stream.ErrBadRunID},
		"a thread id that breaks the rules":   {publish.RunConfig{Run: "r2", Thread: "{"}, stream.ErrBadThreadID},
		"a parent id that breaks the rules":   {publish.RunConfig{Run: "r2", Parent: ".."}, stream.ErrBadRunID},
		"a start without a thread":            {publish.RunConfig{Run: "r2", Start: true}, stream.ErrBadThreadID},
		"an input that is no object":          {publish.RunConfig{Run: "r2", Input: []byte(`[]`)}, new(publish.InvalidError)},
		"an input that is cut":                {publish.RunConfig{Run: "r2", Input: []byte(`{"messages":[`)}, new(publish.InvalidError)},
		"an input that isn't UTF-8":           {publish.RunConfig{Run: "r2", Input: []byte("{\"a\":\"\xff\"}")}, new(publish.InvalidError)},
		"an input with a malformed message":   {publish.RunConfig{Run: "r2", Input: []byte(`{"messages":[{"role":"user"}]}`)}, new(publish.InvalidError)},
		"an input for a run that has started": {publish.RunConfig{Run: "r1", Input: []byte(input), Continue: true}, new(publish.InvalidError)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.Open(t.Context(), c.rc)
			if _, invalid := errors.AsType[*publish.InvalidError](c.want); invalid {
				if bad, is := errors.AsType[*publish.InvalidError](err); !is || !strings.HasPrefix(bad.Detail+bad.Path, "/input") && bad.Reason != agui.ReasonNotUTF8 {
					t.Fatalf("got %v", err)
				}
			} else if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
		})
	}
	t.Run("another thread than the run's", func(t *testing.T) {
		if _, err := p.Open(t.Context(), publish.RunConfig{Run: "r1", Thread: "t2", Continue: true}); !errors.Is(err, publish.ErrOtherThread) {
			t.Fatal(err)
		}
	})
	t.Run("a log that is away", func(t *testing.T) {
		w.SetFault(stream.ErrUnavailable)
		defer w.SetFault(nil)
		if _, err := p.Open(t.Context(), publish.RunConfig{Run: "r9"}); !errors.Is(err, stream.ErrUnavailable) {
			t.Fatal(err)
		}
	})
}

func TestAppendRefusesWhatAClientWould(t *testing.T) {
	big := `{"type":"CUSTOM","name":"x","value":"` + strings.Repeat("a", 2000) + `"}`
	for name, c := range map[string]struct {
		event, path string
		reason      agui.Reason
		terminal    bool
	}{
		"what isn't JSON":                       {`{"type":`, "", agui.ReasonNotJSON, false},
		"what isn't an object":                  {`[]`, "", agui.ReasonNotObject, false},
		"what isn't UTF-8":                      {"{\"type\":\"\xff\"}", "", agui.ReasonNotUTF8, false},
		"what has no type":                      {`{"kind":"CUSTOM"}`, "", agui.ReasonNoType, false},
		"what is too large":                     {big, "", agui.ReasonTooLarge, false},
		"a field of a wrong kind":               {`{"type":"TEXT_MESSAGE_START","messageId":1}`, "/messageId", agui.ReasonMalformed, false},
		"a wrong value deep inside":             {`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"user","content":"x"},{"id":"b","role":"tool","content":"x"}]}`, "/messages/1/toolCallId", agui.ReasonMalformed, false},
		"content without a start":               {`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"x"}`, "", agui.ReasonIllegal, false},
		"an end that lacks its thread":          {`{"type":"RUN_FINISHED","runId":"r1"}`, "/threadId", agui.ReasonMalformed, true},
		"an end that is cut":                    {`{"type":"RUN_ERROR","message":"x`, "", agui.ReasonNotJSON, true},
		"a claim of another thread":             {`{"type":"RUN_STARTED","threadId":"t2","runId":"r1"}`, "/threadId", agui.ReasonIllegal, false},
		"a thread id that the contract forbids": {`{"type":"RUN_STARTED","threadId":"a/b","runId":"r1"}`, "/threadId", agui.ReasonMalformed, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			run, err := publisher(t, w, publish.Config{MaxEvent: 1000}).Open(t.Context(), start)
			ok(t, err)
			first, last := []byte(`{"type":"TEXT_MESSAGE_START","messageId":"open"}`), []byte(`{"type":"CUSTOM","name":"no","value":1}`)
			err = run.Append(t.Context(), first, []byte(c.event), last)
			bad, is := errors.AsType[*publish.InvalidError](err)
			if !is || bad.Index != 1 || bad.Path != c.path || bad.Reason != c.reason || bad.Terminal != c.terminal || bad.Detail == "" {
				t.Fatalf("got %+v", err)
			}
			// It left no trace: what was open still is.
			ok(t, run.Append(t.Context(), []byte(`{"type":"TEXT_MESSAGE_END","messageId":"open"}`)))
			ok(t, run.Finish(t.Context(), publish.End{}))
			wantText(t, types(t, w, "r1"), "RUN_STARTED TEXT_MESSAGE_START TEXT_MESSAGE_END RUN_FINISHED")
		})
	}
	t.Run("unless it is told to pass it", func(t *testing.T) {
		w := newWorld(t)
		run, err := publisher(t, w, publish.Config{PassInvalid: true}).Open(t.Context(), start)
		ok(t, err)
		ok(t, run.Append(t.Context(), []byte(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"x"}`)))
		if err := run.Append(t.Context(), []byte(`{`)); err == nil {
			t.Fatal("it passed what isn't JSON")
		}
		ok(t, run.Append(t.Context(), []byte(`{"type":"RUN_FINISHED"}`)))
		ok(t, run.Close(t.Context()))
		wantText(t, types(t, w, "r1"), "RUN_STARTED TEXT_MESSAGE_CONTENT RUN_FINISHED")
		wantText(t, states(t, w), "started@t1 error@t1")
	})
}

func TestFinishRefusesAMalformedEnd(t *testing.T) {
	w := newWorld(t)
	run := open(t, w, start)
	err := run.Finish(t.Context(), publish.End{Outcome: json.RawMessage(`{"type":"interrupt","interrupts":[]}`)})
	if bad, is := errors.AsType[*publish.InvalidError](err); !is || bad.Path != "/outcome/interrupts" {
		t.Fatalf("got %v", err)
	}
	if err := run.Finish(t.Context(), publish.End{Result: json.RawMessage(`{`)}); err == nil {
		t.Fatal("it took a result that isn't JSON")
	}
	ok(t, run.Finish(t.Context(), publish.End{Result: json.RawMessage(`{"n":1}`)}))
	wantText(t, types(t, w, "r1"), "RUN_STARTED RUN_FINISHED")
	if err := open(t, w, publish.RunConfig{Run: "r2"}).Finish(t.Context(), publish.End{}); !errors.Is(err, publish.ErrNotStarted) {
		t.Fatalf("Finish before the start: %v", err)
	}
}

func TestContinuingARun(t *testing.T) {
	t.Run("goes on where the log is", func(t *testing.T) {
		w := newWorld(t)
		for _, e := range []string{`{"type":"RUN_STARTED","threadId":"t1","runId":"other"}`, `garbage`, `{"type":"TEXT_MESSAGE_START","messageId":"m1"}`} {
			if _, err := w.Append(t.Context(), "r1", stream.Record{Event: []byte(e)}); err != nil {
				t.Fatal(err)
			}
		}
		run := open(t, w, publish.RunConfig{Run: "r1", Continue: true})
		if !run.Existed() || !run.Started() || run.Thread() != "t1" {
			t.Fatal("it doesn't know what the log holds")
		}
		ok(t, run.Append(t.Context(), []byte(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"x"}`)))
		ok(t, run.Finish(t.Context(), publish.End{}))
		all := entries(t, w, "r1")
		wantText(t, string(all[len(all)-1].Event), `{"type":"RUN_FINISHED","threadId":"t1","runId":"other"}`)
	})
	t.Run("starts it anew with Start", func(t *testing.T) {
		w := newWorld(t)
		ok(t, open(t, w, start).Release(t.Context()))
		run := open(t, w, publish.RunConfig{Run: "r1", Thread: "t1", Start: true, Continue: true})
		ok(t, run.Finish(t.Context(), publish.End{}))
		wantText(t, types(t, w, "r1"), "RUN_STARTED RUN_STARTED RUN_FINISHED")
	})
	t.Run("learns the thread from the first start", func(t *testing.T) {
		w := newWorld(t)
		run := open(t, w, publish.RunConfig{Run: "r1"})
		ok(t, run.SetInput([]byte(input)))
		ok(t, run.Append(t.Context(), []byte(`{"type":"RUN_STARTED","threadId":"t7","runId":"r1","parentRunId":"r0"}`)))
		if err := run.SetInput([]byte(input)); err == nil {
			t.Fatal("it took a second input")
		}
		ok(t, run.Finish(t.Context(), publish.End{}))
		wantText(t, states(t, w), "started@t7 finished@t7")
		events, _, _ := w.List(t.Context(), stream.ID{}, 1)
		wantText(t, string(events[0].Parent), "r0")
	})
}

func TestWritesAreBatched(t *testing.T) {
	custom := func(i int) []byte { return []byte(`{"type":"CUSTOM","name":"n","value":` + strconv.Itoa(i) + `}`) }
	t.Run("by time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			run := open(t, w, start)
			before := w.writes()
			for i := range 10 {
				ok(t, run.Append(t.Context(), custom(i)))
			}
			synctest.Wait()
			if w.writes() != before {
				t.Fatal("it didn't wait for more")
			}
			began := time.Now()
			time.Sleep(publish.DefaultWindow) // the bubble's time
			synctest.Wait()
			if w.writes() != before+1 || len(entries(t, w, "r1")) != 11 || time.Since(began) > publish.MaxWindow {
				t.Fatalf("%d writes", w.writes()-before)
			}
			ok(t, run.Close(t.Context()))
		})
	})
	t.Run("by number and by size", func(t *testing.T) {
		w := newWorld(t)
		run, err := publisher(t, w, publish.Config{BatchEvents: 4, BatchBytes: 200, Window: publish.MaxWindow}).Open(t.Context(), start)
		ok(t, err)
		var all [][]byte
		for i := range 10 {
			all = append(all, custom(i))
		}
		all = append(all, []byte(`{"type":"CUSTOM","name":"n","value":"`+strings.Repeat("x", 500)+`"}`))
		ok(t, run.Append(t.Context(), all...))
		ok(t, run.Close(t.Context()))
		for _, recs := range w.appends {
			size := 0
			for _, rec := range recs {
				size += len(rec.Event)
			}
			if len(recs) > 4 || size > 200 && len(recs) > 1 {
				t.Errorf("a write of %d events and %d bytes", len(recs), size)
			}
		}
		if got := len(entries(t, w, "r1")); got != 13 {
			t.Fatalf("%d entries", got)
		}
	})
	t.Run("each in the order of its call when many call at once", func(t *testing.T) {
		w := newWorld(t)
		run, err := publisher(t, w, publish.Config{BatchEvents: 7}).Open(t.Context(), start)
		ok(t, err)
		var group sync.WaitGroup
		for g := range 8 {
			group.Go(func() {
				for i := range 50 {
					if err := run.Append(t.Context(), custom(g*1000+i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		ok(t, run.Close(t.Context()))
		next := make([]int, 8)
		for _, en := range entries(t, w, "r1") {
			var e struct {
				Type  string
				Value int
			}
			if err := json.Unmarshal(en.Event, &e); err != nil || e.Type != "CUSTOM" {
				continue
			}
			if g := e.Value / 1000; e.Value%1000 != next[g] {
				t.Fatalf("%d, want %d", e.Value%1000, next[g])
			} else {
				next[g]++
			}
		}
		if slices.Min(next) != 50 {
			t.Fatal(next)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	for _, cfg := range []publish.Config{{Window: time.Second}, {Window: -1}, {MaxEvent: -1}, {BatchEvents: -1}, {BatchBytes: -1}, {WriteTimeout: -1}} {
		if _, err := publish.New(nil, nil, cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

func TestEventKeepsMarkup(t *testing.T) {
	got, err := publish.Event(map[string]any{"type": "CUSTOM", "value": "<b>&"})
	ok(t, err)
	wantText(t, string(got), `{"type":"CUSTOM","value":"<b>&"}`)
	if _, err := publish.Event(map[string]any{"f": func() {}}); err == nil {
		t.Fatal("it encoded a function")
	}
}

func BenchmarkAppend(b *testing.B) {
	log, err := stream.NewMemory(stream.Config{})
	if err != nil {
		b.Fatal(err)
	}
	p, err := publish.New(log, log.NewRegistry(nil), publish.Config{})
	if err != nil {
		b.Fatal(err)
	}
	run, err := p.Open(b.Context(), start)
	if err != nil {
		b.Fatal(err)
	}
	if err := run.Append(b.Context(), []byte(`{"type":"TEXT_MESSAGE_START","messageId":"m1"}`)); err != nil {
		b.Fatal(err)
	}
	delta := []byte(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"a word"}`)
	b.SetBytes(int64(len(delta)))
	for b.Loop() {
		if err := run.Append(b.Context(), delta); err != nil {
			b.Fatal(err)
		}
	}
	if err := run.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}
