package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
)

// benchLog is a log in memory with its tail, as a Service wants it.
type benchLog struct {
	*stream.Memory
	*stream.Tail
}

// BenchmarkAttach is an attach, or a reconnect by a cursor in the middle of the run, from the request to the end of its
// bracket, on a hub that follows the run already: time and bytes must not grow with the events. The conversation weighs 20
// KB. A fresh attach must not weigh more than 1.1 times the snapshots that it carries.
func BenchmarkAttach(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("%d events", n), func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			memory, err := stream.NewMemory(stream.Config{})
			if err != nil {
				b.Fatal(err)
			}
			tail := memory.NewTail(stream.TailConfig{})
			ended := make(chan error, 1)
			go func() { ended <- tail.Run(ctx) }()
			service := backfill.New(ctx, benchLog{memory, tail}, memory.NewRegistry(tail), stream.ID{}, backfill.Config{Name: "bench"}, zap.NewNop())
			defer func() {
				service.Close()
				cancel()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					b.Error(err)
				}
			}()
			middle := writeLongRun(b, memory, n)
			bytes, snapshots := 0, 0
			attach := func(after string) {
				session, err := service.Attach(ctx, backfill.Request{Run: "long", After: after})
				if err != nil {
					b.Fatal(err)
				}
				defer session.Close()
				bytes, snapshots = 0, 0
				for live := false; !live; {
					items, err := session.Next(ctx)
					if err != nil {
						b.Fatal(err)
					}
					for _, it := range items {
						bytes += len(it.Event) + len(it.Line)
						if strings.Contains(string(it.Event), "_SNAPSHOT") {
							snapshots += len(it.Event)
						}
						live = live || it.Control == backfill.ControlLive
					}
				}
			}
			attach("") // the cold one reads the run
			for name, after := range map[string]string{"attach": "", "reconnect": middle} {
				b.Run(name, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						attach(after)
					}
					b.ReportMetric(float64(bytes), "bytes/attach")
					b.ReportMetric(float64(bytes)/float64(max(snapshots, 1)), "x-snapshots")
					if after == "" && bytes*10 > snapshots*11 {
						b.Errorf("%d bytes for snapshots of %d", bytes, snapshots)
					}
				})
			}
		})
	}
}

// writeLongRun returns a cursor in the middle of the run.
func writeLongRun(b *testing.B, log *stream.Memory, n int) string {
	b.Helper()
	recs := longRun(n)
	ids, err := log.Append(b.Context(), "long", recs...)
	if err != nil {
		b.Fatal(err)
	}
	return stream.Cursor{Entry: ids[n/2], Sum: stream.Checksum(recs[n/2].Event)}.String()
}

func longRun(n int) []stream.Record {
	recs := []stream.Record{
		{Event: []byte(`{"type":"RUN_STARTED","threadId":"t","runId":"long","input":{"threadId":"t","runId":"long","messages":[],"tools":[],"context":[],"state":{},"forwardedProps":{}}}`)},
		{Event: []byte(`{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`)},
		{Event: []byte(`{"type":"STATE_SNAPSHOT","snapshot":{"n":0}}`)},
	}
	text := min(n/2, 2000)
	for i := len(recs); i < n; i++ {
		if i%(n/text) == 0 {
			recs = append(recs, stream.Record{Event: fmt.Appendf(nil, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"%0*d"}`, 20_000/text, i)})
		} else {
			recs = append(recs, stream.Record{Event: fmt.Appendf(nil, `{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/n","value":%d}]}`, i)})
		}
	}
	return recs
}
