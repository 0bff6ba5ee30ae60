package process

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The rule: what a process has cost is what it has cost, to the microsecond.
func TestCPUIsThatOfAllThreads(t *testing.T) {
	before, err := Own()
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 20*time.Millisecond; {
	}
	after, err := Own()
	if err != nil {
		t.Fatal(err)
	}
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	used := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	if after <= before || (used-after).Abs() > 50*time.Millisecond {
		t.Errorf("%v, then %v; getrusage says %v", before, after, used)
	}
}

func TestAProgramThatEndsIsNotWaitedFor(t *testing.T) {
	p, err := Start(t.Context(), nil, "sh", "-c", "echo no such luck; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	err = p.Serving(t.Context(), func(context.Context) error { return errors.New("not yet") })
	if !errors.Is(err, errEnded) || !strings.Contains(err.Error(), "no such luck") {
		t.Error(err)
	}
	p.Kill()
}

func TestAProgramIsWatchedUntilItIsKilled(t *testing.T) {
	p, err := Start(t.Context(), nil, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.01; done")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Serving(t.Context(), func(context.Context) error {
		if !strings.Contains(p.Output(), "ready") {
			return errors.New("not yet")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if rss, err := p.RSS(); err != nil || rss < 100<<10 {
		t.Error(rss, err)
	}
	p.Kill()
	if _, err := p.RSS(); err == nil {
		t.Error("it is there still")
	}
}
