package publish

import (
	"context"
	"errors"
	"fmt"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/stream"
)

// claim claims the run for this Run, unless that was done. events is how many go unwritten where it can't be; with none
// the run's input is kept beside the run, since its first entry may be long in coming.
func (r *Run) claim(ctx context.Context, events int) error {
	r.mu.Lock()
	done, err := r.claimed, r.usable()
	r.mu.Unlock()
	if done || err != nil {
		return err
	}
	select {
	case r.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.writing }()
	r.mu.Lock()
	done, err = r.claimed, r.usable()
	asked := stream.Claim{Producer: r.pub.cfg.Producer, TTL: r.pub.cfg.LeaseTTL}
	if events == 0 {
		asked.Input, asked.Fresh = r.input, r.fresh
	}
	r.mu.Unlock()
	if done || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.pub.cfg.WriteTimeout)
	defer cancel()
	got, err := r.pub.log.Claim(ctx, r.info.Run, asked)
	if err == nil {
		err = r.catchUp(ctx, got.Head)
	}
	if err != nil {
		return r.breakOff(events, 0, fmt.Errorf("claim: %w", err))
	}
	r.hold(ctx, got.Fence)
	return nil
}

// claimEarly claims the run before its first event, and then says so in the registry, so that a reaper knows of it. The
// agent needn't wait for the latter; where it can't be said the run is broken, as after a write that failed.
func (r *Run) claimEarly(ctx context.Context, thread stream.ThreadID) error {
	if err := r.claim(ctx, 0); err != nil {
		return err
	}
	info := stream.RunInfo{Run: r.info.Run, Thread: thread, Parent: r.info.Parent, State: stream.RunClaimed}
	r.early = make(chan struct{})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.pub.cfg.WriteTimeout)
	r.timers.Go(func() {
		defer cancel()
		defer close(r.early)
		if err := r.pub.registry.Announce(ctx, info); err != nil {
			_ = r.breakOff(0, 0, fmt.Errorf("announce claim: %w", err)) // whoever comes next hears of it
		}
	})
	return nil
}

// catchUp judges what others have written since the run was read: from here on they are fenced off. The caller has the
// token.
func (r *Run) catchUp(ctx context.Context, head stream.ID) error {
	r.mu.Lock()
	seen := r.seen
	r.mu.Unlock()
	if head == seen {
		return nil
	}
	same, err := r.replay(ctx, r.pub.log, r.pub.cfg.MaxEvent, func(work func()) {
		r.mu.Lock()
		defer r.mu.Unlock()
		work()
	})
	if err == nil && !same {
		return errors.New("publish: the run began anew while it was opened")
	}
	return err
}

// hold has the keeper look after the run.
func (r *Run) hold(ctx context.Context, f stream.Fence) {
	r.mu.Lock()
	r.fence, r.claimed = f, true
	r.mu.Unlock()
	r.pub.keeper.add(ctx, r, f)
}

// unhold has the keeper forget the run once there is nothing to look after any more.
func (r *Run) unhold() {
	r.mu.Lock()
	over := r.broken != nil || r.end != ""
	r.mu.Unlock()
	if over {
		r.pub.keeper.remove(r)
	}
}

// claimToEnd claims the run where Close is to end it.
func (r *Run) claimToEnd(ctx context.Context) error {
	r.mu.Lock()
	ended := r.adm.Ended()
	r.mu.Unlock()
	if ended {
		return nil
	}
	return r.claim(ctx, 1)
}

// takeUp claims the run by a sequence. Only Open calls it.
func (r *Run) takeUp(ctx context.Context, s Sequence) error {
	ended := r.adm.Ended()
	got, err := r.pub.log.Claim(ctx, r.info.Run, stream.Claim{
		Producer: s.Producer, Epoch: s.Epoch, Peek: ended, TTL: r.pub.cfg.LeaseTTL,
	})
	switch {
	case errors.Is(err, stream.ErrRunEnded):
		return ErrEnded
	case err != nil:
		return err
	case ended && s.Seq >= got.Next:
		return ErrEnded
	case s.Seq > got.Next:
		return fmt.Errorf("claim: %w", &stream.GapError{Next: got.Next})
	}
	if err := r.catchUp(ctx, got.Head); err != nil {
		return err
	}
	r.skip, r.next, r.logNext = int(got.Next-s.Seq), got.Next, got.Next
	if r.skip > 0 {
		r.lastID = got.Last
	}
	if ended {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fence, r.claimed = got.Fence, true
		return nil
	}
	r.hold(ctx, got.Fence)
	return nil
}

// settleSequence tells the log of numbers that were left out behind the last event.
func (r *Run) settleSequence(ctx context.Context) error {
	select {
	case r.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.writing }()
	r.mu.Lock()
	next, broken, claimed := r.next, r.broken, r.claimed
	r.mu.Unlock()
	if !claimed || broken != nil || next <= r.logNext {
		return broken
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.pub.cfg.WriteTimeout)
	defer cancel()
	_, _, err := r.append(ctx, stream.FencedAppend{
		Fence: r.fence, Seq: next, Floor: r.logNext, Late: true, TTL: r.pub.cfg.LeaseTTL,
	}, nil)
	if err != nil {
		return r.breakOff(0, 0, err)
	}
	r.logNext = next
	return nil
}

// keepPast gives what is known of the run to the next who opens it.
func (r *Run) keepPast() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil || r.dirty || len(r.pending) > 0 || r.kept {
		return
	}
	r.kept = true
	kept := r.past
	// The admission isn't this Run's any more: what is asked of it now is whether it has started and ended.
	r.adm = &agui.Admission{}
	if kept.adm.Started() {
		r.adm = newProbe()
	}
	if kept.adm.Ended() {
		r.adm.Refuse(agui.ErrNotJSON, []byte(`{"type":"RUN_ERROR"}`))
	}
	r.pub.pasts.put(kept)
}

// renewOnce has the lease hold for its whole time from now on, where it was renewed a while ago.
func (r *Run) renewOnce(ctx context.Context) {
	r.mu.Lock()
	over := !r.claimed || r.broken != nil || r.adm.Ended()
	r.mu.Unlock()
	ttl := r.pub.cfg.LeaseTTL
	if over || !r.pub.keeper.due(r, ttl/10) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.pub.cfg.WriteTimeout)
	defer cancel()
	hold := stream.Hold{Run: r.info.Run, Fence: r.fence, Renew: true, TTL: ttl}
	_, _ = r.pub.log.Keep(ctx, []stream.Hold{hold}) // else it lapses a little sooner
}
