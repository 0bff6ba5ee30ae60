package process

import (
	"context"
	"errors"
	"net"
	"strconv"
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

// The rule: a port is free only where a node of a cluster could live, its bus included.
func TestAFreePortHasItsBusFree(t *testing.T) {
	port, err := FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	if n+toBus >= 32768 {
		t.Errorf("the bus of %d is among the ports of outgoing connections", n)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(n+toBus)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if freeWithBus(t.Context(), n) == nil {
		t.Error("the bus is taken")
	}
}

// The rule: what answers on the port of a redis-server is that one, and has its data.
func TestAnswersComeFromTheProgram(t *testing.T) {
	p, err := Start(t.Context(), nil, "sleep", "60")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	pid := "# Server\r\nprocess_id:" + strconv.Itoa(p.Pid())
	for info, good := range map[string]bool{
		pid + "\r\n\r\n# Persistence\r\nloading:0\r\nasync_loading:0\r\n":  true,
		pid + "\r\n\r\n# Persistence\r\nloading:1\r\nasync_loading:0\r\n":  false,
		pid + "0\r\n\r\n# Persistence\r\nloading:0\r\nasync_loading:0\r\n": false,
		"": false,
	} {
		if err := p.Answers(info, nil); (err == nil) != good {
			t.Errorf("%q: %v", info, err)
		}
	}
	if cause := errors.New("down"); !errors.Is(p.Answers(pid+"\r\nloading:0", cause), cause) {
		t.Error("an error is none")
	}
}
