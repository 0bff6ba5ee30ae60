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
	writing chan struct{} // holds a token while somebody writes; no lock, since waiting for it must heed a context
	timers  sync.WaitGroup
	fresh   bool          // the log wasn't read: the claim fails where it has entries of the run
	early   chan struct{} // closed when the registry was told of the claim; nil where it isn't
	context func() context.Context
	cancel  context.CancelCauseFunc

	// guarded by the token in writing
	logNext uint64 // the sequence number that the log expects

	// guarded by mu
	mu sync.Mutex
	past
	fence     stream.Fence
	claimed   bool
	skip      int    // events to pass over: they are in the log already
	next      uint64 // the sequence number of the next event
	dirty     bool   // others have written, too: what was judged isn't all that there is
	announced bool
	released  bool
	kept      bool   // what was judged is somebody else's now
	input     []byte // goes with the next entry
	offered   bool   // an event was taken since Open
	unclosed  string // what the RUN_FINISHED that was taken left open

	pending      []item
	pendingBytes int
	timer        *time.Timer // set while it will fire

	written int
	lastID  stream.ID
	endInfo *stream.RunInfo // an end that the registry has yet to learn
	broken  error           // *WriteError; the run takes nothing more
}

func newRun(ctx context.Context, p *Publisher) *Run {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	return &Run{
		pub: p, writing: make(chan struct{}, 1), cancel: cancel,
		context: func() context.Context { return ctx },
	}
}

// item is an event that waits to be written.
type item struct {
	rec     stream.Record
	seq     uint64
	late    bool            // comes after the end
	started bool            // the registry learns of the run before this is written
	ended   stream.RunState // what it learns after that; "" where the run goes on
}

func (it *item) size() int { return len(it.rec.Event) + len(it.rec.Input) }

// ID returns the run's id.
func (r *Run) ID() stream.RunID { return r.info.Run }

// Context returns a context that ends when the agent should stop: context.Cause is a *CancelledError where somebody asks
// to cancel the run, a *WriteError (ErrFenced, for instance) where the run can't be written any more, and ErrReleased after
// Release and Close. It has the values of Open's context, not its end. An agent that is cancelled ends its run with
// [Run.FinishCancelled]; until it does the run goes on.
func (r *Run) Context() context.Context { return r.context() }

// Existed reports whether the log had entries of the run when it was opened.
func (r *Run) Existed() bool { return r.existed }

// Bound returns a context that ends with ctx, and when [Run.Context] does, with the same cause: what an agent hands to all
// that it calls. stop frees what the context holds; it doesn't touch the run.
func (r *Run) Bound(ctx context.Context) (bound context.Context, stop func()) {
	bound, cancel := context.WithCancelCause(ctx)
	own := r.context()
	unhook := context.AfterFunc(own, func() { cancel(context.Cause(own)) })
	return bound, func() { unhook(); cancel(nil) }
}

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

// Written returns how many events are in the log since Open, those that a Sequence passed over included, and the entry of
// the last of them, zero if none is.
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
	if r.skip > 0 {
		return nil // it is in the log with the first of those
	}
	if r.adm.Started() || r.offered || r.input != nil {
		return &InvalidError{
			Path: "/input", Reason: agui.ReasonIllegal, Detail: "/input: it goes with the first entry of a run, and this isn't the first",
		}
	}
	r.input = bytes.TrimSpace(input)
	return nil
}

// Append takes events, each one JSON object, to be written within Config.Window. It blocks only while more than a batch
// is buffered, and the first time, to claim the run. The bytes must not change afterwards.
//
// An *InvalidError means that the event at its Index and those behind it were not taken; those before it were. A
// *WriteError means that the run is broken, perhaps by an earlier event; then none of these may be taken for written. If
// ctx ends before, nothing was taken; if it ends while Append waits for the log, all events were, and will be written.
func (r *Run) Append(ctx context.Context, events ...[]byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := r.claim(ctx, len(events)); err != nil {
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
		if r.skip > 0 {
			r.skip--
			r.written++
			continue
		}
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
	it.seq = r.next
	r.next++
	r.offered = true
	r.judged += len(it.rec.Event)
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

// Skip leaves out the number of an event that was not taken, where others count it. It is of use with a Sequence only.
func (r *Run) Skip() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
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
	defer r.unhold()
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
	for n < len(r.pending) && n < r.pub.cfg.BatchEvents {
		it := &r.pending[n]
		if n > 0 && (size+it.size() > r.pub.cfg.BatchBytes || it.seq != r.pending[n-1].seq+1) {
			break
		}
		size += it.size()
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
				return r.breakOff(len(batch), 0, fmt.Errorf("announce start: %w", err))
			}
		}
	}
	got, uncertain, err := r.append(ctx, stream.FencedAppend{
		Fence: r.fence, Seq: batch[0].seq, Floor: r.logNext, End: ended != "", Late: batch[0].late, TTL: r.pub.cfg.LeaseTTL,
	}, recs)
	if err != nil {
		if !uncertain {
			return r.breakOff(len(batch), 0, err)
		}
		return r.breakOff(0, len(batch), err)
	}
	r.logNext = batch[len(batch)-1].seq + 1
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written += len(batch)
	r.lastID = got.Last
	r.seen, r.seenSum = got.Last, stream.Checksum(recs[len(recs)-1].Event)
	r.dirty = r.dirty || got.Foreign
	if ended != "" {
		r.end = ended
		info := r.info
		info.State = ended
		r.endInfo = &info
	}
	return nil
}

// retryPause is the first pause before an append is repeated; each is twice the one before.
const retryPause = 25 * time.Millisecond

// append appends a batch, again and again while the answer is lost and ctx lasts. uncertain says of an error that the batch
// may be in the log all the same.
func (r *Run) append(ctx context.Context, a stream.FencedAppend, recs []stream.Record) (got stream.Appended, uncertain bool, err error) {
	for pause := retryPause; ; pause *= 2 {
		got, err = r.pub.log.AppendFenced(ctx, r.info.Run, a, recs...)
		switch {
		case err == nil:
			return got, false, nil
		case errors.Is(err, stream.ErrFull): // the script has looked first, and found that it isn't there
			return got, false, err
		case !lost(err):
			return got, uncertain, err
		}
		uncertain = true
		if !wait(ctx, pause) {
			return got, uncertain, err
		}
	}
}

// lost says whether an error leaves open what became of a command.
func lost(err error) bool {
	return errors.Is(err, stream.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// wait waits for d; false where ctx ends before.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// breakOff ends the Run, not the run, after a write that failed.
func (r *Run) breakOff(unwritten, uncertain int, cause error) error {
	if errors.Is(cause, stream.ErrRunEnded) {
		cause = errors.Join(ErrEnded, cause)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, broken := errors.AsType[*WriteError](r.broken); broken {
		both := *before
		both.Unwritten += unwritten
		both.Uncertain += uncertain
		r.broken = &both
		return r.broken
	}
	r.broken = &WriteError{
		Written: r.written, Uncertain: uncertain, Unwritten: unwritten + len(r.pending), LastID: r.lastID, Err: cause,
	}
	r.pending, r.pendingBytes = nil, 0
	r.stopTimer()
	r.cancel(r.broken)
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

// announce tells the registry what the run is, behind the claim.
func (r *Run) announce(ctx context.Context, state stream.RunState) error {
	if r.early != nil {
		select {
		case <-r.early:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.mu.Lock()
	info, broken := r.info, r.broken
	r.mu.Unlock()
	if broken != nil {
		return broken
	}
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
