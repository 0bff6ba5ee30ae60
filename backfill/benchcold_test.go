package backfill_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
)

// coldLog is a log in Redis with a tail that isn't run: what is there is all.
type coldLog struct {
	*stream.Redis
	*stream.Tail
}

// BenchmarkColdAttach is an attach on a hub that has never seen the run, over a real server: with a checkpoint the time
// must not grow with the events. The conversation weighs 20 KB.
func BenchmarkColdAttach(b *testing.B) {
	server := streamtest.StartRedis(b)
	for _, n := range []int{100, 10_000, 100_000} {
		log, err := stream.Connect(server.URL(), stream.Config{KeyPrefix: fmt.Sprintf("n%d", n)})
		if err != nil {
			b.Fatal(err)
		}
		for _, off := range []bool{true, false} {
			b.Run(fmt.Sprintf("%d events, checkpoints %t", n, !off), func(b *testing.B) { benchCold(b, log, n, off) })
		}
		if err := log.Close(); err != nil {
			b.Error(err)
		}
	}
}

func benchCold(b *testing.B, log *stream.Redis, n int, off bool) {
	b.Helper()
	attach := func(settle bool) {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		tail := log.NewTail(stream.TailConfig{})
		config := backfill.Config{Name: "bench", Store: log, NoCheckpoints: off}
		service := backfill.New(ctx, coldLog{log, tail}, log.NewRegistry(tail), stream.ID{}, config, zap.NewNop())
		defer service.Close()
		session, err := service.Attach(ctx, backfill.Request{Run: "long"})
		if err != nil {
			b.Fatal(err)
		}
		defer session.Close()
		if _, err := session.Next(ctx); err != nil {
			b.Fatal(err)
		}
		for limit := time.Now().Add(5 * time.Second); settle && service.KeepFigures().Written == 0 && time.Now().Before(limit); {
			<-time.After(10 * time.Millisecond)
		}
	}
	page, err := log.Range(b.Context(), "long", stream.ID{}, 1, 1)
	if err != nil {
		b.Fatal(err)
	}
	if len(page.Entries) == 0 {
		recs := longRun(n)
		for len(recs) > 0 {
			part := recs[:min(1000, len(recs))]
			if _, err := log.Append(b.Context(), "long", part...); err != nil {
				b.Fatal(err)
			}
			recs = recs[len(part):]
		}
	}
	attach(!off && n > 1000) // writes a checkpoint
	b.ReportAllocs()
	for b.Loop() {
		attach(false)
	}
}
