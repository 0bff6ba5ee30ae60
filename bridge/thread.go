package bridge

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/publish"
)

// A thread has one run at a time. Who wants to start one claims the thread, first in this process, which costs nothing,
// then at all hubs; looks for runs that others publish there; and opens the run, which holds a lease from then on. The
// thread stays claimed until the run has an entry, by which everybody sees that it goes on.

// admit makes a run the one of its thread, and opens it.
func (b *Bridge) admit(ctx context.Context, rq Request, rc publish.RunConfig, asked agui.Input) (*Run, error) {
	wait, cancel := context.WithTimeout(ctx, b.cfg.SupersedeWait)
	defer cancel()
	r, err := b.claim(wait, asked, rq.Supersede)
	if err == nil {
		var writer *publish.Run
		if writer, err = b.open(ctx, wait, r, rq, rc, asked); err == nil {
			b.mu.Lock()
			r.writer = writer
			b.mu.Unlock()
			close(r.opened)
			return r, nil
		}
		b.forget(r)
	}
	return nil, err
}

// claim makes a run the one of its thread in this process. wait bounds how long one that is superseded, or about to be opened,
// may take.
func (b *Bridge) claim(wait context.Context, asked agui.Input, supersede bool) (*Run, error) {
	for {
		b.mu.Lock()
		before := b.claims[asked.ThreadID]
		opening := before != nil && before.writer == nil
		busy := opening || before != nil && !before.writer.Ended()
		switch {
		case b.closed:
			b.mu.Unlock()
			return nil, ErrClosed
		case !busy && len(b.runs) >= b.cfg.MaxRuns:
			b.mu.Unlock()
			return nil, ErrFull
		case !busy:
			r := b.newRun(asked) //nolint:contextcheck // it outlives the request that starts it
			b.claims[r.thread], b.runs[r] = r, struct{}{}
			b.mu.Unlock()
			return r, nil
		}
		b.mu.Unlock()
		switch {
		case before.holder.Run == asked.RunID:
			return nil, publish.ErrExists
		case supersede:
			before.cancel(errSuperseded)
		case !opening:
			return nil, &BusyError{Run: before.holder.Run}
		}
		if !before.settled(wait, supersede) {
			return nil, &BusyError{Run: before.holder.Run}
		}
	}
}

// settled waits until the run has ended or been refused or, where that isn't what is asked for, until it is open; false where
// wait ends before. A caller who is told of a run that is in the way shall be able to cancel it, at any hub, and one that is
// refused itself is in nobody's way.
func (r *Run) settled(wait context.Context, toTheEnd bool) bool {
	opened := r.opened
	if toTheEnd {
		opened = nil
	}
	select {
	case <-r.ended:
	case <-opened:
	case <-wait.Done():
		return false
	}
	return true
}

// newRun returns a run whose context ends with the bridge. Caller holds mu.
func (b *Bridge) newRun(asked agui.Input) *Run {
	ctx, cancel := b.child()
	return &Run{
		thread: asked.ThreadID, holder: Holder{Token: rand.Text(), Run: asked.RunID},
		opened: make(chan struct{}), begun: make(chan struct{}), ended: make(chan struct{}), done: make(chan struct{}),
		ctx: func() context.Context { return ctx }, cancel: cancel,
	}
}

// end says that a run's end is in the log, so that the thread's next one may start.
func (b *Bridge) end(r *Run) {
	r.endOnce.Do(func() {
		b.mu.Lock()
		if b.claims[r.thread] == r {
			delete(b.claims, r.thread)
		}
		b.mu.Unlock()
		close(r.ended)
	})
}

// forget lets go of a run.
func (b *Bridge) forget(r *Run) {
	b.end(r)
	r.begin()
	r.cancel(nil)
	b.mu.Lock()
	delete(b.runs, r)
	b.mu.Unlock()
	close(r.done)
}

// open claims the thread at all hubs, checks what it says to a new run, and opens that.
func (b *Bridge) open(ctx, wait context.Context, r *Run, rq Request, rc publish.RunConfig, asked agui.Input) (*publish.Run, error) {
	claimed, err := b.claimShared(ctx, wait, r, rq.Supersede)
	if err != nil {
		return nil, err
	}
	writer, err := b.openAlone(ctx, wait, rq, rc, asked)
	if err != nil {
		// The next one needn't wait until it lapses.
		if left := b.shared.Let(context.WithoutCancel(ctx), r.thread, r.holder); left != nil {
			b.logger.Warn("thread stays claimed for a while", zap.String("thread", r.thread), zap.Error(left))
		}
		return nil, err
	}
	if time.Since(claimed) < b.cfg.KeepEvery {
		return writer, nil
	}
	if held, err := b.shared.Keep(ctx, r.thread, r.holder); err != nil || !held {
		// It took so long that another one may have come first. This one ends in order, as superseded.
		b.logger.Warn("claim of a thread lapsed while a run was opened", zap.String("run", r.holder.Run), zap.Error(err))
		r.cancel(errSuperseded)
	}
	return writer, nil
}

// supersedePause is how long it is waited for a holder that can't be seen to end, before the thread is claimed again.
const supersedePause = 200 * time.Millisecond

// A holder claims its run right after the thread. Until then nobody can cancel the run, so that nobody is told of it;
// openingWait is for how long it is waited for one that may be lost, openingPause between two looks.
const (
	openingWait  = time.Second
	openingPause = 5 * time.Millisecond
)

// claimShared claims the thread for a run at all hubs. It returns a time before that, which the claim outlasts by its whole time.
func (b *Bridge) claimShared(ctx, wait context.Context, r *Run, supersede bool) (claimed time.Time, err error) {
	var over Holder
	opening, cancel := context.WithTimeout(wait, openingWait)
	defer cancel()
	for {
		claimed = time.Now()
		held, err := b.shared.Claim(ctx, r.thread, r.holder, over)
		if err != nil {
			return claimed, fmt.Errorf("claim thread: %w", err)
		}
		if held == (Holder{}) {
			return claimed, nil
		}
		known, ended, err := b.shared.Look(ctx, held.Run)
		switch {
		case err != nil:
			return claimed, fmt.Errorf("run that holds the thread: %w", err)
		case ended:
			over = held
			continue
		case held.Run == r.holder.Run:
			return claimed, publish.ErrExists
		case !known && pause(opening, openingPause):
			continue
		case !supersede || wait.Err() != nil:
			return claimed, &BusyError{Run: held.Run}
		}
		if err := b.supersedeHolder(ctx, wait, held.Run); err != nil {
			return claimed, err
		}
	}
}

// pause waits for d; false where ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// supersedeHolder asks the run that holds the thread to end, and waits for that for a moment: it may not have begun, or be lost.
func (b *Bridge) supersedeHolder(ctx, wait context.Context, run string) error {
	if err := b.threads.Cancel(ctx, run, "superseded"); err != nil {
		return fmt.Errorf("cancel run: %w", err)
	}
	moment, cancel := context.WithTimeout(wait, supersedePause)
	defer cancel()
	err := b.threads.Wait(moment, run)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && moment.Err() == nil:
		return fmt.Errorf("wait for the end of a run: %w", err)
	default:
		return nil
	}
}

// openAlone checks what the thread says to a new run, and opens it.
func (b *Bridge) openAlone(ctx, wait context.Context, rq Request, rc publish.RunConfig, asked agui.Input) (*publish.Run, error) {
	active, err := b.threads.Active(ctx, asked.ThreadID)
	if err != nil {
		return nil, fmt.Errorf("active runs: %w", err)
	}
	if slices.Contains(active, asked.RunID) {
		return nil, publish.ErrExists
	}
	for _, run := range active {
		if !rq.Supersede {
			return nil, &BusyError{Run: run}
		}
		if err := b.supersede(ctx, wait, run); err != nil {
			return nil, err
		}
	}
	if len(asked.Resume) > 0 {
		pending, err := b.threads.Pending(ctx, asked.ThreadID, asked.ParentRunID)
		if err != nil {
			return nil, fmt.Errorf("open interrupts: %w", err)
		}
		missing := slices.DeleteFunc(pending, func(id string) bool { return slices.Contains(asked.Resume, id) })
		if len(missing) > 0 {
			return nil, &InterruptError{Missing: missing}
		}
	}
	return b.opener.Open(ctx, rc)
}

// supersede cancels a run that somebody else publishes.
func (b *Bridge) supersede(ctx, wait context.Context, run string) error {
	if err := b.threads.Cancel(ctx, run, "superseded"); err != nil {
		return fmt.Errorf("cancel run: %w", err)
	}
	err := b.threads.Wait(wait, run)
	switch {
	case err == nil:
		return nil
	case wait.Err() != nil && ctx.Err() == nil:
		return &BusyError{Run: run}
	default:
		return fmt.Errorf("wait for the end of a run: %w", err)
	}
}

// holdThread keeps the thread claimed until the run has an entry.
func (b *Bridge) holdThread(ctx context.Context, r *Run) {
	ticker := time.NewTicker(b.cfg.KeepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-r.begun:
			return
		case <-ticker.C:
		}
		if held, err := b.shared.Keep(ctx, r.thread, r.holder); err != nil || held {
			continue
		}
		// Redis was away for long, or its clock was set. Unless another one came meanwhile it is claimed again.
		if other, err := b.shared.Claim(ctx, r.thread, r.holder, Holder{}); err == nil && other != (Holder{}) {
			r.cancel(errSuperseded)
			return
		}
	}
}
