package backfill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/stream"
)

// readsLog counts the pages that are read.
type readsLog struct {
	*stream.Memory
	*stream.Tail

	pages atomic.Int64
}

func (l *readsLog) Range(ctx context.Context, run stream.RunID, after stream.ID, entries, bytes int) (stream.Page, error) {
	l.pages.Add(1)
	return l.Memory.Range(ctx, run, after, entries, bytes)
}

// brokenRegistry is a registry with keys that fail.
type brokenRegistry struct {
	*stream.Registry

	announce, thread error
}

func (r *brokenRegistry) Announce(context.Context, stream.RunInfo) error { return r.announce }

func (r *brokenRegistry) ThreadWith(ctx context.Context, thread stream.ThreadID, run stream.RunID, _ int64, limit int) ([]stream.ThreadRun, error) {
	if r.thread != nil {
		return nil, r.thread
	}
	runs, err := r.Thread(ctx, thread, limit)
	return slices.DeleteFunc(runs, func(other stream.ThreadRun) bool { return other.Run == run }), err // so that there is something to announce
}

// family is a thread "t" whose runs start a millisecond apart.
type family struct {
	*Service
	log      *readsLog
	registry *stream.Registry
}

func newFamily(t *testing.T) *family {
	t.Helper()
	memory, err := stream.NewMemory(stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	tail := memory.NewTail(stream.TailConfig{})
	var running sync.WaitGroup
	running.Go(func() {
		if err := tail.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("tail: %v", err)
		}
	})
	f := &family{log: &readsLog{Memory: memory, Tail: tail}, registry: memory.NewRegistry(tail)}
	f.Service = New(ctx, f.log, f.registry, stream.ID{}, Config{}, zap.NewNop())
	t.Cleanup(func() {
		f.Close()
		cancel()
		running.Wait()
	})
	return f
}

// run publishes a run that says one word and, where it is to, ends.
func (f *family) run(t *testing.T, name, parent string, ends bool) {
	t.Helper()
	time.Sleep(time.Millisecond)
	run := stream.RunID(name)
	if err := f.registry.Announce(t.Context(), stream.RunInfo{Run: run, Thread: "t", State: stream.RunStarted}); err != nil {
		t.Fatal(err)
	}
	begin := fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":%q}`, name)
	if parent != "" {
		begin = fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":%q,"parentRunId":%q}`, name, parent)
	}
	events := []string{
		begin,
		fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","messageId":"m-%s","role":"assistant"}`, name),
		fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m-%s","delta":"word"}`, name),
		fmt.Sprintf(`{"type":"TEXT_MESSAGE_END","messageId":"m-%s"}`, name),
	}
	if ends {
		events = append(events, fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":"t","runId":%q}`, name))
	}
	for _, e := range events {
		if _, err := f.log.Append(t.Context(), run, stream.Record{Event: []byte(e)}); err != nil {
			t.Fatal(err)
		}
	}
}

// base is what the run started from, as anybody who asks for it first finds.
func (f *family) base(t *testing.T, name string) base {
	t.Helper()
	page, err := f.log.Range(t.Context(), stream.RunID(name), stream.ID{}, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	st, ok := findStart(page.Entries)
	if !ok {
		t.Fatalf("%s has no start", name)
	}
	f.log.pages.Store(0)
	b, err := f.history(t.Context(), stream.RunID(name), st)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return b
}

func TestHistory(t *testing.T) {
	check := func(name string, f func(t *testing.T, f *family)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, newFamily(t)) })
		})
	}
	messages := func(t *testing.T, b base, parent string, n int) {
		t.Helper()
		got := 0
		if b.conversation != nil {
			got = len(b.conversation.Messages)
		}
		if string(b.run) != parent || got != n {
			t.Errorf("the parent is %q with %d messages, want %q with %d", b.run, got, parent, n)
		}
	}
	const many = 40

	check("I8: the search for a parent reads each run of a thread a few times, also where none has ended", func(t *testing.T, f *family) {
		f.run(t, "first", "", true)
		for i := range many {
			f.run(t, fmt.Sprintf("r%d", i), "", false)
		}
		messages(t, f.base(t, "r39"), "first", 1)
		if n := f.log.pages.Load(); n > 3*many {
			t.Errorf("%d pages were read of %d runs", n, many)
		}
	})
	check("I8: so it does where parents are named that are of no use", func(t *testing.T, f *family) {
		f.run(t, "r0", "", true)
		for i := range many {
			f.run(t, fmt.Sprintf("r%d", i+1), fmt.Sprintf("r%d", (i+7)%many+2), true) // later ones, mostly
		}
		messages(t, f.base(t, "r30"), "r29", 30)
		if n := f.log.pages.Load(); n > 5*many {
			t.Errorf("%d pages were read of %d runs", n, many)
		}
	})
	check("a parent that is named counts though it hasn't ended", func(t *testing.T, f *family) {
		f.run(t, "r0", "", false)
		f.run(t, "r1", "", true)
		f.run(t, "r2", "r0", false)
		messages(t, f.base(t, "r2"), "r0", 1)
	})
	check("a run that ended after the start is no parent, an end of its own behind its end aside", func(t *testing.T, f *family) {
		f.run(t, "r0", "", true)
		f.run(t, "r1", "", false)
		f.run(t, "r2", "", false)
		end := func(run string) {
			time.Sleep(time.Millisecond)
			e := fmt.Appendf(nil, `{"type":"RUN_FINISHED","threadId":"t","runId":%q}`, run)
			if _, err := f.log.Append(t.Context(), stream.RunID(run), stream.Record{Event: e}); err != nil {
				t.Fatal(err)
			}
		}
		end("r1")
		end("r0") // late: it had ended before
		messages(t, f.base(t, "r2"), "r0", 1)
	})
	check("a registry of another type keeps no run from being shown", func(t *testing.T, f *family) {
		f.run(t, "r0", "", true)
		f.run(t, "r1", "", false)
		broken := &brokenRegistry{Registry: f.registry, announce: stream.ErrWrongType}
		f.Service.registry = broken
		messages(t, f.base(t, "r1"), "r0", 1)
		broken.thread = stream.ErrWrongType
		b := f.base(t, "r1")
		messages(t, b, "", 0)
		if b.conversation == nil || b.conversation.Full {
			t.Error("the history isn't partial")
		}
	})
	check("a run of the thread whose key is no stream is as good as gone", func(t *testing.T, f *family) {
		f.run(t, "r0", "", true)
		f.run(t, "r1", "", true)
		f.run(t, "r2", "r1", false)
		f.log.SetWrongType("r1")
		messages(t, f.base(t, "r2"), "r0", 1)
	})
}
