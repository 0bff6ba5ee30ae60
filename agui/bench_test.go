package agui_test

import (
	"fmt"
	"testing"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/oracle"
)

// longRun is a run of n events whose conversation weighs about 20 KB, whatever n.
func longRun(n int) [][]byte {
	lines := [][]byte{
		[]byte(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`),
		[]byte(`{"type":"STATE_SNAPSHOT","snapshot":{"n":0}}`),
		[]byte(`{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`),
	}
	every := max(1, n/2000)
	for i := len(lines); i < n; i++ {
		if i%every == 0 {
			lines = append(lines, []byte(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"ten bytes."}`))
		} else {
			lines = append(lines, fmt.Appendf(nil, `{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/n","value":%d}]}`, i))
		}
	}
	return lines
}

func fold(b *testing.B, streams [][][]byte) {
	b.Helper()
	events, bytes := 0, 0
	for _, s := range streams {
		for _, l := range s {
			events++
			bytes += len(l)
		}
	}
	b.ReportAllocs()
	b.SetBytes(int64(bytes))
	for b.Loop() {
		for _, s := range streams {
			run := agui.NewRun(nil, agui.RunConfig{})
			for _, l := range s {
				run.Apply(agui.Entry{Event: l})
			}
		}
	}
	b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(events), "events/op")
}

// BenchmarkFold is admission and fold together: what a feed spends on an entry.
func BenchmarkFold(b *testing.B) {
	b.Run("text deltas", func(b *testing.B) {
		lines := longRun(3)
		for range 10_000 {
			lines = append(lines, []byte(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a few words "}`))
		}
		fold(b, [][][]byte{lines})
	})
	b.Run("a run of 100,000 events", func(b *testing.B) { fold(b, [][][]byte{longRun(100_000)}) })
	b.Run("the corpus", func(b *testing.B) {
		var streams [][][]byte
		for _, s := range oracle.Corpus(b) {
			streams = append(streams, s.Lines)
		}
		fold(b, streams)
	})
}

// BenchmarkPreamble is what an attach costs where nobody asked at this entry before: it must not grow with the events.
func BenchmarkPreamble(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("%d events", n), func(b *testing.B) {
			run := agui.NewRun(nil, agui.RunConfig{})
			for _, l := range longRun(n) {
				run.Apply(agui.Entry{Event: l})
			}
			delta := agui.Entry{Event: []byte(`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/n","value":1}]}`)}
			size := 0
			b.ReportAllocs()
			for b.Loop() {
				run.Apply(delta) // so that no view is left over
				size = 0
				for _, e := range run.View().Preamble().Past {
					size += len(e)
				}
			}
			b.ReportMetric(float64(size), "preamble-bytes")
		})
	}
}
