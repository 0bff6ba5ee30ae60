package stream_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryKeepsTheContract(t *testing.T) {
	t.Parallel()
	memory := func(log streamtest.Log) *stream.Memory { return log.(*stream.Memory) }
	streamtest.Run(t, streamtest.Backend{
		Open: func(t *testing.T) streamtest.Log {
			log, err := stream.NewMemory(stream.Config{})
			if err != nil {
				t.Fatal(err)
			}
			return log
		},
		SetWrongType: func(_ *testing.T, log streamtest.Log, run stream.RunID) { memory(log).SetWrongType(run) },
		AppendFields: func(t *testing.T, log streamtest.Log, key string, fields map[string]string) {
			if _, err := memory(log).AppendFields(key, fields); err != nil {
				t.Fatal(err)
			}
		},
		SetLease: func(_ *testing.T, log streamtest.Log, run stream.RunID, ttl time.Duration) {
			memory(log).SetLease(run, ttl)
		},
		Delete: func(_ *testing.T, log streamtest.Log, run stream.RunID) { memory(log).Delete(run) },
		Outage: func(_ *testing.T, log streamtest.Log, during func()) {
			memory(log).SetFault(stream.ErrUnavailable)
			during()
			memory(log).SetFault(nil)
		},
	})
}

// overRedis runs the suite over servers that start starts, one a test.
func overRedis(t *testing.T, scheme string, cfg stream.TailConfig, wakes string, start func(t *testing.T) (addr string, outage func(during func()))) {
	t.Helper()
	streamtest.Run(t, redisBackend(scheme, cfg, wakes, start))
}

func redisBackend(scheme string, cfg stream.TailConfig, wakes string, start func(t *testing.T) (addr string, outage func(during func()))) streamtest.Backend {
	addrs := make(map[streamtest.Log]string)
	outages := make(map[streamtest.Log]func(func()))
	return streamtest.Backend{
		Tail:  cfg,
		Wakes: wakes,
		Open: func(t *testing.T) streamtest.Log {
			addr, outage := start(t)
			log, err := stream.Connect(scheme+addr, stream.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := log.Close(); err != nil {
					t.Error(err)
				}
			})
			addrs[log], outages[log] = addr, outage
			return log
		},
		SetWrongType: func(t *testing.T, log streamtest.Log, run stream.RunID) {
			if err := streamtest.Client(t, addrs[log]).Set(t.Context(), log.Keys().Run(run), "text", 0).Err(); err != nil {
				t.Fatal(err)
			}
		},
		AppendFields: func(t *testing.T, log streamtest.Log, key string, fields map[string]string) {
			args := []any{"XADD", key, "*"}
			for k, v := range fields {
				args = append(args, k, v)
			}
			if err := streamtest.Client(t, addrs[log]).Do(t.Context(), args...).Err(); err != nil {
				t.Fatal(err)
			}
		},
		SetLease: func(t *testing.T, log streamtest.Log, run stream.RunID, ttl time.Duration) {
			if err := streamtest.Client(t, addrs[log]).Set(t.Context(), log.Keys().Aux(run, "lease"), "me:0", ttl).Err(); err != nil {
				t.Fatal(err)
			}
		},
		Delete: func(t *testing.T, log streamtest.Log, run stream.RunID) {
			if err := streamtest.Client(t, addrs[log]).Del(t.Context(), log.Keys().Run(run)).Err(); err != nil {
				t.Fatal(err)
			}
		},
		Outage: func(_ *testing.T, log streamtest.Log, during func()) { outages[log](during) },
	}
}

// startEmbedded starts the embedded server; its outage cuts all connections and refuses commands.
func startEmbedded(t *testing.T) (addr string, outage func(during func())) {
	e, err := stream.StartEmbedded("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e.Addr(), func(during func()) {
		e.SetFault("LOADING the data set")
		during()
		e.SetFault("")
	}
}

func startServer(t *testing.T) (addr string, outage func(during func())) {
	s := streamtest.StartRedis(t)
	return s.Addr(), func(during func()) {
		s.Kill()
		during()
		s.Start(t)
	}
}

func TestEmbeddedKeepsTheContract(t *testing.T) {
	t.Parallel()
	overRedis(t, "redis://", stream.TailConfig{}, "publish", startEmbedded)
}

func TestRedisKeepsTheContract(t *testing.T) {
	t.Parallel()
	overRedis(t, "redis://", stream.TailConfig{By: stream.TailXRead}, "", startServer)
}

func TestPollingRedisKeepsTheContract(t *testing.T) {
	t.Parallel()
	overRedis(t, "redis://", stream.TailConfig{By: stream.TailXRead, Poll: true}, "", startServer)
}

func TestWakeUpsKeepTheContract(t *testing.T) {
	for driver, events := range map[string]string{"keyspace": "Kt", "publish": ""} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			s := streamtest.StartRedis(t, "--notify-keyspace-events", events)
			streamtest.RunTails(t, redisBackend("redis://", stream.TailConfig{By: stream.TailWake}, driver, func(t *testing.T) (string, func(func())) {
				if err := s.Client(t).FlushAll(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				return s.Addr(), func(during func()) {
					s.Kill()
					during()
					s.Start(t)
				}
			}))
		})
	}
}
