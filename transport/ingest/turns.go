package ingest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/stream"
)

// errReplaced says that another request of this process writes the run now.
var errReplaced = errors.New("ingest: replaced by another request")

// writer is a request that writes a run, or wants to.
type writer struct {
	sequence *publish.Sequence // nil where the sender doesn't count
	leave    func()            // has it end soon; called once at most, from any goroutine
	began    time.Time
	heard    atomic.Int64 // how long after began its body last brought something: no clock that is set makes it silent
}

// hear notes that its body brought something.
func (w *writer) hear() { w.heard.Store(int64(time.Since(w.began))) }

// silence is for how long its body has brought nothing.
func (w *writer) silence() time.Duration { return time.Since(w.began) - time.Duration(w.heard.Load()) }

// succeeds says whether w may write in place of one that is under way: as who takes the run over, or as a retry of a
// request whose connection a network has lost without a word, which a hub sees by its silence only.
func (w *writer) succeeds(other *writer, silence time.Duration) bool {
	a, b := w.sequence, other.sequence
	switch {
	case a == nil || b == nil:
		return false
	case a.Epoch != b.Epoch:
		return a.Epoch > b.Epoch
	default:
		return a.Producer == b.Producer && other.silence() >= silence
	}
}

// turns lets one request at a time write a run. What another process writes at the same time it can't see; there the
// hub withholds what comes out illegal. The zero value is ready.
type turns struct {
	mu   sync.Mutex
	runs map[stream.RunID]*turn
}

type turn struct {
	token chan struct{}
	users int     // those who wait or write
	now   *writer // who writes and hasn't been told to leave; nil where there is none
}

// wait returns when it is w's turn, which lasts until done is called. It fails with run_busy when that takes longer than
// limit, unless w succeeds who writes, which is told to leave; and with ctx's error.
func (t *turns) wait(ctx context.Context, run stream.RunID, w *writer, limit time.Duration) (done func(), err error) {
	t.mu.Lock()
	if t.runs == nil {
		t.runs = map[stream.RunID]*turn{}
	}
	tu := t.runs[run]
	if tu == nil {
		tu = &turn{token: make(chan struct{}, 1)}
		t.runs[run] = tu
	}
	tu.users++
	t.mu.Unlock()
	replaced := t.replace(tu, w, limit)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case tu.token <- struct{}{}:
			w.hear()
			t.set(tu, w)
			return func() { t.set(tu, nil); <-tu.token; t.leave(run, tu) }, nil
		case <-timer.C:
			if !replaced && t.replace(tu, w, limit) { // it goes in a moment
				replaced = true
				timer.Reset(limit)
				continue
			}
			err = runBusy(run)
		case <-ctx.Done():
			err = ctx.Err()
		}
		t.leave(run, tu)
		return nil, err
	}
}

// replace has who writes leave for w, where w succeeds it.
func (t *turns) replace(tu *turn, w *writer, silence time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tu.now == nil || !w.succeeds(tu.now, silence) {
		return false
	}
	tu.now.leave()
	tu.now = nil
	return true
}

func (t *turns) set(tu *turn, w *writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tu.now = w
}

func (t *turns) leave(run stream.RunID, tu *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tu.users--; tu.users == 0 {
		delete(t.runs, run)
	}
}
