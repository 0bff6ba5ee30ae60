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

// BenchmarkColdAttach is an attach, and a reconnect of one who misses the newest ten entries, on a hub that has never seen
// the run, over a real server: with a checkpoint the time must not grow with the events. The conversation weighs 20 KB.
func BenchmarkColdAttach(b *testing.B) {
	server := streamtest.StartRedis(b)
	for _, n := range []int{100, 10_000, 100_000} {
		log, err := stream.Connect(server.URL(), stream.Config{KeyPrefix: fmt.Sprintf("n%d", n)})
		if err != nil {
			b.Fatal(err)
		}
		for _, off := range []bool{true, false} {
			for _, missed := range []int{0, 10} {
				name := [...]string{"attach", "reconnect"}[min(missed, 1)]
				b.Run(fmt.Sprintf("%d events, checkpoints %t/%s", n, !off, name), func(b *testing.B) { benchCold(b, log, n, missed, off) })
			}
		}
		if err := log.Close(); err != nil {
			b.Error(err)
		}
	}
}

func benchCold(b *testing.B, log *stream.Redis, n, missed int, off bool) {
	b.Helper()
	var after string // "" attaches afresh
	attach := func(settle bool) {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		tail := log.NewTail(stream.TailConfig{})
		config := backfill.Config{Name: "bench", Store: log, NoCheckpoints: off}
		service := backfill.New(ctx, coldLog{log, tail}, log.NewRegistry(tail), stream.ID{}, config, zap.NewNop())
		defer service.Close()
		session, err := service.Attach(ctx, backfill.Request{Run: "long", After: after})
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
	if missed > 0 {
		after = cursorBack(b, log, missed)
	}
	b.ReportAllocs()
	for b.Loop() {
		attach(false)
	}
}

// cursorBack is the cursor of one who misses the newest entries.
func cursorBack(b *testing.B, log *stream.Redis, missed int) string {
	b.Helper()
	var all []stream.Entry
	var last stream.ID
	for page := (stream.Page{More: true}); page.More; {
		var err error
		if page, err = log.Range(b.Context(), "long", last, 1000, 1<<22); err != nil {
			b.Fatal(err)
		}
		all = append(all, page.Entries...)
		last = all[len(all)-1].ID
	}
	e := all[len(all)-1-missed]
	return stream.Cursor{Entry: e.ID, Sum: stream.Checksum(e.Event)}.String()
}
