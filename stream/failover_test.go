package stream_test

import (
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
)

// xadd appends an entry under an id of its own, "*" for the server's.
func xadd(t *testing.T, s *streamtest.Server, run stream.RunID, id, event string) {
	t.Helper()
	args := &redis.XAddArgs{Stream: "agui:run:" + string(run), ID: id, Values: []string{"event", event}}
	if err := s.Client(t).XAdd(t.Context(), args).Err(); err != nil {
		t.Fatal(err)
	}
}

// followsBy follows a run at a URL and waits until n entries are there.
func followsBy(t *testing.T, by stream.TailBy, url string, run stream.RunID, n int) *streamtest.Collector {
	t.Helper()
	tail := connect(t, url).NewTail(stream.TailConfig{By: by})
	streamtest.RunTail(t, tail)
	c := streamtest.NewCollector()
	t.Cleanup(tail.Follow(run, stream.ID{}, c.Sink))
	c.Wait(t, n)
	if by == stream.TailWake {
		streamtest.Eventually(t, "the run is woken", func() bool { return tail.Health().Wakes.Keys == 1 })
	}
	return c
}

// eachWay runs a test with blocked reads and with wake-ups by servers that send events.
func eachWay(t *testing.T, test func(t *testing.T, by stream.TailBy, server []string)) {
	t.Helper()
	t.Parallel()
	t.Run("with blocked reads", func(t *testing.T) { t.Parallel(); test(t, stream.TailXRead, nil) })
	t.Run("with wake-ups", func(t *testing.T) { t.Parallel(); test(t, stream.TailWake, []string{"--notify-keyspace-events", "Kt"}) })
}

// loses waits until the follower is told of the loss, and checks that this came before anything else.
func loses(t *testing.T, c *streamtest.Collector, entries int) {
	t.Helper()
	if err := c.WaitErr(t, 1)[0]; !errors.Is(err, stream.ErrLost) {
		t.Error(err)
	}
	if n := len(c.Entries()); n != entries {
		t.Errorf("%d entries, want %d", n, entries)
	}
}

func TestARestartWithoutDataIsNoticed(t *testing.T) {
	eachWay(t, func(t *testing.T, by stream.TailBy, server []string) {
		s := streamtest.StartRedis(t, append(server, "--appendonly", "no")...)
		xadd(t, s, "r", "*", "1")
		c := followsBy(t, by, s.URL(), "r", 1)
		s.Kill()
		s.Start(t)
		loses(t, c, 1)
	})
}

func TestARestartWithDataIsNone(t *testing.T) {
	eachWay(t, func(t *testing.T, by stream.TailBy, server []string) {
		s := streamtest.StartRedis(t, server...)
		xadd(t, s, "r", "*", "1")
		c := followsBy(t, by, s.URL(), "r", 1)
		s.Kill()
		s.Start(t)
		xadd(t, s, "r", "*", "2")
		c.Wait(t, 2)
		if errs := c.Errs(); len(errs) > 0 {
			t.Error(errs)
		}
	})
}

func TestAKeyThatIsRecreatedWithLowerIDsIsNoticed(t *testing.T) {
	eachWay(t, func(t *testing.T, by stream.TailBy, server []string) {
		s := streamtest.StartRedis(t, server...)
		xadd(t, s, "r", "2000-0", "1")
		c := followsBy(t, by, s.URL(), "r", 1)
		if err := s.Client(t).Del(t.Context(), "agui:run:r").Err(); err != nil {
			t.Fatal(err)
		}
		xadd(t, s, "r", "1000-0", "1")
		xadd(t, s, "r", "1000-1", "2")
		loses(t, c, 1)
	})
}

func TestSwappedRolesAreNoticedOnOpenConnections(t *testing.T) {
	eachWay(t, func(t *testing.T, by stream.TailBy, server []string) {
		a, b := streamtest.StartRedis(t, server...), streamtest.StartRedis(t, server...)
		proxy := startSwitch(t, a.Addr())
		xadd(t, a, "r", "*", "1")
		c := followsBy(t, by, "redis://"+proxy.addr(), "r", 1)
		swapRoles(t, a, b, proxy)
		xadd(t, b, "r", "*", "2")
		c.Wait(t, 2)
		if errs := c.Errs(); len(errs) > 0 {
			t.Error(errs)
		}
	})
}

// swapRoles has b, which gets all that a has, take over from a. Connections to a stay open, and a goes on answering reads
// but gets nothing more.
func swapRoles(t *testing.T, a, b *streamtest.Server, proxy *switcher) {
	t.Helper()
	become := func(s *streamtest.Server, host, port string) {
		t.Helper()
		if err := s.Client(t).ReplicaOf(t.Context(), host, port).Err(); err != nil {
			t.Fatal(err)
		}
	}
	_, port, _ := net.SplitHostPort(a.Addr())
	become(b, "127.0.0.1", port)
	streamtest.Eventually(t, "the replica has all", func() bool {
		return b.Client(t).DBSize(t.Context()).Val() == a.Client(t).DBSize(t.Context()).Val()
	})
	become(b, "NO", "ONE")
	proxy.lead(b.Addr()) // new connections
	_, port, _ = net.SplitHostPort(b.Addr())
	become(a, "127.0.0.1", port)
	become(a, "127.0.0.1", "1")
}

// TestAfterASwapOfRolesNothingIsReadFromTheReplica: what an attach, a look-up or an append meets are connections that
// were opened before the swap, all of them.
func TestAfterASwapOfRolesNothingIsReadFromTheReplica(t *testing.T) {
	t.Parallel()
	const conns = 10 // more than the client's own retries would use up
	ctx := t.Context()
	cases := map[string]func(log *stream.Redis) (string, error){
		"a page": func(log *stream.Redis) (string, error) {
			p, err := log.Range(ctx, "r", stream.ID{}, 10, 0)
			return strconv.Itoa(len(p.Entries)), err
		},
		"bounds": func(log *stream.Redis) (string, error) {
			b, err := log.Bounds(ctx, "r")
			return strconv.FormatInt(b[0].Len, 10), err
		},
		"a thread": func(log *stream.Redis) (string, error) {
			runs, err := log.NewRegistry(nil).Thread(ctx, "t", 10)
			return strconv.Itoa(len(runs)), err
		},
		"the registry": func(log *stream.Redis) (string, error) {
			runs, _, err := log.NewRegistry(nil).List(ctx, stream.ID{}, 10)
			return strconv.Itoa(len(runs)), err
		},
		"an append": func(log *stream.Redis) (string, error) {
			ids, err := log.Append(ctx, "r2", stream.Record{Event: []byte("{}")}, stream.Record{Event: []byte("{}")})
			return strconv.Itoa(len(ids)), err
		},
		"a single append": func(log *stream.Redis) (string, error) {
			ids, err := log.Append(ctx, "r3", stream.Record{Event: []byte("{}")})
			return strconv.Itoa(len(ids) + 1), err
		},
	}
	a, b := streamtest.StartRedis(t), streamtest.StartRedis(t)
	proxy := startSwitch(t, a.Addr())
	xadd(t, a, "r", "*", "1")
	started := func(s *streamtest.Server, run stream.RunID) {
		t.Helper()
		info := stream.RunInfo{Run: run, Thread: "t", State: stream.RunStarted}
		if err := connect(t, s.URL()).NewRegistry(nil).Announce(ctx, info); err != nil {
			t.Fatal(err)
		}
	}
	started(a, "r")
	logs := map[string]*stream.Redis{}
	for name, do := range cases {
		logs[name] = connect(t, "redis://"+proxy.addr()+"?pool_size=20")
		var busy sync.WaitGroup
		for range conns {
			busy.Go(func() {
				if _, err := do(logs[name]); err != nil {
					t.Error(err)
				}
			})
		}
		busy.Wait()
	}
	swapRoles(t, a, b, proxy)
	xadd(t, b, "r", "*", "2")
	started(b, "r2")
	for name, do := range cases {
		if got, err := do(logs[name]); got != "2" || err != nil {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

// switcher is an address that leads to one server now and to another later; connections stay where they are.
type switcher struct {
	listener net.Listener
	target   atomic.Pointer[string]
	wg       sync.WaitGroup
}

func startSwitch(t *testing.T, target string) *switcher {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &switcher{listener: l}
	s.lead(target)
	t.Cleanup(func() { _ = l.Close(); s.wg.Wait() })
	s.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := (&net.Dialer{}).Dial("tcp", *s.target.Load())
			if err != nil {
				_ = in.Close()
				continue
			}
			s.wg.Go(func() { forward(in, out) })
			s.wg.Go(func() { forward(out, in) })
		}
	})
	return s
}

func forward(dst, src net.Conn) {
	_, _ = io.Copy(dst, src)
	_, _ = dst.Close(), src.Close()
}

func (s *switcher) addr() string { return s.listener.Addr().String() }

func (s *switcher) lead(target string) { s.target.Store(&target) }
