package load

import (
	"context"
	"errors"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aguihub/aguihub/loadtest/checker"
	"github.com/aguihub/aguihub/loadtest/process"
)

// publishers is how many connections publish at once.
const publishers = 8

// most is how many events one call publishes at most.
const most = 256

// startPublishers starts what publishes until ctx ends.
func (m *measuring) startPublishers(ctx context.Context, g *errgroup.Group) {
	switch {
	case m.w.Window > 0:
		for i := range m.runs {
			g.Go(func() error { return m.saturate(ctx, i) })
		}
	case m.w.Rate > 0:
		workers := min(m.w.Runs, publishers)
		start := time.Now()
		for w := range workers {
			g.Go(func() error { return m.publisher(ctx, start, w, workers) })
		}
	}
}

// publisher publishes one share of the schedule: event number k of all is due k/(runs × rate) after the start, and
// belongs to run k modulo runs. What couldn't be published in time is published as soon as possible, and counts from when
// it was due.
func (m *measuring) publisher(ctx context.Context, start time.Time, worker, workers int) error {
	gap := float64(time.Second) / (m.w.Rate * float64(m.w.Runs))
	due := func(k int) time.Time { return start.Add(time.Duration(math.Round(float64(k) * gap))) }
	mine := func(k int) int { // the first of this share, from k on
		for k%m.w.Runs%workers != worker {
			k++
		}
		return k
	}
	var events []Event
	for k := mine(0); ; {
		if !process.Pause(ctx, time.Until(due(k))) {
			return ctx.Err()
		}
		now := time.Now()
		events = events[:0]
		m.late.record(worker, due(k), now.Sub(due(k)))
		for len(events) < most && !due(k).After(now) {
			events = append(events, m.next(k%m.w.Runs, due(k)))
			k = mine(k + 1)
		}
		if err := m.send(ctx, events); err != nil {
			return err
		}
	}
}

// next is the run's next event. Only the run's publisher may call it.
func (m *measuring) next(run int, due time.Time) Event {
	n := int(m.runs[run].n.Load()) + 1
	m.runs[run].n.Store(int64(n))
	return Event{Run: run, Kind: checker.Text, N: n, Data: text(n, due, m.w.Size)}
}

// send publishes events that next gave. The end of ctx doesn't end what is under way: whether it was published must be
// known.
func (m *measuring) send(ctx context.Context, events []Event) error {
	return m.publish(context.WithoutCancel(ctx), events)
}

// saturate publishes as fast as the run's slowest subscriber reads.
func (m *measuring) saturate(ctx context.Context, run int) error {
	var events []Event
	for {
		for int(m.runs[run].n.Load())+m.w.Batch-m.slowest(run) > m.w.Window {
			if !process.Pause(ctx, 100*time.Microsecond) {
				return ctx.Err()
			}
		}
		events = events[:0]
		for range m.w.Batch {
			events = append(events, m.next(run, time.Now()))
		}
		if err := m.send(ctx, events); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// slowest is the least counter that all of a run's subscribers have.
func (m *measuring) slowest(run int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	least := m.runs[run].n.Load()
	for _, r := range m.readers {
		if r.run == run && !r.rests {
			least = min(least, r.last.Load())
		}
	}
	return int(least)
}

// join has subscribers join, each on its moment, and others leave.
func (m *measuring) join(ctx context.Context) error {
	if m.w.Joins <= 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	var g errgroup.Group
	start := time.Now()
	for k := 0; ; k++ {
		due := start.Add(time.Duration(float64(k) * float64(time.Second) / m.w.Joins))
		if !process.Pause(ctx, time.Until(due)) {
			return errors.Join(g.Wait(), ctx.Err())
		}
		g.Go(func() error {
			left := m.swap()
			if left == nil {
				return nil // all are on their way
			}
			if err := m.attach(context.WithoutCancel(ctx), left.run, left.number); err != nil {
				m.failures.add("joining: %v", err)
				return nil
			}
			m.joining.record(k, due, time.Since(due))
			return nil
		})
	}
}
