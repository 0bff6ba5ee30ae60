package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/oracle"
	"github.com/aguihub/aguihub/stream/streamtest"
)

// restreamed are the events that restate nothing: a preamble has none of them.
var restreamed = map[string]bool{
	"TEXT_MESSAGE_CONTENT": true, "TOOL_CALL_ARGS": true, "TOOL_CALL_RESULT": true, "REASONING_MESSAGE_CONTENT": true,
	"STATE_DELTA": true, "ACTIVITY_SNAPSHOT": true, "ACTIVITY_DELTA": true,
}

var versions = []string{oracle.V1, oracle.V059, oracle.V057}

var wires = []oracle.Wire{oracle.WebSocket, oracle.SSE}

// measure is one measuring: a Redis, hubs, clients, and what came out.
type measure struct {
	t        *testing.T
	oracle   *oracle.Oracle
	networks []*oracle.Network
	redis    *redis.Client
	hubs     []*hub

	counts counts
}

// counts are guarded by mu.
type counts struct {
	mu          sync.Mutex
	streams     int
	attaches    map[string]int // by version and wire
	racing      int            // attached while the agent wrote, wherever that was
	glances     int            // attached and left at once
	withheld    int            // entries
	excepted    map[string][]string
	openCalls   int
	failures    int
	told        time.Time
	done, of    int
	notBegun    int
	restarted   int
	unwatchable map[string][]string
}

func newMeasure(t *testing.T, hubs int) *measure {
	t.Helper()
	server := streamtest.StartRedis(t)
	m := &measure{t: t, oracle: oracle.Start(t), redis: server.Client(t)}
	for range hubs {
		m.hubs = append(m.hubs, startHub(t, server.URL()))
	}
	for range 2 {
		m.networks = append(m.networks, oracle.StartNetwork(t))
	}
	m.counts.attaches, m.counts.excepted, m.counts.unwatchable = map[string]int{}, map[string][]string{}, map[string][]string{}
	return m
}

func (m *measure) count(do func(c *counts)) {
	m.counts.mu.Lock()
	defer m.counts.mu.Unlock()
	do(&m.counts)
}

// except names an attach or a stream that can't end equal, with the reason.
func (m *measure) except(reason, name string) {
	m.count(func(c *counts) {
		if !slices.Contains(c.excepted[reason], name) {
			c.excepted[reason] = append(c.excepted[reason], name)
		}
	})
}

func (m *measure) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Errorf(format, args...)
	m.count(func(c *counts) { c.failures++ })
}

// job is one publication with the attaches to it.
type job struct {
	stream    oracle.Stream
	withInput bool
	versions  []string
	wires     []oracle.Wire
	ks        []int // after how many entries to attach
	racers    bool
}

// wiresAt are the wires that a client takes after entry i: in a sweep those before 1.0.0 take them by turns, since what
// differs between wires doesn't differ between clients.
func (j job) wiresAt(version string, i int) []oracle.Wire {
	if *sweep && version != oracle.V1 && len(j.wires) > 1 {
		return j.wires[i%2 : i%2+1]
	}
	return j.wires
}

// all runs jobs, so many at a time.
func (m *measure) all(jobs []job, do func(job) error) {
	m.counts.of = len(jobs)
	queue := make(chan job)
	var workers sync.WaitGroup
	for range inFlight {
		workers.Go(func() {
			for j := range queue {
				if err := do(j); err != nil {
					m.fail("%s: %v", j.stream.Name, err)
				}
				m.progress()
			}
		})
	}
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	workers.Wait()
}

// progress tells now and then how far a sweep has come.
func (m *measure) progress() {
	m.count(func(c *counts) {
		c.done++
		if *sweep && time.Since(c.told) > 10*time.Second {
			c.told = time.Now()
			fmt.Printf("%s: %d of %d publications, %v attaches, %d failures\n", m.t.Name(), c.done, c.of, c.attaches, c.failures)
		}
	})
}

func (m *measure) report() {
	c := &m.counts
	m.t.Logf("%d streams published; attaches compared: %v, %d at any moment, %d for a glance; %d with a tool call open left out for 0.0.57; %d before the run's start or after its end; "+
		"%d before a restart; %d entries withheld",
		c.streams, c.attaches, c.racing, c.glances, c.openCalls, c.notBegun, c.restarted, c.withheld)
	for reason, names := range c.excepted {
		slices.Sort(names)
		m.t.Logf("excepted, %s: %s", reason, strings.Join(names, ", "))
	}
	for version, names := range c.unwatchable {
		slices.Sort(names)
		m.t.Logf("%s can't watch: %s", version, strings.Join(slices.Compact(names), ", "))
	}
}

func (m *measure) replay(job oracle.Job) oracle.Result {
	r, err := m.oracle.Try(job)
	if err != nil {
		m.fail("oracle: %v", err)
	}
	return r
}

// readers are the clients that can watch a stream, with where they end.
func (m *measure) readers(p *published, among []string) map[string]oracle.Snapshot {
	out := map[string]oracle.Snapshot{}
	lines := p.all()
	newest := m.replay(oracle.Job{Lines: lines, Initial: p.initial})
	if !newest.OK {
		m.fail("%s: 1.0.0 rejects what is sent, at %d: %s", p.name, newest.At, newest.Error)
		return nil
	}
	for _, version := range among {
		own := newest
		if version != oracle.V1 {
			own = m.replay(oracle.Job{Version: version, Lines: lines, Initial: p.initial})
		}
		switch {
		case !own.OK:
			m.count(func(c *counts) { c.unwatchable[version] = append(c.unwatchable[version], p.name) })
		case oracle.Diff(newest.Snapshot, own.Snapshot, p.legacy) != "":
			m.except(version+" reads the stream otherwise than 1.0.0, whose reading is restated", p.name)
		default:
			out[version] = own.Snapshot
		}
	}
	return out
}

// attached is a subscription that waits for its end.
type attached struct {
	sub     *oracle.Subscription
	version string
	wire    oracle.Wire
	k       int // −1 at any moment
}

// single publishes a stream of one run, attaches after each k, and compares.
func (m *measure) single(j job) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	p := prepare(j.stream, j.withInput)
	r := p.runs[0]
	want := m.readers(p, j.versions)
	m.count(func(c *counts) { c.streams++; c.withheld += withheld(r) })
	if len(want) == 0 {
		return nil
	}
	var waiting []attached
	var racers sync.WaitGroup
	var raced sync.Mutex
	guard, err := watch(ctx, m.hubs[0].base, r.target())
	if err != nil {
		return err
	}
	defer guard.close()
	rng := rand.New(rand.NewPCG(uint64(len(r.lines)), *firstSeed))
	race := rng.IntN(len(r.lines))
	for i := range r.lines {
		if j.racers && i == race && r.begin == 0 && r.ends {
			racers.Go(func() {
				for version := range want {
					if version == oracle.V057 { // a call may be open
						continue
					}
					sub, err := m.attach(r.target(), version, wires[i%2], "")
					raced.Lock()
					if err != nil {
						m.fail("%s: attach: %v", p.name, err)
					} else {
						waiting = append(waiting, attached{sub, version, wires[i%2], -1})
					}
					raced.Unlock()
				}
			})
		}
		id, err := r.add(ctx, m.redis, i)
		if err != nil {
			return err
		}
		if slices.Contains(j.ks, i+1) {
			if ok := m.comes(r, i); !ok {
				continue
			}
			if err := guard.reached(ctx, id); err != nil {
				return fmt.Errorf("k=%d: %w", i+1, err)
			}
			batch, err := m.attachAll(p, r, i, j, want)
			if err != nil {
				return fmt.Errorf("k=%d: %w", i+1, err)
			}
			raced.Lock()
			waiting = append(waiting, batch...)
			raced.Unlock()
		} else if rng.IntN(20) == 0 {
			pause(ctx, time.Duration(rng.IntN(3))*time.Millisecond)
		}
	}
	racers.Wait()
	if !r.ends {
		for _, a := range waiting {
			pause(ctx, quiet)
			more := 0
			if a.k > 0 {
				more = len(r.tail(a.k - 1))
			}
			if err := a.sub.Leave(more); err != nil {
				return err
			}
		}
	}
	for _, a := range waiting {
		m.compare(p, r, a, want[a.version])
	}
	return nil
}

// pause lets an agent think.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func withheld(r *run) int {
	n := 0
	for _, reason := range r.reasons {
		if reason != "" {
			n++
		}
	}
	return n
}

// comes says whether an attach after entry i is of those that are measured.
func (m *measure) comes(r *run, i int) bool {
	switch {
	case !r.started[i] || i > r.end:
		m.count(func(c *counts) { c.notBegun++ })
		return false
	case i < r.begin:
		m.count(func(c *counts) { c.restarted++ })
		return false
	}
	return true
}

// attachAll attaches all clients after entry i and waits until each has the past.
func (m *measure) attachAll(p *published, r *run, i int, j job, want map[string]oracle.Snapshot) ([]attached, error) {
	var mu sync.Mutex
	var out []attached
	var first error
	var all sync.WaitGroup
	for version := range want {
		if version == oracle.V057 && r.openCalls[i] {
			m.count(func(c *counts) { c.openCalls++ })
			continue
		}
		for _, wire := range j.wiresAt(version, i) {
			all.Go(func() {
				sub, err := m.attach(r.target(), version, wire, "")
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					first = err
					return
				}
				out = append(out, attached{sub, version, wire, i + 1})
			})
		}
	}
	all.Wait()
	return out, first
}

func (m *measure) attach(target, version string, wire oracle.Wire, last string) (*oracle.Subscription, error) {
	n := int(tags.Add(1))
	return m.networks[n%len(m.networks)].Attach(oracle.Subscribe{
		Base: m.hubs[n/2%len(m.hubs)].base, Target: target, Wire: wire, Version: version, Quiet: quiet, Last: last,
	})
}

// compare looks at one subscription after its end.
func (m *measure) compare(p *published, r *run, a attached, want oracle.Snapshot) {
	name := fmt.Sprintf("%s k=%d of %d, %s over %s", p.name, a.k, len(r.lines), a.version, a.wire)
	tail := [][]byte(nil)
	if a.k > 0 {
		tail = r.tail(a.k - 1)
	}
	got, err := a.sub.End(len(tail))
	if err != nil {
		m.fail("%s: %v", name, err)
		return
	}
	past := slices.Clone(a.sub.Past)
	for _, line := range got.Late {
		past = append(past, []byte(line))
	}
	problem := ""
	switch diff := oracle.Diff(want, got.Snapshot, p.legacy); {
	case !got.OK:
		problem = got.Stage + ": " + got.Error
	case r.ends && got.Code != 1000:
		problem = fmt.Sprintf("closed with %d", got.Code)
	case diff != "" && m.otherwiseAt(p, r, a):
		return
	case diff != "":
		problem = diff
	case a.k < 0: // who knows what was past
	case got.Hash != oracle.HashLines(tail):
		problem = "the tail isn't what was published after k"
	default:
		problem = notSnapshots(r, a.k-1, past)
	}
	if problem != "" {
		m.fail("%s: %s\n%s", name, problem, bytes.Join(past[:min(len(past), 30)], []byte("\n")))
	}
	m.count(func(c *counts) {
		if a.k < 0 {
			c.racing++
		} else {
			c.attaches[a.version+" "+string(a.wire)]++
		}
	})
}

// notSnapshots says what of the past isn't restated by snapshots.
func notSnapshots(r *run, i int, past [][]byte) string {
	snapshot := false
	for _, line := range past {
		e := eventOf(line)
		legacy := strings.HasPrefix(e.Type, "THINKING")
		snapshot = snapshot || e.Type == "MESSAGES_SNAPSHOT"
		if restreamed[e.Type] && !legacy || strings.HasSuffix(e.Type, "_CHUNK") && e.Delta != nil {
			return "the past comes with " + e.Type
		}
	}
	sawStart := slices.ContainsFunc(r.until(i), func(line []byte) bool { return eventOf(line).Type == "RUN_STARTED" })
	if sawStart && !snapshot {
		return "the past comes without MESSAGES_SNAPSHOT"
	}
	return ""
}

// otherwiseAt says whether an older client, watching, held something else at k than 1.0.0 does, whose reading is restated.
func (m *measure) otherwiseAt(p *published, r *run, a attached) bool {
	if a.version == oracle.V1 || a.k < 0 {
		return false
	}
	job := oracle.Job{Version: a.version, Lines: r.until(a.k - 1), Initial: p.initial}
	own := m.replay(job)
	job.Version = oracle.V1
	newest := m.replay(job)
	if oracle.Diff(newest.Snapshot, own.Snapshot, p.legacy) == "" {
		return false
	}
	m.except(a.version+" reads the stream up to k otherwise than 1.0.0", fmt.Sprintf("%s k=%d", p.name, a.k))
	return true
}
