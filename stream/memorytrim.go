package stream

import "context"

// memoryTrim is where a Memory trimmed a run, and where it will.
type memoryTrim struct {
	next    Checkpoint // zero where there is none
	trimmed Trimmed
}

// place is the checkpoint that the next trim goes to once it has keep entries behind it. Caller holds mu.
func (m *Memory) place(run RunID, before, now Checkpoint, keep int) ID {
	if m.trims == nil {
		m.trims = map[RunID]*memoryTrim{}
	}
	t := m.trims[run]
	if t == nil {
		t = &memoryTrim{}
		m.trims[run] = t
	}
	if t.next.At.IsZero() || !t.next.At.Less(now.At) {
		t.next = before
	}
	if !t.next.At.IsZero() && now.Entries-t.next.Entries >= keep {
		return t.next.At
	}
	return ID{}
}

// TrimTo trims as [Redis.TrimTo] does.
func (m *Memory) TrimTo(_ context.Context, run RunID, at ID) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := m.keys.Run(run)
	ms, err := m.stream(key)
	t := m.trims[run]
	if err != nil || t == nil || t.next.At != at {
		return 0, err
	}
	behind := from(ms, at)
	c, ok := m.checkpoints[run]
	if !t.next.followed(behind[:min(len(behind), 2)]) {
		t.next = Checkpoint{}
		return 0, nil
	}
	if newest := from(ms, c.At); !ok || !at.Less(c.At) || len(newest) == 0 || newest[0].id != c.At {
		return 0, nil
	}
	t.trimmed = Trimmed{Checkpoint: t.next, Next: behind[1].id, NextSum: behind[1].sum()}
	t.next = Checkpoint{}
	m.streams[key].messages = behind[1:]
	gone := len(ms) - len(behind) + 1
	if f := m.fences[run]; f != nil && f.length == len(ms) {
		f.length -= gone
	}
	return int64(gone), nil
}

// Trimmed reads as [Redis.Trimmed] does.
func (m *Memory) Trimmed(_ context.Context, run RunID) (t Trimmed, ok, unknown bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if trims := m.trims[run]; trims != nil {
		t = trims.trimmed
	}
	return t, !t.At.IsZero(), false, m.fault
}

// mark is what stands for the trimmed entries of the run whose stream this is. Caller holds mu.
func (m *Memory) mark(key string) (t Trimmed) {
	for run, trims := range m.trims {
		if m.keys.Run(run) == key {
			return trims.trimmed
		}
	}
	return t
}

// Outline reads as [Redis.Outline] does.
func (m *Memory) Outline(_ context.Context, run RunID) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.checkpoints[run]
	if t := m.trims[run]; !ok && t != nil {
		c = t.trimmed.Checkpoint
	}
	return c.Meta, m.fault
}

// SetTrimmed replaces what stands for a run's trimmed entries, as somebody who may write to Redis can.
func (m *Memory) SetTrimmed(run RunID, c Checkpoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trims[run].trimmed.Checkpoint = c
}

// SetLeft replaces what a thread's newest finished run has left, as somebody who may write to Redis can.
func (m *Memory) SetLeft(thread ThreadID, left Left) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left[thread] = left
}
