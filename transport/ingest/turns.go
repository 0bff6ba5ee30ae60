package ingest

import (
	"context"
	"sync"
	"time"

	"github.com/aguihub/aguihub/stream"
)

// turns lets one request at a time write a run. What another process writes at the same time it can't see; there the
// hub withholds what comes out illegal. The zero value is ready.
type turns struct {
	mu   sync.Mutex
	runs map[stream.RunID]*turn
}

type turn struct {
	token chan struct{}
	users int // those who wait or write
}

// wait returns when it is the caller's turn, which lasts until done is called. It fails with run_busy when that takes
// longer than limit, and with ctx's error.
func (t *turns) wait(ctx context.Context, run stream.RunID, limit time.Duration) (done func(), err error) {
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
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case tu.token <- struct{}{}:
		return func() { <-tu.token; t.leave(run, tu) }, nil
	case <-timer.C:
		err = runBusy(run)
	case <-ctx.Done():
		err = ctx.Err()
	}
	t.leave(run, tu)
	return nil, err
}

func (t *turns) leave(run stream.RunID, tu *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tu.users--; tu.users == 0 {
		delete(t.runs, run)
	}
}
