package publish_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
)

// wire is a proxy of Redis that can be cut and mended.
type wire struct {
	addr string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

func startWire(t *testing.T, server string) *wire {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	ok(t, err)
	w := &wire{addr: l.Addr().String(), conns: map[net.Conn]struct{}{}}
	var group sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); w.set(true); group.Wait() })
	group.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			back, err := new(net.Dialer).DialContext(context.WithoutCancel(t.Context()), "tcp", server)
			if err != nil || !w.add(client, back) {
				_ = client.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{client, back}, {back, client}} {
				group.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					_ = pair[0].Close()
					_ = pair[1].Close()
				})
			}
		}
	})
	return w
}

// add takes the two ends of a connection; false while the wire is cut.
func (w *wire) add(client, back net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		_ = back.Close()
		return false
	}
	w.conns[client], w.conns[back] = struct{}{}, struct{}{}
	return true
}

func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	for c := range w.conns {
		_ = c.Close()
	}
	clear(w.conns)
}

// TestAProducerThatIsStoppedForLessThanItsLeaseGoesOn stops a process for most of its lease, again and again.
func TestAProducerThatIsStoppedForLessThanItsLeaseGoesOn(t *testing.T) {
	t.Parallel()
	url := streamtest.StartRedis(t).URL()
	log := connect(t, url)
	hubs(t, url, 2)
	p := startProducer(t, url)
	for range 3 {
		p.signal(t, syscall.SIGSTOP)
		time.Sleep(shortTTL / 3) // what is under test is time: it is stopped for so long, and its lease holds
		p.signal(t, syscall.SIGCONT)
		time.Sleep(shortTTL / 3)
	}
	if n, last := ends(t, log); n != 0 {
		t.Fatalf("the run was ended: %s", last)
	}
	_, err := log.RequestCancel(t.Context(), "r1", []byte(`{"type":"cancel"}`))
	ok(t, err)
	p.line(t)
	wantText(t, p.line(t), "finish: <nil>")
	ok(t, p.wait())
	if n, last := ends(t, log); n != 1 || last != "RUN_FINISHED " {
		t.Errorf("%d ends, the last is %s", n, last)
	}
}

// TestAPartitionBetweenAProducerAndRedis cuts a producer off that hubs, which see Redis, can't see either.
func TestAPartitionBetweenAProducerAndRedis(t *testing.T) {
	t.Parallel()
	url := streamtest.StartRedis(t).URL()
	w := startWire(t, strings.TrimPrefix(url, "redis://"))
	direct, through := connect(t, url), connect(t, "redis://"+w.addr)
	hubs(t, url, 2)
	p, err := publish.New(through, through.NewRegistry(nil), publish.Config{LeaseTTL: shortTTL, Poll: 50 * time.Millisecond})
	ok(t, err)
	run, err := p.Open(t.Context(), start)
	ok(t, err)
	say := func() error {
		return errors.Join(run.Append(t.Context(), []byte(`{"type":"CUSTOM","name":"n","value":1}`)), run.Flush(t.Context()))
	}
	ok(t, say())
	// For less than a lease: it finds its events again, and goes on.
	w.set(true)
	mended := time.AfterFunc(shortTTL/3, func() { w.set(false) })
	ok(t, say())
	mended.Stop()
	if n, last := ends(t, direct); n != 0 {
		t.Fatalf("the run was ended: %s", last)
	}
	// For longer: the run is ended, and the producer, which knew nothing of it, is refused.
	w.set(true)
	streamtest.Eventually(t, "the run is ended", func() bool { n, _ := ends(t, direct); return n > 0 })
	w.set(false)
	if err := say(); !errors.Is(err, publish.ErrFenced) {
		t.Errorf("it came back: %v", err)
	}
	if err := run.Finish(t.Context(), publish.End{}); !errors.Is(err, publish.ErrFenced) {
		t.Errorf("it finished: %v", err)
	}
	_ = run.Release(t.Context())
	if n, last := ends(t, direct); n != 1 || last != "RUN_ERROR producer_lost" {
		t.Errorf("%d ends, the last is %s", n, last)
	}
	page, err := direct.Range(t.Context(), "r1", stream.ID{}, 100, 0)
	ok(t, err)
	if len(page.Entries) != 4 { // start, two events, the end
		t.Errorf("%d entries", len(page.Entries))
	}
}
