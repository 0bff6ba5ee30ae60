package stream

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Memory is a log in memory with the methods of [Redis], for tests: it starts no goroutine, its tail is woken
// at once, and under testing/synctest it takes the bubble's time. It forgets nothing by itself.
// All methods may be called by any number of goroutines at once.
type Memory struct {
	// static after NewMemory
	cfg  Config
	keys Keys

	// guarded by mu
	mu          sync.Mutex
	fault       error
	streams     map[string]*memoryStream
	zsets       map[string]map[string]float64
	fences      map[RunID]*memoryFence
	checkpoints map[RunID]Checkpoint
	trims       map[RunID]*memoryTrim
	left        map[ThreadID]Left
	claims      map[ThreadID]memoryClaim
	erased      map[RunID]bool
	changed     chan struct{} // closed and replaced whenever there is something new to see
}

// memoryStream is one stream; wrong makes it a key of another type.
type memoryStream struct {
	messages []message
	last     ID
	added    int64
	wrong    bool
}

// NewMemory returns an empty log. It fails if cfg is invalid.
func NewMemory(cfg Config) (*Memory, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Memory{
		cfg:     cfg,
		keys:    Keys{prefix: cfg.KeyPrefix},
		streams: make(map[string]*memoryStream),
		zsets:   make(map[string]map[string]float64),
		fences:  make(map[RunID]*memoryFence),
		claims:  make(map[ThreadID]memoryClaim),
		changed: make(chan struct{}),
	}, nil
}

// Keys returns the names of the log's keys.
func (m *Memory) Keys() Keys { return m.keys }

// Ping returns the error set by SetFault.
func (m *Memory) Ping(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fault
}

// Close does nothing.
func (m *Memory) Close() error { return nil }

// SetFault makes every method and the tails fail with err until it is set to nil, as if Redis were away.
func (m *Memory) SetFault(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = err
	m.announce()
}

// SetWrongType makes the run's key one of another type, as a plain SET would.
func (m *Memory) SetWrongType(run RunID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.streams[m.keys.Run(run)] = &memoryStream{wrong: true}
	m.announce()
}

// announce wakes all blocked reads. Caller holds mu.
func (m *Memory) announce() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// Append appends as [Redis.Append] does. All records get their IDs from one reading of the clock.
func (m *Memory) Append(ctx context.Context, run RunID, recs ...Record) ([]ID, error) {
	if err := ctx.Err(); err != nil {
		return nil, &AppendError{Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := make([]ID, 0, len(recs))
	for _, rec := range recs {
		fields := map[string]any{"event": string(rec.Event)}
		if rec.Input != nil {
			fields["input"] = string(rec.Input)
		}
		id, err := m.add(m.keys.Run(run), fields)
		if err != nil {
			return ids, &AppendError{Appended: len(ids), IDs: ids, Err: err}
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// AppendFields appends one entry with these fields to any stream, a run's or the registry's, as an agent that
// does what it likes. The key is one of Keys.
func (m *Memory) AppendFields(key string, fields map[string]string) (ID, error) {
	values := make(map[string]any, len(fields))
	for k, v := range fields {
		values[k] = v
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.add(key, values)
}

// add appends to any stream. Caller holds mu.
func (m *Memory) add(key string, fields map[string]any) (ID, error) {
	if m.fault != nil {
		return ID{}, m.fault
	}
	s := m.streams[key]
	if s == nil {
		s = &memoryStream{}
		m.streams[key] = s
	}
	if s.wrong {
		return ID{}, ErrWrongType
	}
	id := ID{Ms: uint64(max(m.cfg.Now().UnixMilli(), 0))}
	if !s.last.Less(id) {
		id = s.last.Next()
	}
	s.last = id
	s.added++
	s.messages = append(s.messages, message{id: id, fields: fields})
	m.announce()
	return id, nil
}

// stream returns a key's messages. Caller holds mu; the slice's elements never change.
func (m *Memory) stream(key string) ([]message, error) {
	s := m.streams[key]
	switch {
	case m.fault != nil:
		return nil, m.fault
	case s == nil:
		return nil, nil
	case s.wrong:
		return nil, ErrWrongType
	default:
		return s.messages, nil
	}
}

// from returns the messages from and including id. They are in order.
func from(ms []message, id ID) []message {
	i, _ := slices.BinarySearchFunc(ms, id, func(m message, id ID) int { return m.id.Compare(id) })
	return ms[i:]
}

// Range reads as [Redis.Range] does.
func (m *Memory) Range(ctx context.Context, run RunID, after ID, maxEntries, maxBytes int) (Page, error) {
	page, err := readPage(after, maxEntries, maxBytes, func(start ID, count int) ([]Entry, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		ms, err := m.stream(m.keys.Run(run))
		if err != nil {
			return nil, err
		}
		ms = from(ms, start)
		return entriesOf(ms[:min(count, len(ms))]), nil
	})
	if err != nil {
		return Page{}, err
	}
	err = settleAnchor(&page, after, func() (Trimmed, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.mark(m.keys.Run(run)), nil
	})
	return page, err
}

// Bounds reads as [Redis.Bounds] does.
func (m *Memory) Bounds(ctx context.Context, runs ...RunID) ([]Bounds, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != nil {
		return nil, m.fault
	}
	bounds := make([]Bounds, len(runs))
	for i, run := range runs {
		b := &bounds[i]
		b.Run = run
		s := m.streams[m.keys.Run(run)]
		switch {
		case s == nil:
		case s.wrong:
			b.Exists, b.WrongType = true, true
		default:
			b.Exists, b.Len, b.Added = true, int64(len(s.messages)), s.added
			if b.Len > 0 {
				b.First, b.Last = entryOf(s.messages[0]), entryOf(s.messages[b.Len-1])
			}
		}
	}
	return bounds, nil
}

// Trim trims as [Redis.Trim] does.
func (m *Memory) Trim(ctx context.Context, run RunID, first ID) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := m.keys.Run(run)
	ms, err := m.stream(key)
	if err != nil || len(ms) == 0 {
		return 0, err
	}
	kept := from(ms, first)
	m.streams[key].messages = kept
	return int64(len(ms) - len(kept)), nil
}

// Delete removes a run's stream, as DEL would: what is appended later begins a new generation.
func (m *Memory) Delete(run RunID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.streams, m.keys.Run(run))
}

// Lose forgets the run's entries behind last, as a failover to a replica that hadn't got them would. What is appended
// later has later IDs than what was lost.
func (m *Memory) Lose(run RunID, last ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.streams[m.keys.Run(run)]; s != nil {
		s.messages = s.messages[:len(s.messages)-len(from(s.messages, last.Next()))]
	}
}

// LoseRegistry forgets what the registry and a thread's index hold, as a failover that takes the announcements and leaves
// the runs would.
func (m *Memory) LoseRegistry(thread ThreadID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.streams, m.keys.Runs())
	delete(m.zsets, m.keys.Thread(thread))
}

// NewTail returns a tail of this log.
func (m *Memory) NewTail(cfg TailConfig) *Tail {
	return newTail(&memorySource{log: m, woken: make(map[uint64]chan struct{}), closed: make(chan struct{})}, m.keys, cfg)
}

// NewRegistry returns the registry of this log. tail may be nil if Follow isn't needed.
func (m *Memory) NewRegistry(tail *Tail) *Registry {
	return &Registry{store: memoryRegistry{m}, tail: tail, keys: m.keys, cfg: m.cfg}
}

// memorySource reads from a Memory.
type memorySource struct {
	log    *Memory
	closed chan struct{}

	// guarded by mu
	mu    sync.Mutex
	woken map[uint64]chan struct{} // by shard; holds one token
	ended bool
}

// wake returns the shard's channel.
func (s *memorySource) wake(shard uint64) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.woken[shard]
	if c == nil {
		c = make(chan struct{}, 1)
		s.woken[shard] = c
	}
	return c
}

func (s *memorySource) read(ctx context.Context, shard uint64, keys []position, count int, block time.Duration) ([]reply, error) {
	timer := time.NewTimer(block)
	defer timer.Stop()
	wake := s.wake(shard)
	for {
		replies, changed, err := s.log.readNow(keys, count)
		if err != nil || len(replies) > 0 {
			return replies, err
		}
		select {
		case <-changed:
		case <-wake:
			return nil, nil
		case <-timer.C:
			return nil, nil
		case <-s.closed:
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// readNow returns what there is behind the positions, and what is closed at the next change.
func (m *Memory) readNow(keys []position, count int) ([]reply, <-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != nil {
		return nil, nil, m.fault
	}
	var replies []reply
	for i, k := range keys {
		ms, err := m.stream(k.key)
		ms = from(ms, k.after.Next())
		if err != nil || len(ms) > 0 {
			replies = append(replies, reply{key: i, messages: ms[:min(count, len(ms))], err: err})
		}
	}
	return replies, m.changed, nil
}

func (s *memorySource) anchors(_ context.Context, _ uint64, at []position) ([]anchor, error) {
	m := s.log
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]anchor, len(at))
	for i, k := range at {
		ms, err := m.stream(k.key)
		switch {
		case m.fault != nil:
			return nil, m.fault
		case err != nil:
			out[i].unread = true // of another type: the next read says so
			continue
		}
		if ms = from(ms, k.after); len(ms) > 0 && ms[0].id == k.after {
			out[i] = anchorOf(ms)
		} else if t := m.mark(k.key); len(ms) > 0 && t.At == k.after && t.precedes(entryOf(ms[0])) {
			out[i] = anchor{held: true, sum: t.Sum}
		}
	}
	return out, nil
}

func (s *memorySource) readAnchored(ctx context.Context, shard uint64, keys []position, count int) ([]reply, []anchor, error) {
	out, err := s.anchors(ctx, shard, keys)
	if err != nil {
		return nil, nil, err
	}
	for i, k := range keys {
		out[i].unread = out[i].unread || k.after.IsZero()
	}
	replies, _, err := s.log.readNow(keys, count)
	return replies, out, err
}

func (s *memorySource) behind(_ context.Context, _ uint64, keys []position) (which []int, err error) {
	replies, _, err := s.log.readNow(keys, 1)
	for _, r := range replies {
		which = append(which, r.key)
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	for i, k := range keys {
		if !k.after.IsZero() && s.log.streams[k.key] == nil {
			which = append(which, i)
		}
	}
	return which, err
}

func (s *memorySource) interrupt(_ context.Context, shards []uint64) error {
	for _, shard := range shards {
		select {
		case s.wake(shard) <- struct{}{}:
		default: // a token is there already
		}
	}
	return nil
}

func (s *memorySource) forget(shard uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.woken, shard)
}

func (s *memorySource) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended = true
		close(s.closed)
	}
	return nil
}

// memoryRegistry is the registry's store in a Memory.
type memoryRegistry struct{ log *Memory }

func (r memoryRegistry) announce(_ context.Context, fields []any, thread string, run RunID, score float64) error {
	m := r.log
	m.mu.Lock()
	defer m.mu.Unlock()
	values := make(map[string]any, len(fields)/2)
	for i := 0; i+1 < len(fields); i += 2 {
		name, _ := fields[i].(string)
		values[name] = fields[i+1]
	}
	if _, err := m.add(m.keys.Runs(), values); err != nil {
		return err
	}
	s := m.streams[m.keys.Runs()]
	if extra := len(s.messages) - int(m.cfg.RegistryMaxLen); extra > 0 {
		s.messages = s.messages[extra:]
	}
	if thread == "" {
		return nil
	}
	if m.zsets[thread] == nil {
		m.zsets[thread] = make(map[string]float64)
	}
	if _, known := m.zsets[thread][string(run)]; !known {
		m.zsets[thread][string(run)] = score
	}
	return nil
}

func (r memoryRegistry) correct(_ context.Context, thread string, run RunID, score float64) error {
	m := r.log
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != nil {
		return m.fault
	}
	if _, known := m.zsets[thread][string(run)]; known {
		m.zsets[thread][string(run)] = score
	}
	return nil
}

func (r memoryRegistry) members(_ context.Context, thread string, limit int, run RunID, score float64) ([]member, error) {
	m := r.log
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != nil {
		return nil, m.fault
	}
	if _, known := m.zsets[thread][string(run)]; known {
		m.zsets[thread][string(run)] = score
	}
	var members []member
	for name, score := range m.zsets[thread] {
		members = append(members, member{name: name, score: score})
	}
	slices.SortFunc(members, func(a, b member) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.name, a.name))
	})
	return members[:min(limit, len(members))], nil
}

func (r memoryRegistry) newest(_ context.Context, before ID, limit int) ([]message, error) {
	m := r.log
	m.mu.Lock()
	defer m.mu.Unlock()
	ms, err := m.stream(m.keys.Runs())
	if err != nil {
		return nil, err
	}
	if !before.IsZero() {
		ms = ms[:len(ms)-len(from(ms, before))]
	}
	ms = slices.Clone(ms[max(len(ms)-limit, 0):])
	slices.Reverse(ms)
	return ms, nil
}
