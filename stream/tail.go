package stream

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Batch is what a [Sink] gets: entries in order, or an error that concerns this run alone.
type Batch struct {
	Entries []Entry // never empty where Err is nil; the slice belongs to the sink, the bytes are shared
	// Err is set when the run can't be read while others can: [ErrWrongType], [ErrDenied]. It is told once;
	// the run is tried again every second or so, and goes on from where it stood when that works. [ErrLost] is
	// final: what is there now doesn't go on from the follower's position, and nothing more comes.
	Err error
}

// Sink takes the entries of one followed run. It is called by one goroutine at a time, in stream order, each
// entry once. It should return at once: while it runs, its own run makes no progress, and other runs wait for
// it for [TailConfig.Grace] at most.
type Sink func(Batch)

// TailConfig is how a tail reads. Nothing may change while running.
type TailConfig struct {
	// Block is for how long one read waits for entries, and with it the longest time that a change of the
	// followed runs may go unnoticed should the interrupt fail. 0 means 2 s, and less than 1 s means 1 s.
	Block time.Duration
	// KeysPerConn bounds the keys of one blocked read. 0 means 100: beyond that a wake costs Redis more than
	// 0.3 ms (this project's measurement of XREAD over 1 to 5,000 keys).
	KeysPerConn int
	// Grace is for how long a slow sink may hold up the runs that share its connection, per batch. After that
	// its run is left out until the sink returns. 0 means 20 ms.
	Grace time.Duration
	// Verify is how long at most a quiet run goes between two looks whether the entry at its position is still there
	// and the same; Block comes on top of it. 0 means 3 s. That costs 2 µs a run on either side (this project's
	// measurement), and is also done for all runs after each error and each change of role.
	Verify time.Duration
	// Look is the same for runs that are read by wake-ups, where it is looked whether a run is there and has something new: it
	// is how late an entry may be whose wake-up got lost, and how late a deletion is noticed. The entry at the position is looked
	// at after seven times as long. 0 means 4 s.
	Look time.Duration
	// Poll reads by a sweep over all keys every 100 ms instead of blocking. On a cluster, where one read can't
	// span slots, it is always so.
	Poll bool
	// By is how the tail learns of new entries. Empty means [TailAuto].
	By TailBy
	// WakeAbove is how many followed streams are read without wake-ups, where By is [TailAuto]. 0 means KeysPerConn: as many as
	// one blocked read takes; on a cluster always none.
	WakeAbove int
}

// TailBy is how a tail learns of new entries.
type TailBy string

// The ways.
const (
	// TailAuto is blocked reads while few streams are followed, and wake-ups, where the server gives them, beyond that.
	TailAuto TailBy = "auto"
	// TailXRead is blocked reads only, on a cluster sweeps only.
	TailXRead TailBy = "xread"
	// TailWake is wake-ups wherever the server gives them.
	TailWake TailBy = "wake"
)

func (c TailConfig) withDefaults() TailConfig {
	if c.Block == 0 {
		c.Block = 2 * time.Second
	}
	c.Block = max(c.Block, time.Second)
	if c.KeysPerConn <= 0 {
		c.KeysPerConn = 100
	}
	if c.Verify <= 0 {
		c.Verify = 3 * time.Second
	}
	if c.Look <= 0 {
		c.Look = 4 * time.Second
	}
	if c.Grace <= 0 {
		c.Grace = 20 * time.Millisecond
	}
	if c.WakeAbove <= 0 {
		c.WakeAbove = c.KeysPerConn
	}
	if c.By == TailWake {
		c.WakeAbove = 0
	}
	return c
}

// Backoff of a failing read, and how soon a key that can't be read is tried again.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
	badKeyWait = time.Second
)

// ErrTailStarted is returned by a second call of [Tail.Run].
var ErrTailStarted = errors.New("stream: tail already started")

// Tail follows many runs with few connections. Memory is bounded by one reply a connection (whose COUNT
// shrinks when entries are large) and one batch for each sink that is slow.
//
// While Redis is away followers keep their positions and reads are tried again with a jittered backoff;
// nothing is lost as long as Redis has it. Where it hasn't — a failover or a restart lost the newest entries, the key
// was deleted, trimmed up to the reader or recreated, be it with lower IDs — the follower is told [ErrLost] before
// any later entry: the position is verified with each batch, after each error, and every [TailConfig.Verify] or as [TailConfig.Look] says.
//
// All methods may be called by any number of goroutines at once.
type Tail struct {
	// static after newTail
	src     source
	keys    Keys
	cfg     TailConfig
	drivers []*driver     // of wake-ups, the best first
	kick    chan struct{} // holds one token while Run has shards to start or to interrupt
	rethink chan struct{} // holds one token while there may be another way to learn of entries

	// guarded by mu
	mu           sync.Mutex
	started      bool
	ended        bool
	byKey        map[string]*followed
	shards       []*shard
	lastShard    uint64
	interruptErr error   // of the last interrupt
	want         bool    // there are so many keys that wake-ups are worth listening for
	by           *driver // that tells of wake-ups now; nil if none does
	doubted      bool    // it is to be chosen anew
	figures      WakeFigures
}

// source is where a tail reads from: the seam behind which other ways to learn of new entries may stand.
type source interface {
	wokenSource
	// read returns what some of the keys have behind their positions, as soon as there is any, and nothing
	// after block or an interrupt of this shard; an interrupt since the last read of the shard counts. An
	// error means that nothing was read at all.
	read(ctx context.Context, shard uint64, keys []position, count int, block time.Duration) ([]reply, error)
	// interrupt ends the current or else the next read of each of the shards.
	interrupt(ctx context.Context, shards []uint64) error
	// forget drops what is kept for a shard that won't be read again.
	forget(shard uint64)
	// anchors returns what stands at the positions, none of which is zero, in their order. It fails where the server
	// isn't the one that takes writes.
	anchors(ctx context.Context, shard uint64, at []position) ([]anchor, error)
	// close ends all reads, now and later.
	close() error
}

// position is a key and the last ID that is known of it.
type position struct {
	key   string
	after ID
	fresh bool // not read before under this position, or in error: look at it singly

	sum    uint32 // of the entry at after, where summed
	summed bool

	ahead []position // where others of the key's followers stand, behind after
}

// reply is what a read found for one of its keys.
type reply struct {
	key      int // index into the keys that were asked for
	messages []message
	err      error
	lost     []ID // of the key's positions, those whose entry is gone
}

// message is an entry as any stream has it.
type message struct {
	id     ID
	fields map[string]any // string values
}

func (m message) size() int {
	n := 0
	for k, v := range m.fields {
		s, _ := v.(string)
		n += len(k) + len(s)
	}
	return n
}

// followed is a key with its followers, guarded by Tail.mu.
type followed struct {
	key       string
	shard     *shard
	at        int // index into the shard's keys
	followers []*follower
	fresh     bool
	bad       error     // why the key can't be read; nil if it can
	badUntil  time.Time // when to try again
	wakes     wakes
}

// follower is one call of Follow.
type follower struct {
	// static
	sink    func([]message, error)
	rewinds bool          // begins anew where its position is lost, once it was told
	gate    chan struct{} // a lock, held while the sink runs; as a channel, because testing/synctest sees waits for it
	of      *followed

	stopped bool // guarded by gate

	// guarded by Tail.mu
	pos  ID    // the last ID handed over
	busy bool  // a batch is on its way to the sink
	told error // the error last told
	lost bool  // it was told ErrLost

	sum    uint32 // of the entry at pos, where summed
	summed bool
}

func newTail(src source, keys Keys, cfg TailConfig, drivers ...*driver) *Tail {
	return &Tail{
		src:     src,
		keys:    keys,
		cfg:     cfg.withDefaults(),
		drivers: drivers,
		kick:    make(chan struct{}, 1),
		rethink: make(chan struct{}, 1),
		byKey:   make(map[string]*followed),
	}
}

// followKey follows any stream by its key.
func (t *Tail) followKey(key string, after ID, rewinds bool, sink func([]message, error)) (stop func()) {
	f := &follower{sink: sink, rewinds: rewinds, gate: make(chan struct{}, 1), pos: after}
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return func() {}
	}
	fk := t.byKey[key]
	if fk == nil {
		fk = t.newFollowed(key)
	}
	f.of = fk
	fk.followers = append(fk.followers, f)
	fk.fresh = true
	t.wakeKey(fk)
	t.markStale(fk.shard)
	t.mu.Unlock()
	return func() {
		t.remove(fk, f)
		f.gate <- struct{}{}
		f.stopped = true
		<-f.gate
	}
}

// newFollowed takes up a key. Caller holds mu.
func (t *Tail) newFollowed(key string) *followed {
	fk := &followed{key: key, fresh: true}
	fk.wakes.able = strings.HasPrefix(key, t.keys.Run(""))
	t.byKey[key] = fk
	t.roomyShard(fk.wakes.able && t.by != nil && t.by.covers).add(fk)
	t.hearOf(fk, true)
	t.reconsider()
	return fk
}

// remove takes a follower out; a key without followers is no longer read from the next read on.
func (t *Tail) remove(fk *followed, f *follower) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fk.followers = slices.DeleteFunc(fk.followers, func(other *follower) bool { return other == f })
	if len(fk.followers) > 0 || t.byKey[fk.key] != fk {
		return
	}
	delete(t.byKey, fk.key)
	fk.shard.drop(fk)
	if len(fk.shard.keys) == 0 && fk.shard.byWake {
		t.markStale(fk.shard) // it ends
	}
	t.hearOf(fk, false)
	t.reconsider()
}

// Run reads until ctx ends and then returns ctx's error. All goroutines have ended by then and no sink is
// called any more, which takes as long as the slowest sink. A tail runs once: a second call returns
// [ErrTailStarted].
func (t *Tail) Run(ctx context.Context) error {
	t.mu.Lock()
	if t.started {
		t.mu.Unlock()
		return ErrTailStarted
	}
	t.started = true
	t.mu.Unlock()

	var readers sync.WaitGroup
	readers.Go(func() { t.listen(ctx) })
	for {
		start, interrupt := t.pending()
		for _, s := range start {
			if s.byWake {
				readers.Go(func() { t.runWoken(ctx, s) })
			} else {
				readers.Go(func() { t.runShard(ctx, s) })
			}
		}
		if len(interrupt) > 0 {
			t.interrupt(ctx, interrupt)
		}
		select {
		case <-t.kick:
			continue
		case <-ctx.Done():
		}
		break
	}
	// A blocked read doesn't see the context: closing its connection ends it.
	closeErr := t.src.close()
	readers.Wait()
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	return errors.Join(ctx.Err(), closeErr)
}

// interrupt wakes the shards. Should it fail they notice their new keys after [TailConfig.Block].
func (t *Tail) interrupt(ctx context.Context, shards []uint64) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := t.src.interrupt(ctx, shards)
	t.mu.Lock()
	t.interruptErr = err
	t.mu.Unlock()
}

// Limits of one read of a shard.
const (
	maxReadCount = 256     // entries of a key
	maxReadBytes = 8 << 20 // a reply above this halves the count
)

// runShard reads the shard until it has no keys or ctx ends.
func (t *Tail) runShard(ctx context.Context, s *shard) {
	var deliveries sync.WaitGroup
	defer deliveries.Wait()
	defer t.src.forget(s.id)
	var keys []position
	var live []*followed
	count := maxReadCount
	var wait backoff
	for {
		var ok bool
		if keys, live, ok = t.beginRead(s, keys[:0], live[:0]); !ok {
			return
		}
		replies, err := t.src.read(ctx, s.id, keys, count, t.cfg.Block)
		if err == nil {
			replies, err = t.verify(ctx, s, keys, live, replies)
		}
		t.endRead(s, err)
		if !wait.after(ctx, err) {
			return
		}
		if err != nil {
			continue
		}
		count = adaptCount(count, replies)
		t.deliver(ctx, s, t.assign(keys, live, replies), &deliveries)
	}
}

// backoff is how long a shard waits after a read that failed; zero is after none.
type backoff time.Duration

// after waits where err is one, and longer the more of them there were in a row. It reports whether ctx is still alive.
func (b *backoff) after(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		*b = 0
		return ctx.Err() == nil
	}
	wait := max(time.Duration(*b), minBackoff)
	*b = backoff(min(2*wait, maxBackoff))
	return sleep(ctx, jittered(wait))
}

// jittered is d, up to a half less.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }

// adaptCount keeps replies within maxReadBytes or so.
func adaptCount(count int, replies []reply) int {
	n := 0
	for _, r := range replies {
		for _, m := range r.messages {
			n += m.size()
		}
	}
	switch {
	case n > maxReadBytes:
		return max(count/2, 1)
	case n < maxReadBytes/4:
		return min(count*2, maxReadCount)
	default:
		return count
	}
}

// beginRead lists what the shard is to read now. It reports false when the shard has ended: it has no keys and
// is taken out.
func (t *Tail) beginRead(s *shard, keys []position, live []*followed) ([]position, []*followed, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(s.keys) == 0 {
		t.endShard(s)
		return nil, nil, false
	}
	now := time.Now()
	for _, fk := range s.keys {
		if fk.bad != nil && now.Before(fk.badUntil) {
			continue
		}
		f := fk.readFrom()
		if f == nil {
			continue
		}
		keys = append(keys, fk.position(f))
		live = append(live, fk)
		fk.fresh, fk.bad = false, nil
	}
	s.reading, s.stale, s.woken = true, false, false
	return keys, live, true
}

// readFrom returns the follower with the lowest position of those that can take a batch, nil if there is none.
func (fk *followed) readFrom() *follower {
	var first *follower
	for _, f := range fk.followers {
		if !f.busy && !f.lost && (first == nil || f.pos.Less(first.pos)) {
			first = f
		}
	}
	return first
}

// position is where the key is read from for f, and where those stand that have more.
func (fk *followed) position(f *follower) position {
	at := f.position()
	at.fresh, at.ahead = fk.fresh || fk.bad != nil, fk.ahead(f.pos)
	return at
}

// ahead returns where the followers stand that can take a batch and have more than pos.
func (fk *followed) ahead(pos ID) (at []position) {
	for _, f := range fk.followers {
		there := func(p position) bool { return p.after == f.pos }
		if !f.busy && !f.lost && pos.Less(f.pos) && !slices.ContainsFunc(at, there) {
			at = append(at, f.position())
		}
	}
	return at
}

// position is where the follower stands.
func (f *follower) position() position {
	return position{key: f.of.key, after: f.pos, sum: f.sum, summed: f.summed}
}

// endRead notes how a read went.
func (t *Tail) endRead(s *shard, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.reading = false
	if s.err = err; err == nil {
		s.lastRead = time.Now()
		return
	}
	for _, fk := range s.keys {
		fk.fresh = true
	}
}

// sleep waits for d and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Health is how a tail does.
type Health struct {
	Keys   int // followed streams
	Shards int // connections that read, one each
	// Err is the error of the latest failed read among the shards that now fail; nil if none does.
	Err error
	// OldestRead is when the shard that is furthest behind last read without error (or began). A healthy
	// shard does so at least once in TailConfig.Block. Zero while nothing is followed.
	OldestRead time.Time
	// InterruptErr is why the last interrupt failed, nil if it didn't. While it does newly followed runs wait
	// for up to TailConfig.Block. The user may lack the right to the keys {<prefix>:tail:*.
	InterruptErr error
	Wakes        WakeFigures
}

// Health returns how the tail does now.
func (t *Tail) Health() Health {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := Health{Keys: len(t.byKey), Shards: len(t.shards), InterruptErr: t.interruptErr, Wakes: t.figures}
	if t.by != nil {
		h.Wakes.By = t.by.name
	}
	for _, s := range t.shards {
		if s.byWake {
			h.Wakes.Keys += len(s.keys)
		}
		if s.err != nil {
			h.Err = s.err
		}
		if h.OldestRead.IsZero() || s.lastRead.Before(h.OldestRead) {
			h.OldestRead = s.lastRead
		}
	}
	return h
}

// Healthy reports whether no connection's last read failed; true while nothing is followed.
func (t *Tail) Healthy() bool { return t.Health().Err == nil }

// LastError returns why the tail isn't healthy, nil if it is.
func (t *Tail) LastError() error { return t.Health().Err }
