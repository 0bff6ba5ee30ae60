package stream_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
)

func connect(t *testing.T, url string) *stream.Redis {
	t.Helper()
	log, err := stream.Connect(url, stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return log
}

func TestConnectRefusesURLsWithoutRepeatingPasswords(t *testing.T) {
	for _, url := range []string{
		"", "localhost:6379", "http://x", "redis+ring://x", "redis://:secret/x@host", "redis://u:12/secret@host:1", "redis://u:se%zzcret@h",
		"redis://host/notanumber", "redis://host/1/2", "redis://host?unknown=1", "redis+sentinel://host:26379",
		"redis+sentinel://host?master_name=m&replica_only=true", "redis+cluster://host?read_only=true", "redis+cluster://host?addr=nope",
	} {
		log, err := stream.Connect(url, stream.Config{})
		if !errors.Is(err, stream.ErrBadURL) {
			t.Errorf("%q: %v", url, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error tells the password: %v", url, err)
		}
		if log != nil {
			_ = log.Close()
		}
	}
	if _, err := stream.Connect("redis://localhost", stream.Config{KeyPrefix: "A"}); err == nil {
		t.Error("a bad prefix is taken")
	}
	for _, url := range []string{
		"redis://localhost", "rediss://u:p@h:1/2", "redis://[::1]:6379/0?pool_size=5", "redis+sentinel://s1:26379/1?master_name=m&addr=s2:26379&username=u&password=p",
		"rediss+sentinel://s1?master_name=m", "redis+cluster://h:7000?addr=h:7001&addr=h:7002", "rediss+cluster://h",
	} {
		log, err := stream.Connect(url, stream.Config{})
		if err != nil {
			t.Errorf("%q: %v", url, err)
			continue
		}
		_ = log.Close()
	}
}

func TestClusterKeepsTheContract(t *testing.T) {
	t.Parallel()
	// One server for all tests: a new cluster takes two seconds until it serves.
	s := streamtest.StartRedis(t, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--notify-keyspace-events", "Kt")
	client := s.Client(t)
	if err := client.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	awaitServing := func() {
		streamtest.Eventually(t, "the cluster serves", func() bool {
			info, err := client.ClusterInfo(t.Context()).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok")
		})
	}
	overRedis(t, "redis+cluster://", stream.TailConfig{}, "keyspace", func(t *testing.T) (string, func(func())) {
		awaitServing()
		if err := client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		return s.Addr(), func(during func()) {
			s.Kill()
			during()
			s.Start(t)
			awaitServing()
		}
	})
}

func TestATailTakesFewConnectionsAndLeavesNoKeys(t *testing.T) {
	server := streamtest.StartRedis(t)
	log, client := connect(t, server.URL()), server.Client(t)
	tail := log.NewTail(stream.TailConfig{})
	stopTail := streamtest.RunTail(t, tail)
	var stops []func()
	for i := range 300 {
		stops = append(stops, tail.Follow(stream.RunID("few-"+string(rune('a'+i%26))+strings.Repeat("x", i/26)), stream.ID{}, func(stream.Batch) {}))
	}
	blocked := func() int {
		list, err := client.ClientList(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(list, "cmd=xread")
	}
	streamtest.Eventually(t, "three readers are blocked", func() bool { return blocked() == 3 })
	if n, err := client.ClientList(t.Context()).Result(); err != nil || strings.Count(n, "\n") > 9 {
		t.Errorf("connections:\n%s%v", n, err)
	}
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if ttl := client.TTL(t.Context(), key).Val(); ttl <= 0 || ttl > time.Minute || !strings.HasPrefix(key, "{agui:tail:") {
			t.Errorf("key %q stays for %v", key, ttl)
		}
	}
	for _, stop := range stops {
		stop()
	}
	stopTail()
	streamtest.Eventually(t, "the readers' connections are closed", func() bool { return blocked() == 0 })
}

func TestAKeyThatTurnsIntoAnotherTypeSpoilsNoOther(t *testing.T) {
	server := streamtest.StartRedis(t)
	log, client := connect(t, server.URL()), server.Client(t)
	tail := log.NewTail(stream.TailConfig{Block: time.Second})
	streamtest.RunTail(t, tail)
	turns, stays := streamtest.NewCollector(), streamtest.NewCollector()
	t.Cleanup(tail.Follow("turns", stream.ID{}, turns.Sink))
	t.Cleanup(tail.Follow("stays", stream.ID{}, stays.Sink))
	add := func(run stream.RunID) {
		t.Helper()
		if _, err := log.Append(t.Context(), run, stream.Record{Event: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	add("turns")
	add("stays")
	turns.Wait(t, 1)
	stays.Wait(t, 1)
	if err := client.Set(t.Context(), "agui:run:turns", "text", 0).Err(); err != nil {
		t.Fatal(err)
	}
	add("stays")
	if errs := turns.WaitErr(t, 1); !errors.Is(errs[0], stream.ErrWrongType) {
		t.Fatal(errs)
	}
	add("stays")
	stays.Wait(t, 3)
	if !tail.Healthy() {
		t.Error(tail.LastError())
	}
}

func TestAnAppendWhoseAnswerIsLostIsNotSentAgain(t *testing.T) {
	server := streamtest.StartRedis(t)
	direct := connect(t, server.URL())
	if err := direct.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy := startDeafProxy(t, server.Addr())
	log := connect(t, "redis://"+proxy+"?read_timeout=5s")
	for i, recs := range [][]stream.Record{{{Event: []byte("1")}}, {{Event: []byte("1")}, {Event: []byte("2")}}} {
		run := stream.RunID("lost-" + string(rune('0'+i)))
		_, err := log.Append(t.Context(), run, recs...)
		failed, ok := errors.AsType[*stream.AppendError](err)
		if !ok || failed.Appended != 0 || !errors.Is(err, stream.ErrUnavailable) {
			t.Fatalf("%v", err)
		}
		streamtest.Eventually(t, "the append arrives", func() bool {
			bounds, err := direct.Bounds(t.Context(), run)
			return err == nil && bounds[0].Len > 0
		})
		bounds, err := direct.Bounds(t.Context(), run)
		if err != nil || bounds[0].Len != int64(len(recs)) {
			t.Fatalf("%+v, %v: want %d entries", bounds, err, len(recs))
		}
	}
}

// startDeafProxy forwards to addr, and once XADD has gone through it cuts the connection before the answer.
func startDeafProxy(t *testing.T, addr string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { forwardDeaf(conn, addr) })
		}
	})
	return l.Addr().String()
}

func forwardDeaf(conn net.Conn, addr string) {
	defer func() { _ = conn.Close() }()
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var wg sync.WaitGroup
	defer wg.Wait()
	var mu sync.Mutex
	deaf := false
	wg.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			mu.Lock()
			if !deaf && n > 0 {
				_, _ = conn.Write(buf[:n])
			}
			cut := deaf && n > 0 || err != nil
			mu.Unlock()
			if cut {
				_ = conn.Close()
				_ = server.Close()
				return
			}
		}
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			mu.Lock()
			deaf = deaf || strings.Contains(strings.ToLower(string(buf[:n])), "xadd")
			mu.Unlock()
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				_ = server.Close()
			}
			return
		}
	}
}

func TestRedisOutOfMemoryIsErrFullAndNothingIsWritten(t *testing.T) {
	server := streamtest.StartRedis(t, "--maxmemory", "1")
	log := connect(t, server.URL())
	for n := 1; n <= 2; n++ {
		_, err := log.Append(t.Context(), "full", make([]stream.Record, n)...)
		if failed, ok := errors.AsType[*stream.AppendError](err); !ok || failed.Appended != 0 || !errors.Is(err, stream.ErrFull) {
			t.Errorf("append of %d: %v", n, err)
		}
	}
}

func TestDeniedKeysAreErrDenied(t *testing.T) {
	server := streamtest.StartRedis(t, "--user", "agent", "on", ">pw", "~agui:run:mine", "+@all")
	log := connect(t, "redis://agent:pw@"+server.Addr())
	if _, err := log.Append(t.Context(), "mine", stream.Record{Event: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append(t.Context(), "other", stream.Record{Event: []byte("{}")}); !errors.Is(err, stream.ErrDenied) {
		t.Errorf("append: %v", err)
	}
	if err := connect(t, "redis://agent:no@"+server.Addr()).Ping(t.Context()); !errors.Is(err, stream.ErrDenied) {
		t.Errorf("ping with a wrong password: %v", err)
	}
}

func TestEmbeddedExpiresKeysAndWakesReaders(t *testing.T) {
	e, err := stream.StartEmbedded("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	log, client := connect(t, e.URL()), streamtest.Client(t, e.Addr())
	tail := log.NewTail(stream.TailConfig{Block: time.Hour})
	streamtest.RunTail(t, tail)
	c := streamtest.NewCollector()
	t.Cleanup(tail.Follow("r", stream.ID{}, c.Sink))
	for i := range 3 {
		if err := client.Do(t.Context(), "XADD", "agui:run:r", "*", "event", "{}").Err(); err != nil {
			t.Fatal(err)
		}
		c.Wait(t, i+1) // patience is less than a block: only a wake-up helps
	}
	if err := client.PExpire(t.Context(), "agui:run:r", 30*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	streamtest.Eventually(t, "the key expires", func() bool {
		bounds, err := log.Bounds(t.Context(), "r")
		return err == nil && !bounds[0].Exists
	})
}

func TestEmbeddedListensOnLoopbackOnly(t *testing.T) {
	for _, addr := range []string{"", ":0", "0.0.0.0:0", "[::]:0", "example.com:0", "192.0.2.1:0"} {
		if e, err := stream.StartEmbedded(addr); err == nil {
			e.Close()
			t.Errorf("it listens on %q", addr)
		}
	}
}
