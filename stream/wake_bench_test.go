package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
)

var cpuLine = regexp.MustCompile(`(?m)^used_cpu_(?:sys|user):([\d.]+)`)

// redisSeconds is the CPU time that the server has used.
func redisSeconds(b *testing.B, client *redis.Client) (sum float64) {
	b.Helper()
	info, err := client.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for _, m := range cpuLine.FindAllStringSubmatch(info, -1) {
		seconds, _ := strconv.ParseFloat(m[1], 64)
		sum += seconds
	}
	return sum
}

// BenchmarkTail5000Runs has 2,000 events of 230 bytes a second spread over 5,000 active runs, and tells what Redis spends on
// each and how long it takes from before its XADD to the follower. Beside the tails it has the bounds: the XADDs alone, and
// the events themselves in a PUBLISH with each XADD.
func BenchmarkTail5000Runs(b *testing.B) {
	const runs, perTick = 5000, 4
	for _, way := range []struct {
		name, events string
		by           stream.TailBy // empty: no tail
		publish      string        // what is published with each event
	}{
		{name: "xadd-only"},
		{name: "payload-in-pubsub", publish: "payload"},
		{name: "keyspace", events: "Kt", by: stream.TailWake},
		{name: "publish", by: stream.TailWake, publish: "wake"},
		{name: "xread", by: stream.TailXRead},
	} {
		b.Run(way.name, func(b *testing.B) {
			s := streamtest.StartRedis(b, "--notify-keyspace-events", way.events)
			client := s.Client(b)
			var got atomic.Int64
			var late atomic.Int64 // ns, all together
			seen := func(event []byte) {
				sent, _, _ := bytes.Cut(event, []byte(" "))
				at, _ := strconv.ParseInt(string(sent), 10, 64)
				late.Add(time.Now().UnixNano() - at)
				got.Add(1)
			}
			event := func() string {
				return fmt.Sprintf("%-230s", strconv.FormatInt(time.Now().UnixNano(), 10)+" ")
			}
			add := func(from, n int) {
				pipe := client.Pipeline()
				for i := from; i < from+n; i++ {
					run, event := "bench-"+strconv.Itoa(i%runs), event()
					pipe.XAdd(b.Context(), &redis.XAddArgs{Stream: "agui:run:" + run, Values: []any{"event", event}})
					switch way.publish {
					case "wake":
						pipe.Publish(b.Context(), "agui:wake", run)
					case "payload":
						pipe.Publish(b.Context(), "payload:"+run, event)
					}
				}
				if _, err := pipe.Exec(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			add(0, runs)
			stop := benchReaders(b, s, client, way.by, way.publish, runs, seen)
			add(0, runs)
			if way.by != "" || way.publish == "payload" {
				streamtest.Eventually(b, "all is read", func() bool { return got.Load() >= int64(runs) })
				time.Sleep(time.Second) // the runs that changed their shards have done so
			}
			got.Store(0)
			late.Store(0)
			before, sent := redisSeconds(b, client), 0
			tick := time.NewTicker(perTick * time.Second / 2000)
			defer tick.Stop()
			for b.Loop() {
				if sent%perTick == 0 {
					<-tick.C
				}
				add(sent*7919, 1) // a prime: neighbours in time are no neighbours
				sent++
			}
			if way.by != "" || way.publish == "payload" {
				streamtest.Eventually(b, "all is read", func() bool { return got.Load() >= int64(sent) })
				b.ReportMetric(float64(late.Load())/float64(sent)/1e6, "ms-late/event")
			}
			b.ReportMetric((redisSeconds(b, client)-before)*1e6/float64(sent), "redis-µs/event")
			stop()
		})
	}
}

// benchReaders follows all runs in the way that is measured.
func benchReaders(b *testing.B, s *streamtest.Server, client *redis.Client, by stream.TailBy, publish string, runs int, seen func([]byte)) (stop func()) {
	b.Helper()
	switch {
	case by != "":
		log, err := stream.Connect(s.URL(), stream.Config{})
		if err != nil {
			b.Fatal(err)
		}
		tail := log.NewTail(stream.TailConfig{By: by})
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- tail.Run(ctx) }()
		for i := range runs {
			run := stream.RunID("bench-" + strconv.Itoa(i))
			bounds, err := log.Bounds(b.Context(), run)
			if err != nil {
				b.Fatal(err)
			}
			tail.Follow(run, bounds[0].Last.ID, func(batch stream.Batch) {
				for _, e := range batch.Entries {
					seen(e.Event)
				}
			})
		}
		if by == stream.TailWake {
			streamtest.Eventually(b, "wake-ups come", func() bool { return tail.Health().Wakes.By != "" })
		}
		return func() {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				b.Error(err)
			}
			_ = log.Close()
		}
	case publish == "payload":
		channels := make([]string, runs)
		for i := range channels {
			channels[i] = "payload:bench-" + strconv.Itoa(i)
		}
		sub := client.Subscribe(b.Context(), channels...)
		for range runs {
			if _, err := sub.Receive(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				m, err := sub.Receive(context.Background())
				if err != nil {
					return
				}
				if m, ok := m.(*redis.Message); ok {
					seen([]byte(m.Payload))
				}
			}
		}()
		return func() { _ = sub.Close(); <-done }
	default:
		return func() {}
	}
}
