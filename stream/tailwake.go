package stream

import (
	"context"
	"sync"
	"time"
)

// waker is a way to be told that a stream has something new. Wake-ups may come twice, for nothing, for streams that nobody
// follows, and get lost: a tail takes them as a reason to look, and looks now and then without.
type waker interface {
	// probe finds out whether there are such wake-ups, by trying.
	probe(ctx context.Context) error
	// listen subscribes, and then tells of wake-ups until ctx ends or the subscription is lost. It returns why.
	listen(ctx context.Context, to ears) error
	// hear has a key's wake-ups told from some moment on, or no longer. It has an effect while listen runs, and doesn't
	// block. A waker that tells of all keys anyway does nothing.
	hear(key string, on bool)
}

// ears is who is told of wake-ups. All may be called by anyone at once; none blocks.
type ears struct {
	up    func()           // the subscription stands
	heard func(key string) // from now on the key's wake-ups come: what came before has to be looked for
	woke  func(key string) // the key has something new
}

// driver is a waker with what the tail knows of it.
type driver struct {
	// static
	name   string // a label of metrics
	covers bool   // it tells of every entry; otherwise a run shows by its wake-ups that it is told of
	waker  waker

	// guarded by Tail.mu
	penalty time.Duration // for wake-ups that were lost
	barred  time.Time     // until when it isn't chosen again
}

// wakes is what a followed key has to do with wake-ups. Guarded by Tail.mu.
type wakes struct {
	able    bool      // a run; all else is left to blocked reads
	pending bool      // it stands in its shard's list
	swept   bool      // because of a sweep
	looks   int       // of sweeps since it was last read
	missed  bool      // it is to be read again once its followers have taken what they were given
	owed    time.Time // when a sweep found what no wake-up had told of; zero once that is decided
	held    time.Time // until when it is left to blocked reads
}

// WakeFigures is what became of wake-ups. Numbers of things that happened never fall.
type WakeFigures struct {
	By      string // the driver now: "keyspace" or "publish"; empty while none is in use
	Keys    int    // streams that are read by its wake-ups
	Woken   uint64 // wake-ups for followed runs
	Lost    uint64 // entries found by a sweep, that no wake-up had told of
	Changes uint64 // times that a driver came into use or fell away
}

const (
	// probeEvery is how often a server that gave no wake-ups, or only those of agents, is tried again.
	probeEvery = 30 * time.Second
	// probeTime is how long a probe may take. A wake-up comes within a millisecond.
	probeTime = 2 * time.Second
	// wakeSoon is how late a wake-up may be and still count as one.
	wakeSoon = 250 * time.Millisecond
	// holdTime is for how long a run whose wake-ups got lost is left to blocked reads.
	holdTime = time.Minute
	// Penalties of a driver that covers all and yet lost something.
	minPenalty = time.Second
	maxPenalty = 10 * time.Minute
	// forgiven is after how long without another loss the penalties begin anew.
	forgiven = time.Hour
)

// listen has the best driver tell of wake-ups while enough streams are followed, until ctx ends.
func (t *Tail) listen(ctx context.Context) {
	if len(t.drivers) == 0 || t.cfg.By == TailXRead {
		return
	}
	backoff := minBackoff
	for ctx.Err() == nil {
		if !t.wanted() {
			select {
			case <-t.rethink:
			case <-ctx.Done():
			}
			continue
		}
		d := t.choose(ctx)
		if d == nil {
			sleep(ctx, jittered(probeEvery))
			continue
		}
		began := time.Now()
		t.listenBy(ctx, d)
		if backoff = min(2*backoff, maxBackoff); time.Since(began) > time.Minute {
			backoff = minBackoff
		}
		sleep(ctx, jittered(backoff))
	}
}

// wanted reports whether enough streams are followed.
func (t *Tail) wanted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.want
}

// reconsider looks whether enough streams are followed now, or no longer. Caller holds mu.
func (t *Tail) reconsider() {
	enough := t.cfg.WakeAbove
	if t.want {
		enough /= 2
	}
	if want := len(t.byKey) > enough; want != t.want {
		t.want = want
		t.think()
	}
}

// doubt has the driver chosen anew. Caller holds mu.
func (t *Tail) doubt() {
	t.doubted = true
	t.think()
}

func (t *Tail) think() {
	select {
	case t.rethink <- struct{}{}:
	default: // a token is there already
	}
}

// choose returns the first driver that is proven now, nil if none is.
func (t *Tail) choose(ctx context.Context) *driver {
	for _, d := range t.drivers {
		t.mu.Lock()
		barred := time.Now().Before(d.barred)
		t.mu.Unlock()
		if barred {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, probeTime)
		err := d.waker.probe(ctx)
		cancel()
		if err == nil {
			return d
		}
	}
	return nil
}

// listenBy listens until the driver is lost, doubted or no longer wanted, or a better one is there.
func (t *Tail) listenBy(ctx context.Context, d *driver) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var listening sync.WaitGroup
	done := make(chan struct{})
	listening.Go(func() {
		defer close(done)
		_ = d.waker.listen(ctx, ears{up: func() { t.wakesBy(d) }, heard: t.heardOf, woke: t.woke}) // whatever ended it, the next probe tells
		if ctx.Err() == nil {
			t.wakesNoMore(d)
		}
	})
	better := time.NewTicker(probeEvery)
	defer better.Stop()
	for goOn := true; goOn; {
		select {
		case <-done:
			return
		case <-t.rethink:
			t.mu.Lock()
			goOn = t.want && !t.doubted
			t.mu.Unlock()
		case <-better.C:
			goOn = d == t.drivers[0] || t.choose(ctx) == d
		}
	}
	cancel()
	listening.Wait()
	t.wakesNoMore(d)
}

// wakesBy leads the runs that the driver tells of to shards that wait for wake-ups.
func (t *Tail) wakesBy(d *driver) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.by, t.doubted = d, false
	t.figures.Changes++
	if !d.covers {
		return
	}
	now := time.Now()
	for _, fk := range t.byKey {
		t.hearOf(fk, true)
		if fk.wakes.able && now.After(fk.wakes.held) {
			t.move(fk, true)
		}
	}
}

// wakesNoMore leads all runs back to blocked reads, unless ctx ended the listening.
func (t *Tail) wakesNoMore(d *driver) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by != d {
		return
	}
	t.by = nil
	t.figures.Changes++
	for _, fk := range t.byKey {
		if fk.shard.byWake {
			t.move(fk, false)
		}
	}
}

// move leads a key to a shard of the other kind. A read that is under way may still find something for it: positions see
// to it that nothing is handed over twice. Caller holds mu.
func (t *Tail) move(fk *followed, byWake bool) {
	if fk.shard.byWake == byWake {
		return
	}
	from := fk.shard
	from.drop(fk)
	t.markStale(from)
	fk.wakes.pending, fk.wakes.swept, fk.wakes.missed, fk.wakes.owed = false, false, false, time.Time{}
	fk.fresh = true
	t.roomyShard(byWake).add(fk)
	t.wakeKey(fk)
	t.markStale(fk.shard)
}

// hearOf has the driver tell of a key, or no longer. Caller holds mu.
func (t *Tail) hearOf(fk *followed, on bool) {
	if t.by != nil && fk.wakes.able {
		t.by.waker.hear(fk.key, on)
	}
}

// heardOf has a key looked at, as its wake-ups come from now on.
func (t *Tail) heardOf(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if fk := t.byKey[key]; fk != nil {
		t.wakeKey(fk)
	}
}

// woke takes a wake-up.
func (t *Tail) woke(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fk := t.byKey[key]
	if fk == nil || !fk.wakes.able {
		return
	}
	t.figures.Woken++
	now := time.Now()
	switch owed := fk.wakes.owed; {
	case owed.IsZero():
	case now.Sub(owed) < wakeSoon:
		fk.wakes.owed = time.Time{}
	default:
		t.unwoken(fk)
	}
	if t.by != nil && !fk.shard.byWake && now.After(fk.wakes.held) {
		t.move(fk, true)
		return
	}
	t.wakeKey(fk)
}

// wakeKey has a key read, if it waits for wake-ups. Caller holds mu.
func (t *Tail) wakeKey(fk *followed) {
	if !fk.shard.byWake {
		return
	}
	fk.wakes.swept = false
	fk.shard.pend(fk)
	t.markStale(fk.shard)
}

// unwoken notes that a sweep found what no wake-up had told of, or told of too late. Caller holds mu.
func (t *Tail) unwoken(fk *followed) {
	fk.wakes.owed = time.Time{}
	t.figures.Lost++
	d := t.by
	if d == nil {
		return
	}
	if !d.covers { // some of its entries come without: this run's
		fk.wakes.held = time.Now().Add(holdTime)
		t.move(fk, false)
		return
	}
	if time.Since(d.barred) > forgiven {
		d.penalty = 0
	}
	d.penalty = min(max(2*d.penalty, minPenalty), maxPenalty)
	d.barred = time.Now().Add(d.penalty)
	t.doubt()
}
