package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/aguihub/aguihub/loadtest/checker"
	"github.com/aguihub/aguihub/loadtest/process"
)

// Fault is something that goes wrong.
type Fault string

// The faults of a schedule. Subscribers leave and pause by themselves.
const (
	KillHub   Fault = "hub killed"                           // SIGKILL, and started again
	DrainHub  Fault = "hub drained"                          // SIGTERM, and started again once it has ended
	Restart   Fault = "redis restarted"                      // SIGKILL, and started again with its append-only file
	Wipe      Fault = "redis restarted without its data"     // all runs begin anew
	Failover  Fault = "failover that lost writes"            // the replica takes over without the newest entries
	Swap      Fault = "roles swapped, connections left open" // planned; nothing is lost
	Trim      Fault = "run trimmed"                          // up to its newest entries, and begun anew soon
	CutRedis  Fault = "connections to redis cut"             // all at once
	MoveSlots Fault = "slot moved"                           // on a cluster only
	Promote   Fault = "node killed, its replica promoted"    // on a cluster only
)

// Config of a chaos run. Zero values are defaults.
type Config struct {
	Seed     uint64
	Duration time.Duration // 30 s
	Hubs     int           // 2
	Feeds    bool          // wait at the end until the hubs have let go of all runs, which takes them half a minute
	Runs     int           // at once: 4
	Threads  int           // at once, with three runs each, one after the other: 2; -1 for none
	Readers  int           // of each run and thread: 5, every third over SSE, the fourth of a run on the bare subprotocol
	Rate     float64       // events a second of each run: 40
	Length   int           // events of a run: 600
	Long     int           // how many of the runs at once are six times as long and as fast, so that hubs trim them: 0
	Every    time.Duration // mean time between two faults: 2 s
	Cluster  bool          // a cluster of three, each with a replica, instead of a pair with a replica
	Faults   []Fault       // in an order that the seed decides, again and again; nil for all that fit
	Binary   string        // the hub; built where empty
	Dir      string        // for logs and data; must be there
	Log      io.Writer     // nil for none
}

func (c *Config) fill() {
	c.Duration = or(c.Duration, 30*time.Second)
	c.Hubs, c.Runs, c.Readers, c.Length = or(c.Hubs, 2), or(c.Runs, 4), or(c.Readers, 5), or(c.Length, 600)
	c.Threads = or(c.Threads, 2)
	c.Rate, c.Every = or(c.Rate, 40), or(c.Every, 2*time.Second)
	if c.Faults == nil {
		c.Faults = []Fault{KillHub, KillHub, Restart, Wipe, Failover, Failover, Swap, Trim, Trim, CutRedis}
		if c.Cluster {
			c.Faults = []Fault{KillHub, DrainHub, MoveSlots, MoveSlots, Promote, Trim}
		}
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Report is what a chaos run came to.
type Report struct {
	checker.Figures
	Seed       uint64
	Duration   time.Duration
	Runs       int
	Threads    int
	Events     int
	Lost       int // entries that Redis forgot
	Trimmed    int // runs that hubs had trimmed when they ended
	Unfinished int // subscribers that didn't see their run's end in time
	Faults     map[Fault]int
	Violations []string
}

// String is the report for people.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %v: %d runs (%d of them trimmed by hubs), %d threads, %d events (%d of them lost by Redis), %d deliveries, %d brackets (%d after lag)\n",
		r.Seed, r.Duration.Round(time.Second), r.Runs, r.Trimmed, r.Threads, r.Events, r.Lost, r.Deliveries, r.Brackets, r.Lags)
	fmt.Fprintf(&b, "%d connects, %d of them again\n", r.Connects, r.Reconnects)
	list := func(name string, counts map[string]int) {
		fmt.Fprintf(&b, "%s:", name)
		for _, k := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(&b, " %s %d ·", k, counts[k])
		}
		b.WriteByte('\n')
	}
	faults := map[string]int{}
	for f, n := range r.Faults {
		faults[string(f)] = n
	}
	list("faults", faults)
	list("resets", r.Resets)
	list("connections ended by", r.Closes)
	fmt.Fprintf(&b, "%d violations, %d subscribers without the end of their run\n", len(r.Violations), r.Unfinished)
	for i, v := range r.Violations {
		if i == 200 {
			fmt.Fprintf(&b, "  and %d more\n", len(r.Violations)-i)
			break
		}
		fmt.Fprintf(&b, "  %s\n", v)
	}
	return b.String()
}

// world is a chaos run under way.
type world struct {
	config Config
	redis  backend
	hubs   []*hub
	client redis.UniversalClient

	mu        sync.Mutex
	bases     []string
	producers map[*producer]struct{}
	losses    int // so far
	report    Report
}

// settle is how long after the end of the faults what is open may take to come to its end.
const settle = 2 * time.Minute

// Run runs chaos. Its error says that it couldn't be done; what the hubs did wrong is in the report.
func Run(ctx context.Context, config Config) (*Report, error) {
	config.fill()
	logging.Disable() // what the clients of servers that are killed have to say
	w := &world{config: config, producers: map[*producer]struct{}{}}
	w.report.Seed, w.report.Duration, w.report.Faults = config.Seed, config.Duration, map[Fault]int{}
	w.report.Add(checker.Figures{})
	defer w.close()
	if err := w.open(ctx); err != nil {
		return nil, err
	}
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, config.Duration+settle)
	defer cancel()
	quiet := make(chan struct{}) // closed when no run begins any more
	var wg sync.WaitGroup
	for lane := range config.Runs {
		wg.Go(func() { lanes(ctx, quiet, func(n int) { w.oneRun(ctx, lane, n) }) })
	}
	for lane := range config.Threads {
		wg.Go(func() { lanes(ctx, quiet, func(n int) { w.oneThread(ctx, lane, n) }) })
	}
	err := w.misfortune(ctx)
	close(quiet)
	wg.Wait()
	w.report.Violations = append(w.report.Violations, w.settle(whole)...)
	return &w.report, err
}

// open starts Redis and the hubs.
func (w *world) open(ctx context.Context) (err error) {
	if w.config.Binary == "" {
		if w.config.Binary, err = process.BuildHub(ctx, w.config.Dir); err != nil {
			return err
		}
	}
	if w.config.Cluster {
		w.redis, err = newCluster(ctx, w.config.Dir)
	} else {
		w.redis, err = newPair(ctx, w.config.Dir)
	}
	if err != nil {
		return err
	}
	w.client = w.redis.client()
	for i := range w.config.Hubs {
		log, err := os.Create(filepath.Join(w.config.Dir, fmt.Sprintf("hub-%d.log", i))) //nolint:gosec // a folder that the caller names
		if err != nil {
			return err
		}
		h := &hub{binary: w.config.Binary, log: log, args: []string{
			"--redis=" + w.redis.url(), "--queue-bytes=32KiB", "--max-run-entries=2000", "--tail=" + [...]string{"auto", "wake"}[i%2],
		}}
		w.hubs = append(w.hubs, h)
		if err := h.start(ctx); err != nil {
			return err
		}
		w.bases = append(w.bases, h.base)
		err = process.WaitFor(ctx, "metrics", func(ctx context.Context) error {
			g, err := h.gauges(ctx)
			h.goroutines = g["go_goroutines"]
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *world) close() {
	for _, h := range w.hubs {
		h.kill()
		_ = h.log.Close()
	}
	if w.client != nil {
		_ = w.client.Close()
	}
	if w.redis != nil {
		w.redis.close()
	}
}

// lanes does one after another.
func lanes(ctx context.Context, quiet <-chan struct{}, do func(n int)) {
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case <-quiet:
			return
		default:
		}
		do(n)
	}
}

func (w *world) hubsNow() []string { return w.bases }

func (w *world) seedOf(lane, n, reader int) uint64 {
	return w.config.Seed<<20 + uint64(lane)<<14 + uint64(n)<<4 + uint64(reader) //nolint:gosec // small
}

// habitsOf are those of the reader numbered i: one that leaves often, or one that pauses, too.
func habitsOf(i int) checker.Habits {
	if i%2 == 1 {
		return checker.Habits{Leave: 15 * time.Second, Pause: 3 * time.Second, Nap: 5 * time.Second}
	}
	return checker.Habits{Leave: 4 * time.Second}
}

// published takes the error that ended a producer: the verdicts on its run are worth nothing then.
func (w *world) published(err error) {
	if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.Violations = append(w.report.Violations, "not the hub's fault: "+err.Error())
}

// verdict adds what a subscriber counted, and what the judge says of it. w.mu is held.
func (w *world) verdict(s *checker.Subscriber, found []string) {
	w.report.Add(s.Figures)
	w.report.Violations = append(w.report.Violations, found...)
	if !s.Ended() {
		w.report.Unfinished++
		w.report.Violations = append(w.report.Violations, s.Name()+": no end in time")
	}
}

// longer is how many times as many events a long run has, as many times as fast: enough for hubs to trim it.
const longer = 6

// oneRun has one run published and read to its end, and judges.
func (w *world) oneRun(ctx context.Context, lane, n int) {
	name := fmt.Sprintf("chaos-%d-%d", lane, n)
	p := &producer{
		run: name, thread: "t-" + name, input: lane%2 == 0, client: w.client, rate: w.config.Rate, length: w.config.Length,
	}
	if lane < w.config.Long {
		p.rate, p.length = longer*p.rate, longer*p.length
	}
	w.mu.Lock()
	p.archive = checker.NewArchive(w.losses)
	w.producers[p] = struct{}{}
	w.mu.Unlock()
	done := make(chan struct{})
	var publishing, reading sync.WaitGroup
	publishing.Go(func() { w.published(p.Run(ctx, done)) })
	readers := make([]*checker.Subscriber, w.config.Readers)
	for i := range readers {
		s := checker.NewSubscriber(fmt.Sprintf("%s reader %d", p.run, i), p.run, w.hubsNow, habitsOf(i), w.seedOf(lane, n, i))
		readers[i] = s
		reading.Go(func() {
			s.Follow(ctx, [...]checker.Wire{checker.Socket, checker.Socket, checker.SSE, checker.Bare, checker.Socket}[i%5])
		})
	}
	reading.Wait()
	close(done)
	publishing.Wait()
	trimmed, _ := w.client.Exists(ctx, "{"+p.key()+"}:trimmed").Result() // a figure only
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.producers, p)
	if trimmed > 0 {
		w.report.Trimmed++
	}
	w.report.Runs++
	w.report.Events += p.archive.Events()
	for _, s := range readers {
		w.verdict(s, p.archive.Judge(s))
	}
}

// misfortune draws faults from the seed until the duration is over.
func (w *world) misfortune(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(w.config.Seed, 0)) //nolint:gosec // reproducible on purpose
	end := time.Now().Add(w.config.Duration)
	var order []int // of the faults: each comes once before one comes again
	for {
		if !process.Pause(ctx, w.config.Every/2+time.Duration(rng.Int64N(int64(w.config.Every)))) {
			return ctx.Err()
		}
		if time.Now().After(end) {
			return nil
		}
		if len(order) == 0 {
			order = rng.Perm(len(w.config.Faults))
		}
		fault := w.config.Faults[order[0]]
		order = order[1:]
		_, _ = fmt.Fprintf(w.config.Log, "%s  %s\n", time.Now().Format("15:04:05.000"), fault)
		if err := w.strike(ctx, fault, rng); err != nil {
			return fmt.Errorf("%s: %w", fault, err)
		}
		w.mu.Lock()
		w.report.Faults[fault]++
		w.mu.Unlock()
	}
}

func (w *world) strike(ctx context.Context, fault Fault, rng *rand.Rand) error {
	down := 100*time.Millisecond + time.Duration(rng.Int64N(int64(1200*time.Millisecond)))
	switch fault {
	case KillHub:
		h := w.hubs[rng.IntN(len(w.hubs))]
		h.kill()
		process.Pause(ctx, down)
		return h.start(ctx)
	case DrainHub:
		h := w.hubs[rng.IntN(len(w.hubs))]
		if err := h.drain(); err != nil {
			return err
		}
		return h.start(ctx)
	case Trim:
		return w.trimOne(ctx, rng)
	case Restart, CutRedis, MoveSlots:
		return w.redis.strike(ctx, fault, down, rng)
	case Wipe, Failover, Swap, Promote:
		if fault == Failover {
			if err := w.redis.strike(ctx, splitOff, down, rng); err != nil {
				return err
			}
			process.Pause(ctx, down) // what is written now will be lost
		}
		return w.lossy(ctx, func() error { return w.redis.strike(ctx, fault, down, rng) })
	default:
		return errors.New("unknown fault")
	}
}

// splitOff has the replica follow its master no longer: the first half of a failover.
const splitOff Fault = "replica split off"

// lossy strikes while nobody publishes, and then finds out what is left.
func (w *world) lossy(ctx context.Context, strike func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.producers {
		p.mu.Lock()
	}
	defer func() {
		for p := range w.producers {
			p.mu.Unlock()
		}
	}()
	if err := strike(); err != nil {
		return err
	}
	w.losses++
	for p := range w.producers {
		err := process.WaitFor(ctx, "what is left", func(ctx context.Context) error {
			lost, err := p.survive(ctx, w.client)
			w.report.Lost += lost
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *world) trimOne(ctx context.Context, rng *rand.Rand) error {
	w.mu.Lock()
	var all []*producer
	for p := range w.producers {
		if !p.ofThread {
			all = append(all, p)
		}
	}
	w.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *producer) int { return strings.Compare(a.run, b.run) })
	p := all[rng.IntN(len(all))]
	return process.WaitFor(ctx, "trim", p.trim)
}
