package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/stream"
)

// Run is one run that this process writes. All methods may be called by any number of goroutines at once; events are
// written in the order in which the calls took them, those of one call together.
//
// No goroutine lives as long as a Run: what is buffered is written by a timer that is set with the first buffered event.
type Run struct {
	// static after Open
	pub     *Publisher
	existed bool          // the log had entries of the run
	writing chan struct{} // holds a token while somebody writes; no lock, since waiting for it must heed a context
	timers  sync.WaitGroup

	// guarded by mu
	mu        sync.Mutex
	info      stream.RunInfo // thread and parent are found out later where Open wasn't told
	event     agui.Event
	adm       agui.Admission
	announced bool
	released  bool
	input     []byte // goes with the next entry
	offered   bool   // an event was taken since Open
	unclosed  string // what the RUN_FINISHED that was taken left open
	// startThread and startRun are the names in the last RUN_STARTED, which a RUN_FINISHED has to repeat.
	startThread, startRun string
	pending               []item
	pendingBytes          int
	timer                 *time.Timer // set while it will fire

	written int
	lastID  stream.ID
	endInfo *stream.RunInfo // an end that the registry has yet to learn
	broken  error           // *WriteError; the run takes nothing more
}

// item is an event that waits to be written.
type item struct {
	rec     stream.Record
	started bool            // the registry learns of the run before this is written
	ended   stream.RunState // what it learns after that; "" where the run goes on
}

func (it *item) size() int { return len(it.rec.Event) + len(it.rec.Input) }

// ID returns the run's id.
func (r *Run) ID() stream.RunID { return r.info.Run }

// Existed reports whether the log had entries of the run when it was opened.
func (r *Run) Existed() bool { return r.existed }

// Thread returns the run's thread, empty while it isn't known.
func (r *Run) Thread() stream.ThreadID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.info.Thread
}

// Started reports whether a RUN_STARTED was taken or found in the log, Ended whether a terminal event was.
func (r *Run) Started() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.adm.Started()
}

// Ended reports whether the run's terminal event was taken.
func (r *Run) Ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.adm.Ended()
}

// Unclosed says in words what a RUN_FINISHED given to Append left open, and is empty where nothing is. Such an event is
// taken, since an end is never lost, and hubs send what closes the open items before it. Finish closes them itself.
func (r *Run) Unclosed() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unclosed
}

// Written returns how many events are in the log since Open, and the entry of the last of them, zero if none is.
func (r *Run) Written() (events int, last stream.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written, r.lastID
}

// SetInput records the run's input, a RunAgentInput as JSON, with the next event that is appended. It fails with an
// *InvalidError if input isn't one, and once it would go unread: when the run has started, or has an event or an input
// already. input must not change afterwards.
func (r *Run) SetInput(input []byte) error {
	if err := checkInput(input, r.pub.cfg.MaxEvent); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.adm.Started() || r.offered || r.input != nil {
		return &InvalidError{
			Path: "/input", Reason: agui.ReasonIllegal, Detail: "/input: it goes with the first entry of a run, and this isn't the first",
		}
	}
	r.input = bytes.TrimSpace(input)
	return nil
}

// Append takes events, each one JSON object, to be written within Config.Window. It blocks only while more than a batch
// is buffered. The bytes must not change afterwards.
//
// An *InvalidError means that the event at its Index and those behind it were not taken; those before it were. A
// *WriteError means that the run is broken, perhaps by an earlier event; then none of these may be taken for written. If
// ctx ends before, nothing was taken; if it ends while Append waits for the log, all events were, and will be written.
func (r *Run) Append(ctx context.Context, events ...[]byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	err := r.usable()
	if err == nil {
		err = r.takeAll(events)
		r.setTimer(ctx)
	}
	full := r.full()
	r.mu.Unlock()
	if !full {
		return err
	}
	return errors.Join(err, r.Flush(ctx))
}

// takeAll buffers events up to the first invalid one. Caller holds mu.
func (r *Run) takeAll(events [][]byte) error {
	for i, raw := range events {
		it, err := r.judge(raw)
		if bad, ok := errors.AsType[*InvalidError](err); ok {
			bad.Index = i
			return bad
		}
		r.push(it)
	}
	return nil
}

// push buffers an item. Caller holds mu.
func (r *Run) push(it item) {
	it.rec.Input, r.input = r.input, nil
	r.offered = true
	r.pending = append(r.pending, it)
	r.pendingBytes += it.size()
}

func (r *Run) full() bool {
	return len(r.pending) >= r.pub.cfg.BatchEvents || r.pendingBytes >= r.pub.cfg.BatchBytes
}

// usable says why the run takes nothing more. Caller holds mu.
func (r *Run) usable() error {
	switch {
	case r.broken != nil:
		return r.broken
	case r.released:
		return ErrReleased
	default:
		return nil
	}
}

// setTimer sees to it that what is buffered gets written. Caller holds mu.
func (r *Run) setTimer(ctx context.Context) {
	if len(r.pending) == 0 || r.timer != nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	r.timers.Add(1)
	r.timer = time.AfterFunc(r.pub.cfg.Window, func() {
		defer r.timers.Done()
		r.mu.Lock()
		r.timer = nil
		r.mu.Unlock()
		_ = r.Flush(ctx) // whoever comes next hears of it
	})
}

// stopTimer takes the timer back if it hasn't fired. Caller holds mu.
func (r *Run) stopTimer() {
	if r.timer != nil && r.timer.Stop() {
		r.timers.Done()
	}
	r.timer = nil
}

// Flush writes what is buffered and returns when it is in the log: nil means that every event that was taken is. ctx
// bounds the wait for others that write; a write itself is bounded by Config.WriteTimeout. Errors: ctx's, *WriteError,
// and, where all is written but the registry could not be told of the run's end, what it said; then Flush may be called
// again.
func (r *Run) Flush(ctx context.Context) error {
	select {
	case r.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.writing }()
	for {
		batch := r.nextBatch()
		if batch == nil {
			return r.settle(ctx)
		}
		if err := r.write(ctx, batch); err != nil {
			return err
		}
	}
}

// nextBatch takes what one write may hold, nil if there is nothing to write.
func (r *Run) nextBatch() []item {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil || len(r.pending) == 0 {
		return nil
	}
	n, size := 0, 0
	for n < len(r.pending) && n < r.pub.cfg.BatchEvents && (n == 0 || size+r.pending[n].size() <= r.pub.cfg.BatchBytes) {
		size += r.pending[n].size()
		n++
	}
	batch := r.pending[:n:n]
	r.pending = r.pending[n:]
	r.pendingBytes -= size
	if len(r.pending) == 0 {
		r.pending = nil
		r.stopTimer()
	}
	return batch
}

// write announces and appends one batch. The caller has the token.
func (r *Run) write(ctx context.Context, batch []item) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.pub.cfg.WriteTimeout)
	defer cancel()
	recs := make([]stream.Record, len(batch))
	var ended stream.RunState
	for i, it := range batch {
		recs[i] = it.rec
		if it.ended != "" {
			ended = it.ended
		}
		if it.started {
			if err := r.announce(ctx, stream.RunStarted); err != nil {
				return r.breakOff(len(batch), 0, nil, fmt.Errorf("announce start: %w", err))
			}
		}
	}
	// An append is never repeated here: what became of one whose answer was lost can't be told from outside. Once
	// entries carry their producer's epoch this is where it is found out.
	ids, err := r.pub.log.Append(ctx, r.info.Run, recs...)
	if err != nil {
		unwritten, uncertain := len(batch)-len(ids), 0
		if errors.Is(err, stream.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			unwritten, uncertain = 0, unwritten
		}
		return r.breakOff(unwritten, uncertain, ids, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(ids)
	if ended != "" {
		info := r.info
		info.State = ended
		r.endInfo = &info
	}
	return nil
}

// note counts what is written. Caller holds mu.
func (r *Run) note(ids []stream.ID) {
	if len(ids) > 0 {
		r.written += len(ids)
		r.lastID = ids[len(ids)-1]
	}
}

// breakOff ends the Run, not the run, after a write that failed.
func (r *Run) breakOff(unwritten, uncertain int, ids []stream.ID, cause error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(ids)
	r.broken = &WriteError{
		Written: r.written, Uncertain: uncertain, Unwritten: unwritten + len(r.pending), LastID: r.lastID, Err: cause,
	}
	r.pending, r.pendingBytes = nil, 0
	r.stopTimer()
	return r.broken
}

// settle tells the registry of the run's end, once that is written, and returns what is left to say.
func (r *Run) settle(ctx context.Context) error {
	r.mu.Lock()
	broken, end := r.broken, r.endInfo
	r.mu.Unlock()
	if broken != nil || end == nil {
		return broken
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.pub.cfg.WriteTimeout)
	defer cancel()
	if err := r.pub.registry.Announce(ctx, *end); err != nil {
		return fmt.Errorf("announce end: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endInfo = nil
	return nil
}

// announce tells the registry what the run is.
func (r *Run) announce(ctx context.Context, state stream.RunState) error {
	r.mu.Lock()
	info := r.info
	r.mu.Unlock()
	info.State = state
	return r.pub.registry.Announce(ctx, info)
}

// announceNow announces a run before its first event.
func (r *Run) announceNow(ctx context.Context) error {
	if err := r.announce(ctx, stream.RunStarted); err != nil {
		return fmt.Errorf("announce start: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.announced = true
	return nil
}
