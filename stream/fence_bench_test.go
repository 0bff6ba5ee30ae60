package stream_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
)

// cpu is what Redis has used of a processor, in seconds.
func cpu(b *testing.B, s *streamtest.Server) float64 {
	b.Helper()
	info, err := s.Client(b).InfoMap(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	var user, system float64
	for _, part := range info {
		_, _ = fmt.Sscan(part["used_cpu_user_main_thread"], &user)
		_, _ = fmt.Sscan(part["used_cpu_sys_main_thread"], &system)
	}
	return user + system
}

func benchLog(b *testing.B) (*streamtest.Server, *stream.Redis) {
	b.Helper()
	s := streamtest.StartRedis(b)
	log, err := stream.Connect(s.URL(), stream.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = log.Close() })
	return s, log
}

// BenchmarkAppend compares an append with a fenced one, of one event and of sixteen.
func BenchmarkAppend(b *testing.B) {
	rec := stream.Record{Event: []byte(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"a word, or two"}`)}
	for _, n := range []int{1, 16} {
		recs := make([]stream.Record, n)
		for i := range recs {
			recs[i] = rec
		}
		b.Run(fmt.Sprintf("plain/%d", n), func(b *testing.B) {
			s, log := benchLog(b)
			before := cpu(b, s)
			for b.Loop() {
				if _, err := log.Append(b.Context(), "r", recs...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((cpu(b, s)-before)*1e9/float64(b.N), "redis-ns/op")
		})
		b.Run(fmt.Sprintf("fenced/%d", n), func(b *testing.B) {
			s, log := benchLog(b)
			got, err := log.Claim(b.Context(), "r", stream.Claim{Producer: "p", TTL: time.Hour})
			if err != nil {
				b.Fatal(err)
			}
			before, seq := cpu(b, s), uint64(0)
			for b.Loop() {
				a := stream.FencedAppend{Fence: got.Fence, Seq: seq, Floor: seq, TTL: time.Hour}
				if _, err := log.AppendFenced(b.Context(), "r", a, recs...); err != nil {
					b.Fatal(err)
				}
				seq += uint64(n)
			}
			b.ReportMetric((cpu(b, s)-before)*1e9/float64(b.N), "redis-ns/op")
		})
	}
}

// BenchmarkKeep is one look at the control streams of 1,000 runs, without and with renewing their leases.
func BenchmarkKeep(b *testing.B) {
	const runs = 1000
	for _, renew := range []bool{false, true} {
		b.Run(fmt.Sprintf("renew=%v", renew), func(b *testing.B) {
			s, log := benchLog(b)
			holds := make([]stream.Hold, runs)
			for i := range holds {
				run := stream.RunID(fmt.Sprintf("r%d", i))
				got, err := log.Claim(b.Context(), run, stream.Claim{Producer: "p", TTL: time.Hour})
				if err != nil {
					b.Fatal(err)
				}
				holds[i] = stream.Hold{Run: run, Fence: got.Fence, Renew: renew, TTL: time.Hour}
			}
			before := cpu(b, s)
			for b.Loop() {
				if _, err := log.Keep(b.Context(), holds); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((cpu(b, s)-before)*1e9/float64(b.N), "redis-ns/op")
		})
	}
}

// BenchmarkLeases is one look of a hub at 10,000 runs that go on.
func BenchmarkLeases(b *testing.B) {
	s, log := benchLog(b)
	runs := make([]stream.RunID, 10_000)
	for i := range runs {
		runs[i] = stream.RunID(fmt.Sprintf("r%d", i))
		if _, err := log.Claim(b.Context(), runs[i], stream.Claim{Producer: "p", TTL: time.Hour}); err != nil {
			b.Fatal(err)
		}
	}
	before := cpu(b, s)
	for b.Loop() {
		if _, err := log.Leases(b.Context(), runs...); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((cpu(b, s)-before)*1e9/float64(b.N), "redis-ns/op")
}
