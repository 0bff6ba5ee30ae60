package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aguihub/aguihub/loadtest/process"
)

// The tests' program is also the one that RawTCP starts.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "raw" {
		if err := RunRaw(context.Background(), os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// The rule: each party brings every event to every subscriber, and what that took is counted.
func TestEachPartyDelivers(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not in PATH, and these tests don't skip without it: scripts/setup installs it")
	}
	program, err := process.BuildHub(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	short := Workload{Runs: 1, Rate: 100, Subscribers: 5, Warmup: 200 * time.Millisecond, Duration: 800 * time.Millisecond, Patience: time.Minute}
	many := short
	many.Runs, many.Hubs, many.Joins, many.Slow, many.Judged = 3, 2, 20, 1, 3
	long := short
	long.History, long.Settle = 1000, true
	closed := short
	closed.Window, closed.Batch = 64, 16
	alone := short
	alone.Runs, alone.Subscribers = 5, 1
	for _, c := range []struct {
		party Party
		w     Workload
	}{
		{Hub(HubOptions{Name: "lines on two hubs, judged, with joins and slow readers", Program: program}), many},
		{Hub(HubOptions{Name: "bare, with a history", Program: program, Bare: true, Quiet: true}), long},
		{Hub(HubOptions{Name: "lines in a closed loop", Program: program}), closed},
		{RawTCP("raw", os.Args[0]), short},
		{XRead("xread"), short},
		{PubSub("pubsub"), alone},
	} {
		t.Run(c.party.Name, func(t *testing.T) {
			t.Parallel()
			r, err := Bench{Dir: t.TempDir()}.Measure(t.Context(), c.party, c.w)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Violations) > 0 || r.Deliveries == 0 || r.Events == 0 || r.Latency.N == 0 || r.RedisCPU == 0 {
				t.Error(r)
			}
			if got := r.Judged; got != c.w.Judged*c.w.Runs {
				t.Errorf("%d judged", got)
			}
			if c.w.Joins > 0 && r.Joining.N == 0 {
				t.Error("nobody joined")
			}
			hub := strings.Contains(c.party.Name, "lines") || strings.Contains(c.party.Name, "bare")
			if hub && (r.HubCPU == 0 || r.RSSPerSubscriber == 0 || r.Reads == 0) {
				t.Error(r)
			}
		})
	}
}

// faulty is a system in memory that does something wrong with event 5.
type faulty struct {
	fault string

	mu      sync.Mutex
	streams []chan []byte
}

func (*faulty) Programs() []*process.Process { return nil }
func (*faulty) Close()                       {}

func (f *faulty) Publish(_ context.Context, events []Event) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range events {
		times := 1
		if e.N == 5 {
			switch f.fault {
			case "lost":
				times = 0
			case "repeated":
				times = 2
			case "late":
				time.Sleep(200 * time.Millisecond)
			case "refused":
				return nil, errors.New("no")
			}
		}
		if f.fault == "silent" {
			times = 0
		}
		for _, s := range f.streams {
			for range times {
				s <- e.Data
			}
		}
	}
	return nil, nil
}

func (f *faulty) Attach(context.Context, int, int) (Stream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := make(chan []byte, 1000)
	f.streams = append(f.streams, s)
	return &pubsubStream{events: s, done: make(chan struct{})}, nil
}

func TestWhatGoesWrongIsFound(t *testing.T) {
	for fault, want := range map[string]string{
		"none":     "",
		"lost":     "event 6 after 4",
		"repeated": "event 5 after 5",
		"silent":   "2 subscribers haven't got their run's newest event",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			r := measureFaulty(t, fault)
			if want == "" && len(r.Violations) > 0 {
				t.Error(r.Violations)
			}
			if want != "" && !slices.ContainsFunc(r.Violations, func(v string) bool { return strings.Contains(v, want) }) {
				t.Errorf("%q, want %q", r.Violations, want)
			}
		})
	}
	t.Run("a party that refuses is an error", func(t *testing.T) {
		p := Party{Start: func(context.Context, Setting) (System, error) { return &faulty{fault: "refused"}, nil }}
		_, err := Bench{}.Measure(t.Context(), p, Workload{Rate: 100, Subscribers: 1, Duration: 100 * time.Millisecond})
		if err == nil {
			t.Error("it was measured")
		}
	})
}

func measureFaulty(t *testing.T, fault string) *Result {
	t.Helper()
	p := Party{Start: func(context.Context, Setting) (System, error) { return &faulty{fault: fault}, nil }}
	w := Workload{Rate: 100, Subscribers: 2, Warmup: time.Millisecond, Duration: 500 * time.Millisecond, Patience: time.Minute}
	switch fault {
	case "silent": // it is waited for in vain
		w.Patience = time.Second
	case "late": // so that a machine that is slow at its end is nothing beside it
		w.Duration = 3 * time.Second
	}
	r, err := Bench{}.Measure(t.Context(), p, w)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The rule: what a stalled system held up counts from when it was due, not from when it could be published.
func TestCoordinatedOmissionIsAvoided(t *testing.T) {
	r := measureFaulty(t, "late")
	// Event 5 stalls its publisher for 200 ms; the twenty that were due meanwhile waited 100 ms on average.
	if r.Latency.Max < 190 || r.Latency.P99 < 150 {
		t.Errorf("%+v", r.Latency)
	}
	over := Workload{Rate: 100}
	if got := float64(r.Events) / r.Seconds; got < 0.9*over.Rate {
		t.Errorf("%.0f events a second, wanted %.0f", got, over.Rate)
	}
}

func TestSnapshotsStandForEvents(t *testing.T) {
	m := newMeasuring(Workload{Runs: 1}, nil, nil)
	events := make(chan []byte, 10)
	r := &reader{stream: &pubsubStream{events: events, done: make(chan struct{})}}
	now := time.Now()
	events <- append(append([]byte(`{"event":`), text(3, now, 230)...), "}\n"+string(text(4, now, 230))...)
	events <- []byte(`{"control":"catchup","mode":"snapshot"}`)
	events <- text(9, now, 230)
	events <- text(11, now, 230)
	events <- []byte(`{"type":"TEXT_MESSAGE_CONTENT","delta":"twelve"}`)
	done := make(chan struct{})
	go func() { defer close(done); m.read(r) }()
	for len(m.failures.list()) < 2 {
		time.Sleep(time.Millisecond)
	}
	r.close()
	<-done
	got := m.failures.list()
	if r.got.Load() != 4 || r.jumps.Load() != 1 || len(got) != 2 ||
		!strings.Contains(got[0], "event 11 after 9") || !strings.Contains(got[1], "without a counter") {
		t.Errorf("%d events, %d jumps, %q", r.got.Load(), r.jumps.Load(), got)
	}
}

func TestEventsHaveTheSizeAsked(t *testing.T) {
	for _, n := range []int{1, 99_999} {
		if got := len(text(n, time.Now(), 230)); got != 230 {
			t.Errorf("%d bytes", got)
		}
	}
}
