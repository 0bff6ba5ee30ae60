package backfill

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
)

// threads are the threads that sessions of this process follow: each learns of its new runs once, from the registry.
type threads struct {
	service *Service
	// child makes a context that ends with the service, or with its cancel function.
	child func() (context.Context, context.CancelFunc)
	end   context.CancelFunc
	wg    sync.WaitGroup

	mu   sync.Mutex
	byID map[stream.ThreadID]*thread
	stop func()
}

// thread is one followed thread: its runs, as far as they have started.
type thread struct {
	id    stream.ThreadID
	spawn func(func(context.Context)) // the context ends when nobody follows the thread any more
	end   context.CancelFunc

	users int // guarded by threads.mu

	mu      sync.Mutex
	known   map[stream.RunID]bool // announced or met
	started []threadRun           // in order of start
	changed chan struct{}         // closed and replaced when started or gone grows
	idle    map[*Session]func()   // called once, then, for sessions that don't wait themselves
	gone    map[stream.RunID]bool // deleted while the thread was followed
}

// threadRun is a run of a thread that has started.
type threadRun struct {
	run    stream.RunID
	start  stream.ID
	parent stream.RunID
}

func newThreads(ctx context.Context, s *Service) *threads {
	ctx, cancel := context.WithCancel(ctx)
	return &threads{
		service: s, byID: map[stream.ThreadID]*thread{}, end: cancel,
		child: func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) },
	}
}

// follow hears the registry from after on.
func (t *threads) follow(after stream.ID) {
	t.stop = t.service.registry.Follow(after, t.heard)
}

func (t *threads) close() {
	t.stop()
	t.end()
	t.wg.Wait()
}

func (t *threads) heard(events []stream.RunEvent) {
	if len(events) == 0 { // the registry lost entries, and threads may have lost runs: the sweep announces them again
		t.service.losses.Add(1)
	}
	for _, e := range events {
		if e.State.Known() {
			t.service.stats.states.Add(string(e.State))
		}
		switch e.State {
		case stream.RunDeleted:
			t.deleted(e.RunInfo)
		case stream.RunFinished, stream.RunError, stream.RunCancelled, stream.RunInterrupted:
			t.service.keeper.ended(e.Run)
		default:
		}
		if e.State != stream.RunStarted || e.Thread == "" {
			continue
		}
		t.mu.Lock()
		th := t.byID[e.Thread]
		t.mu.Unlock()
		if th != nil {
			t.meet(th, e.Run)
		}
	}
}

// open returns the followed thread with the runs that it has. release says that the caller follows it no longer.
//
//nolint:contextcheck // a thread outlives the session that opens it
func (t *threads) open(ctx context.Context, id stream.ThreadID) (th *thread, release func(), err error) {
	t.mu.Lock()
	th = t.byID[id]
	if th == nil {
		child, end := t.child()
		th = &thread{
			id: id, known: map[stream.RunID]bool{}, changed: make(chan struct{}), idle: map[*Session]func(){}, end: end,
			spawn: func(f func(context.Context)) { t.wg.Go(func() { f(child) }) },
		}
		t.byID[id] = th
	}
	th.users++
	t.mu.Unlock()
	release = sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		th.users--
		if th.users == 0 {
			delete(t.byID, id)
			th.end()
		}
	})
	if err := t.list(ctx, th); err != nil {
		release()
		return nil, nil, err
	}
	return th, release, nil
}

// newestRuns bounds the runs of a thread that a fresh attach considers for the one that started last: the index's
// times are hints, but an agent's clock isn't off by more runs than this.
const newestRuns = 64

// list meets the thread's newest runs. Those that have started are known when it returns.
func (t *threads) list(ctx context.Context, th *thread) error {
	runs, err := t.service.registry.Thread(ctx, th.id, newestRuns)
	if err != nil || len(runs) == 0 {
		return err
	}
	ids := make([]stream.RunID, len(runs))
	for i, r := range runs {
		ids[i] = r.Run
	}
	bounds, err := t.service.log.Bounds(ctx, ids...)
	if err != nil {
		return err
	}
	for i, b := range slices.Backward(bounds) { // the oldest first, as they are met live
		if b.WrongType {
			continue
		}
		st, ok := start{}, false
		if !b.First.ID.IsZero() {
			if st, ok, err = t.service.startOf(ctx, ids[i], []stream.Entry{b.First}); err != nil {
				return err
			}
		}
		if ok && st.begins {
			if st.thread == th.id {
				th.add(threadRun{run: ids[i], start: st.id, parent: st.parent})
			}
			continue
		}
		t.meet(th, ids[i])
	}
	return nil
}

// renew looks after a loss which runs the thread has. Those whose streams are gone are taken out, and those that are there are
// met, also where one came back while it was looked, so that its announcement was taken for that of a known run.
func (t *threads) renew(ctx context.Context, th *thread) error {
	if err := th.prune(ctx, t.service.log); err != nil {
		return err
	}
	return t.list(ctx, th)
}

// meet waits, beside the caller, until an announced run has started.
func (t *threads) meet(th *thread, run stream.RunID) {
	th.mu.Lock()
	defer th.mu.Unlock()
	if th.known[run] {
		return
	}
	th.known[run] = true
	th.spawn(func(ctx context.Context) {
		for wait := time.Second; !t.await(ctx, th, run); wait = min(2*wait, 30*time.Second) {
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	})
}

// await waits for the start of a run; false means that it should be tried again.
func (t *threads) await(ctx context.Context, th *thread, run stream.RunID) bool {
	feed, err := t.service.hub.Feed(run)
	if err != nil {
		return ctx.Err() != nil || errors.Is(err, hub.ErrClosed)
	}
	defer t.service.hub.Release(feed)
	m := feed.Machine().(*machine)
	err = feed.Wait(ctx, func() bool { return m.run.Started() || !m.end.IsZero() })
	switch {
	case ctx.Err() != nil:
		return true
	case errors.Is(err, stream.ErrWrongType):
		return true
	case err != nil:
		t.service.logger.Debug("waiting for an announced run", zap.String("run", string(run)), zap.Error(err))
		return false
	}
	feed.With(func(stream.ID) {
		if m.thread == th.id || m.headless && m.thread == "" { // then nothing but the index tells
			th.add(threadRun{run: run, start: m.start, parent: m.parent})
		}
	})
	return true
}

// add puts a started run at its place, also one that began anew behind others.
func (th *thread) add(r threadRun) {
	th.mu.Lock()
	defer th.mu.Unlock()
	th.known[r.run] = true
	if i := slices.IndexFunc(th.started, func(x threadRun) bool { return x.run == r.run }); i >= 0 {
		if !th.started[i].start.Less(r.start) {
			return
		}
		th.started = slices.Delete(th.started, i, i+1)
	}
	at := slices.IndexFunc(th.started, func(x threadRun) bool { return r.start.Less(x.start) })
	if at < 0 {
		at = len(th.started)
	}
	th.started = slices.Insert(th.started, at, r)
	th.change()
}

// change wakes who waits for a change; th.mu is held.
func (th *thread) change() {
	close(th.changed)
	th.changed = make(chan struct{})
	for _, wake := range th.idle {
		wake()
	}
	clear(th.idle)
}

// onChange has wake called once when something changes; false where it has since changed was returned.
func (th *thread) onChange(ses *Session, changed <-chan struct{}, wake func()) bool {
	th.mu.Lock()
	defer th.mu.Unlock()
	if changed != (<-chan struct{})(th.changed) {
		return false
	}
	th.idle[ses] = wake
	return true
}

// leave forgets a session.
func (th *thread) leave(ses *Session) {
	th.mu.Lock()
	defer th.mu.Unlock()
	delete(th.idle, ses)
}

// newest is the run that started last.
func (th *thread) newest() (r threadRun, ok bool, changed <-chan struct{}) {
	th.mu.Lock()
	defer th.mu.Unlock()
	if n := len(th.started); n > 0 {
		return th.started[n-1], true, th.changed
	}
	return threadRun{}, false, th.changed
}

// after is the run that started next after r; where a branch is followed, the next that goes on from it. Of runs that
// share their start the one that was met last comes last.
func (th *thread) after(r threadRun, branch bool) (next threadRun, ok bool, changed <-chan struct{}) {
	th.mu.Lock()
	defer th.mu.Unlock()
	behind := slices.IndexFunc(th.started, func(x threadRun) bool { return x.run == r.run }) + 1
	for _, x := range th.started[behind:] {
		if (behind > 0 || r.start.Less(x.start)) && (!branch || x.parent == r.run) {
			return x, true, th.changed
		}
	}
	return threadRun{}, false, th.changed
}

// byHash is the started run that a thread's cursor names.
func (th *thread) byHash(hash uint32) (threadRun, bool) {
	th.mu.Lock()
	defer th.mu.Unlock()
	for _, r := range th.started {
		if stream.HashRun(r.run) == hash {
			return r, true
		}
	}
	return threadRun{}, false
}
