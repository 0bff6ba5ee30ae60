package stream

import (
	"context"
	"fmt"
	"time"
)

// memoryFence is what stands beside a run's stream in a Memory.
type memoryFence struct {
	known    bool
	fence    Fence
	next     uint64
	last     ID
	length   int
	ended    uint64 // epoch; 0 while the run goes on
	lapsedMs int64
	lease    time.Time // until when it holds
	input    []byte
}

// fenceOf returns the run's state. Caller holds mu.
func (m *Memory) fenceOf(run RunID) (*memoryFence, error) {
	if m.fault != nil {
		return nil, m.fault
	}
	f := m.fences[run]
	if f == nil {
		f = &memoryFence{}
		m.fences[run] = f
	}
	return f, nil
}

func (m *Memory) held(f *memoryFence) bool { return m.cfg.Now().Before(f.lease) }

// renewLease has the lease hold from now on. Caller holds mu.
func (m *Memory) renewLease(f *memoryFence, ttl time.Duration) {
	f.lease, f.lapsedMs = m.cfg.Now().Add(ttl), 0
}

// Claim claims as [Redis.Claim] does.
func (m *Memory) Claim(ctx context.Context, run RunID, c Claim) (Claimed, error) {
	if err := ctx.Err(); err != nil {
		return Claimed{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.fenceOf(run)
	if err != nil {
		return Claimed{}, err
	}
	ms, err := m.stream(m.keys.Run(run))
	if err != nil {
		return Claimed{}, err
	}
	want := Fence{Producer: c.Producer, Epoch: c.Epoch}
	own := f.known && c.Epoch > 0 && f.fence == want
	switch {
	case c.Epoch == 0:
		want.Epoch = f.fence.Epoch + 1
	case !own && f.fence.Epoch >= c.Epoch:
		return Claimed{}, fmt.Errorf("claim: %w", ErrFenced)
	}
	if !own && (c.Peek || f.ended > 0) {
		return Claimed{}, fmt.Errorf("claim: %w", ErrRunEnded)
	}
	if c.Fresh && len(ms) > 0 {
		return Claimed{}, fmt.Errorf("claim: %w", ErrRunExists)
	}
	if !own {
		*f = memoryFence{known: true, fence: want, length: len(ms), input: c.Input}
	}
	if !c.Peek && f.ended == 0 {
		m.renewLease(f, c.TTL)
	}
	got := Claimed{Fence: want, Next: f.next, Last: f.last}
	if len(ms) > 0 {
		got.Head = ms[len(ms)-1].id
	}
	return got, nil
}

// AppendFenced appends as [Redis.AppendFenced] does.
func (m *Memory) AppendFenced(ctx context.Context, run RunID, a FencedAppend, recs ...Record) (Appended, error) {
	fail := func(err error) (Appended, error) { return Appended{}, &AppendError{Err: err} }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.fenceOf(run)
	if err != nil {
		return fail(err)
	}
	ms, err := m.stream(m.keys.Run(run))
	if err != nil {
		return fail(err)
	}
	skip := min(int(max(f.next, a.Seq)-a.Seq), len(recs))
	switch {
	case !f.known || f.fence != a.Fence:
		return fail(fmt.Errorf("append: %w", ErrFenced))
	case a.Floor > f.next:
		return fail(fmt.Errorf("append: %w", &GapError{Next: f.next}))
	case skip < len(recs) && f.ended > 0 && !a.Late:
		return fail(fmt.Errorf("append: %w", ErrRunEnded))
	}
	got := Appended{Already: skip, Last: f.last, Foreign: skip < len(recs) && len(ms) != f.length}
	for _, rec := range recs[skip:] {
		fields := map[string]any{"event": string(rec.Event)}
		if len(rec.Input) > 0 {
			fields["input"] = string(rec.Input)
		}
		if got.Last, err = m.add(m.keys.Run(run), fields); err != nil {
			return got, &AppendError{Appended: len(got.IDs), IDs: got.IDs, Err: err}
		}
		got.IDs = append(got.IDs, got.Last)
	}
	if skip < len(recs) {
		f.input = nil
	}
	if next := a.Seq + uint64(len(recs)); next > f.next {
		f.next, f.last, f.length = next, got.Last, len(ms)+len(got.IDs)
	}
	if a.End {
		f.ended, f.lapsedMs, f.lease = f.fence.Epoch, 0, time.Time{}
	} else if f.ended == 0 {
		m.renewLease(f, a.TTL)
	}
	return got, nil
}

// Keep renews and reads as [Redis.Keep] does.
func (m *Memory) Keep(ctx context.Context, holds []Hold) ([]Kept, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := make([]Kept, len(holds))
	for i, h := range holds {
		f, err := m.fenceOf(h.Run)
		if err != nil {
			return nil, err
		}
		ms, err := m.stream(m.keys.Aux(h.Run, auxControl))
		if err != nil {
			continue // of another type: it concerns this run alone
		}
		for _, s := range from(ms, h.After.Next()) {
			text, _ := s.fields["control"].(string)
			kept[i].Signals = append(kept[i].Signals, Signal{ID: s.id, Control: []byte(text)})
		}
		if !h.Renew {
			continue
		}
		if kept[i].Lost = !f.known || f.fence != h.Fence; !kept[i].Lost && f.ended == 0 {
			m.renewLease(f, h.TTL)
		}
	}
	return kept, nil
}

// RequestCancel signals as [Redis.RequestCancel] does.
func (m *Memory) RequestCancel(ctx context.Context, run RunID, control []byte) (ID, error) {
	if err := ctx.Err(); err != nil {
		return ID{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.fences[run]; m.fault == nil && m.streams[m.keys.Run(run)] == nil && (f == nil || !f.known) {
		return ID{}, fmt.Errorf("cancel: %w", ErrNoRun)
	}
	return m.add(m.keys.Aux(run, auxControl), map[string]any{"control": string(control)})
}

// Signals reads as [Redis.Signals] does.
func (m *Memory) Signals(ctx context.Context, runs ...RunID) ([][]Signal, error) {
	signals := make([][]Signal, len(runs))
	for i, run := range runs {
		kept, err := m.Keep(ctx, []Hold{{Run: run}})
		if err != nil {
			return nil, err
		}
		signals[i] = kept[0].Signals
	}
	return signals, nil
}

// Leases tells as [Redis.Leases] does.
func (m *Memory) Leases(ctx context.Context, runs ...RunID) ([]Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	leases := make([]Lease, len(runs))
	for i, run := range runs {
		f, err := m.fenceOf(run)
		if err != nil {
			return nil, err
		}
		leases[i] = Lease{Held: m.held(f), Known: f.known, Epoch: f.fence.Epoch, Ended: f.ended > 0, LapsedMs: f.lapsedMs}
	}
	return leases, nil
}

// NoteLeases notes as [Redis.NoteLeases] does.
func (m *Memory) NoteLeases(ctx context.Context, runs ...RunID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, run := range runs {
		f, err := m.fenceOf(run)
		switch {
		case err != nil:
			return err
		case m.held(f):
			f.known, f.lapsedMs = true, 0
		case f.known && f.ended == 0 && f.lapsedMs == 0:
			f.lapsedMs = m.cfg.Now().UnixMilli()
		}
	}
	return nil
}

// ShortenLeases shortens as [Redis.ShortenLeases] does.
func (m *Memory) ShortenLeases(_ context.Context, most time.Duration, runs ...RunID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, run := range runs {
		f, err := m.fenceOf(run)
		if err != nil {
			return err
		}
		if until := m.cfg.Now().Add(most); f.known && f.fence.Epoch > 0 && f.lease.After(until) {
			f.lease = until
		}
	}
	return nil
}

// SetLease sets the lease of a plain agent, as SET … EX would.
func (m *Memory) SetLease(run RunID, ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f, err := m.fenceOf(run); err == nil {
		f.lease = m.cfg.Now().Add(ttl)
	}
}

// Reap ends a run as [Redis.Reap] does.
func (m *Memory) Reap(ctx context.Context, run RunID, r Reap, events ...[]byte) ([]ID, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.fenceOf(run)
	if err != nil {
		return nil, err
	}
	ms, err := m.stream(m.keys.Run(run))
	var head ID
	if len(ms) > 0 {
		head = ms[len(ms)-1].id
	}
	if err != nil || head != r.Head || m.held(f) || f.ended > 0 || f.fence.Epoch != r.Epoch {
		return nil, err
	}
	now := m.cfg.Now().UnixMilli()
	if r.Idle > 0 {
		if now-int64(r.Head.Ms) < r.Idle.Milliseconds() {
			return nil, nil
		}
	} else if f.lapsedMs == 0 || now >= f.lapsedMs && now-f.lapsedMs < r.Grace.Milliseconds() {
		return nil, nil
	}
	var ids []ID
	for i, e := range events {
		fields := map[string]any{"event": string(e)}
		if i == 0 && head.IsZero() && len(f.input) > 0 {
			fields["input"] = string(f.input)
		}
		id, err := m.add(m.keys.Run(run), fields)
		if err != nil {
			return ids, err
		}
		ids = append(ids, id)
	}
	fence := Fence{Producer: r.By, Epoch: r.Epoch + 1}
	*f = memoryFence{known: true, fence: fence, next: uint64(len(ids)), last: ids[len(ids)-1], length: len(ms) + len(ids), ended: fence.Epoch}
	return ids, nil
}

// Settle notes as [Redis.Settle] does.
func (m *Memory) Settle(ctx context.Context, run RunID, epoch uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.fenceOf(run)
	if err == nil && f.known && f.ended == 0 && f.fence.Epoch == epoch {
		f.ended, f.lapsedMs, f.lease = max(epoch, 1), 0, time.Time{}
	}
	return err
}
