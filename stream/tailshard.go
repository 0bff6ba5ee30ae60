package stream

import (
	"slices"
	"time"
)

// shard is the keys that one connection reads. All fields but the first ones are guarded by Tail.mu.
type shard struct {
	// static
	id     uint64
	byWake bool          // read when wake-ups come, not by blocked reads
	signal chan struct{} // where byWake: holds one token while there is something to read

	keys     []*followed
	pending  []*followed // where byWake: what is to be read
	steps    []uint8     // of each key, how many steps ago it was read or looked at: see beginLook
	started  bool        // has its goroutine
	reading  bool        // a read is under way, with the key set as of its start
	stale    bool        // the key set changed since, and the read is to be interrupted
	woken    bool        // the interrupt is under way
	err      error       // of the last read
	lastRead time.Time

	// owned by the shard's goroutine
	verified time.Time     // when all positions were last verified
	verifyIn time.Duration // and how long after that they are again
}

// roomyShard returns the first shard of a kind that takes another key, a new one if none does. Caller holds mu.
func (t *Tail) roomyShard(byWake bool) *shard {
	room := t.cfg.KeysPerConn
	if byWake {
		room = keysPerWoken
	}
	for _, s := range t.shards {
		if s.byWake == byWake && len(s.keys) < room {
			return s
		}
	}
	t.lastShard++
	s := &shard{id: t.lastShard, lastRead: time.Now(), byWake: byWake, signal: make(chan struct{}, 1)}
	t.shards = append(t.shards, s)
	return s
}

// add puts a key into the shard. Caller holds mu.
func (s *shard) add(fk *followed) {
	fk.shard, fk.at = s, len(s.keys)
	s.keys, s.steps = append(s.keys, fk), append(s.steps, 0)
}

// drop takes a key out, and the last one takes its place. Caller holds mu.
func (s *shard) drop(fk *followed) {
	last := len(s.keys) - 1
	moved := s.keys[last]
	s.keys[fk.at], s.steps[fk.at], moved.at = moved, s.steps[last], fk.at
	s.keys[last] = nil
	s.keys, s.steps = s.keys[:last], s.steps[:last]
}

// markStale has the shard's goroutine started, or its read interrupted if one is under way: otherwise it
// takes up the key set by itself, and however many changes there are until it does cost one interrupt. Caller holds mu.
func (t *Tail) markStale(s *shard) {
	if s.started && s.byWake {
		select {
		case s.signal <- struct{}{}:
		default: // a token is there already
		}
		return
	}
	if s.started && (!s.reading || s.stale) {
		return
	}
	s.stale = s.started
	select {
	case t.kick <- struct{}{}:
	default: // a token is there already
	}
}

// endShard takes out a shard without keys. Caller holds mu.
func (t *Tail) endShard(s *shard) {
	t.shards = slices.DeleteFunc(t.shards, func(other *shard) bool { return other == s })
}

// pending returns the shards that have no goroutine yet and those whose read is to be interrupted.
func (t *Tail) pending() (start []*shard, interrupt []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.shards {
		switch {
		case !s.started:
			s.started = true
			start = append(start, s)
		case s.stale && s.reading && !s.woken:
			s.woken = true
			interrupt = append(interrupt, s.id)
		}
	}
	return start, interrupt
}
