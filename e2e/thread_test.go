package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/aguihub/aguihub/oracle"
)

// between is how long an agent takes from run to run. Two runs of a thread that start in the same millisecond have no order.
const between = 5 * time.Millisecond

func TestAttachByThreadEndsEqualToWatchingAllRuns(t *testing.T) {
	m := newMeasure(t, 1)
	rng := rand.New(rand.NewPCG(*firstSeed, 2))
	streams := map[string][]oracle.Stream{}
	all := corpus(t, true)
	n := 14
	if *sweep {
		n = 200
	}
	for _, version := range versions {
		streams[version] = append(slices.Clone(all), generated(version, n, true)...)
	}
	var jobs []job
	for _, version := range versions {
		for _, s := range streams[version] {
			if why := notOneThread(s); why != "" {
				m.except("of several runs that are no thread: "+why, s.Name)
				continue
			}
			for _, j := range plan(s, []string{version}, rng) {
				j.racers = rng.IntN(2) == 0 // here: unannounced
				jobs = append(jobs, j)
			}
		}
	}
	m.all(jobs, m.several)
	m.report()
}

// notOneThread says why a stream's runs don't follow one another in one thread.
func notOneThread(s oracle.Stream) string {
	for i, r := range s.Runs {
		last := eventOf(r.Lines[len(r.Lines)-1]).Type
		switch {
		case r.ThreadID != s.Runs[0].ThreadID:
			return "each has its own thread"
		case i < len(s.Runs)-1 && last != "RUN_FINISHED" && last != "RUN_ERROR":
			return "one starts beside the one before"
		case r.ParentRunID != "" && (i == 0 || r.ParentRunID != s.Runs[i-1].RunID):
			return "one goes on from another run than the one before"
		}
	}
	return ""
}

// several publishes each run of a stream to its own key, attaches to the thread after each k, and compares.
func (m *measure) several(j job) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	p := prepare(j.stream, j.withInput)
	want := m.readers(p, j.versions)
	m.count(func(c *counts) { c.streams++ })
	if len(want) == 0 {
		return nil
	}
	guard, err := watch(ctx, m.hubs[0].base, threadTarget(p.thread))
	if err != nil {
		return err
	}
	defer guard.close()
	var callers []*sentinel
	defer func() {
		for _, c := range callers {
			c.close()
		}
	}()
	var waiting []attached
	k := 0
	for _, r := range p.runs {
		m.count(func(c *counts) { c.withheld += withheld(r) })
		if !j.racers {
			if err := r.announce(ctx, m.redis); err != nil {
				return err
			}
		}
		for i := range r.lines {
			id, err := r.add(ctx, m.redis, i)
			if err != nil {
				return err
			}
			if j.racers && i == 0 { // nobody says that there is such a run: somebody attaches to it
				caller, err := watch(ctx, m.hubs[0].base, r.target())
				if err != nil {
					return err
				}
				callers = append(callers, caller)
				if err := caller.reached(ctx, id); err != nil {
					return fmt.Errorf("run %s: %w", r.id, err)
				}
			}
			if k++; !slices.Contains(j.ks, k) || !m.comes(r, i) {
				continue
			}
			if err := guard.reached(ctx, id); err != nil {
				return fmt.Errorf("k=%d: %w", k, err)
			}
			batch, err := m.attachThread(p, r, i, k, j, want)
			if err != nil {
				return fmt.Errorf("k=%d: %w", k, err)
			}
			waiting = append(waiting, batch...)
			if _, reads := want[oracle.V1]; reads && !*sweep {
				if err := m.glance(p, k); err != nil {
					return fmt.Errorf("k=%d: %w", k, err)
				}
			}
		}
		pause(ctx, between)
	}
	for _, a := range waiting {
		m.compareThread(p, a, want[a.version])
	}
	return nil
}

// attachThread attaches all clients to the thread after entry i of run r.
func (m *measure) attachThread(p *published, r *run, i, k int, j job, want map[string]oracle.Snapshot) ([]attached, error) {
	var out []attached
	for version := range want {
		if version == oracle.V057 && r.openCalls[i] {
			m.count(func(c *counts) { c.openCalls++ })
			continue
		}
		for _, wire := range j.wiresAt(version, i) {
			sub, err := m.attach(threadTarget(p.thread), version, wire, p.runs[len(p.runs)-1].id)
			if err != nil {
				return nil, err
			}
			out = append(out, attached{sub, version, wire, k})
			if problem := notSnapshots(r, i, sub.Past); problem != "" {
				m.fail("%s k=%d, %s over %s: %s", p.name, k, version, wire, problem)
			}
		}
	}
	return out, nil
}

// glance attaches, leaves when the past has come, and compares with a client that watched until k: interrupts that were
// pending then are seldom so at the end.
func (m *measure) glance(p *published, k int) error {
	sub, err := m.attach(threadTarget(p.thread), oracle.V1, wires[k%2], "")
	if err != nil {
		return err
	}
	if err := sub.Leave(0); err != nil {
		return err
	}
	got, err := sub.End(0)
	if err != nil {
		return err
	}
	want := m.replay(oracle.Job{Lines: p.first(k), Initial: p.initial})
	if diff := oracle.Diff(want.Snapshot, got.Snapshot, p.legacy); !got.OK || diff != "" {
		m.fail("%s k=%d, a glance over %s: %s%s", p.name, k, wires[k%2], got.Error, diff)
	}
	m.count(func(c *counts) { c.glances++ })
	return nil
}

func (m *measure) compareThread(p *published, a attached, want oracle.Snapshot) {
	name := fmt.Sprintf("%s k=%d, %s over %s", p.name, a.k, a.version, a.wire)
	got, err := a.sub.End(0)
	switch diff := oracle.Diff(want, got.Snapshot, p.legacy); {
	case err != nil:
		m.fail("%s: %v", name, err)
	case !got.OK:
		m.fail("%s: %s: %s", name, got.Stage, got.Error)
	case got.Code != 0:
		m.fail("%s: the thread's subscription was closed with %d", name, got.Code)
	case diff != "" && a.version != oracle.V1 && m.otherwiseInThread(p, a):
		return
	case diff != "" && a.version == oracle.V057 && p.laterCalls(a.k):
		m.except("0.0.57 doubles a call that is open where a later run is restated", fmt.Sprintf("%s k=%d", p.name, a.k))
		return
	case diff != "":
		m.fail("%s: %s", name, diff)
	}
	m.count(func(c *counts) { c.attaches[a.version+" "+string(a.wire)]++ })
}

// laterCalls says whether a run that begins after k has an open call somewhere: a run whose input was only recorded, or
// that a hub meets late, is restated, and when that is isn't for the test to say.
func (p *published) laterCalls(k int) bool {
	for _, r := range p.runs {
		if k <= 0 && slices.Contains(r.openCalls, true) {
			return true
		}
		k -= len(r.lines)
	}
	return false
}

// otherwiseInThread is otherwiseAt, where k counts the entries of all runs.
func (m *measure) otherwiseInThread(p *published, a attached) bool {
	job := oracle.Job{Version: a.version, Lines: p.first(a.k), Initial: p.initial}
	own := m.replay(job)
	job.Version = oracle.V1
	if oracle.Diff(m.replay(job).Snapshot, own.Snapshot, p.legacy) == "" {
		return false
	}
	m.except(a.version+" reads the stream up to k otherwise than 1.0.0", fmt.Sprintf("%s k=%d", p.name, a.k))
	return true
}
