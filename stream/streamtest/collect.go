package streamtest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/aguihub/aguihub/stream"
)

// Collector keeps what a tail delivers for one run and lets a test wait for it.
type Collector struct {
	mu      sync.Mutex
	entries []stream.Entry
	errs    []error
	changed chan struct{} // closed and replaced at every batch
}

// NewCollector returns an empty collector.
func NewCollector() *Collector { return &Collector{changed: make(chan struct{})} }

// Sink is the sink to follow with.
func (c *Collector) Sink(b stream.Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = append(c.entries, b.Entries...)
	if b.Err != nil {
		c.errs = append(c.errs, b.Err)
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// Entries returns all entries so far.
func (c *Collector) Entries() []stream.Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]stream.Entry(nil), c.entries...)
}

// Errs returns all errors so far.
func (c *Collector) Errs() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]error(nil), c.errs...)
}

// Wait waits until n entries are there, fails the test if they don't come, and returns all.
func (c *Collector) Wait(tb testing.TB, n int) []stream.Entry {
	tb.Helper()
	c.until(tb, "entries", n, func() int { return len(c.entries) })
	return c.Entries()
}

// WaitErr waits until n errors are there, fails the test if they don't come, and returns all.
func (c *Collector) WaitErr(tb testing.TB, n int) []error {
	tb.Helper()
	c.until(tb, "errors", n, func() int { return len(c.errs) })
	return c.Errs()
}

func (c *Collector) until(tb testing.TB, what string, want int, count func() int) {
	tb.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		c.mu.Lock()
		got, changed := count(), c.changed
		c.mu.Unlock()
		if got >= want {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			tb.Fatalf("%d %s in %v, want %d", got, what, patience, want)
		}
	}
}

// RunTail runs tail until the end of the test, or until the returned function is called, and checks that it
// ends as it should.
func RunTail(tb testing.TB, tail *stream.Tail) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- tail.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				tb.Errorf("Run returned %v, want the context's error", err)
			}
		})
	}
	tb.Cleanup(stop)
	return stop
}

// Eventually waits until cond holds, for conditions that no channel announces.
func Eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	timer, ticker := time.NewTimer(patience), time.NewTicker(pollEvery)
	defer timer.Stop()
	defer ticker.Stop()
	for !cond() {
		select {
		case <-ticker.C:
		case <-timer.C:
			tb.Fatalf("waited %v: %s", patience, what)
		}
	}
}
