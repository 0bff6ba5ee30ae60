package ingest_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport/ingest"
)

// by sets the header fields that make a retry safe.
func by(producer string, epoch, seq int) func(*http.Request) {
	return func(req *http.Request) {
		req.Header.Set("Aguihub-Producer", producer)
		req.Header.Set("Aguihub-Epoch", strconv.Itoa(epoch))
		req.Header.Set("Aguihub-Seq", strconv.Itoa(seq))
	}
}

func TestARetryIsSafe(t *testing.T) {
	in := `{"input":` + runInput + `}`
	t.Run("of a whole body, as often as one likes", func(t *testing.T) {
		r := inMemory(t)
		var last string
		for range 3 {
			rep := r.post(t, lines, strings.NewReader(nd(in, started, open1, content1)), by("p", 1, 0))
			want(t, rep.short(), "200  3")
			if last != "" {
				want(t, rep.LastID, last)
			}
			last = rep.LastID
		}
		r.wantEvents(t, started, open1, content1)
	})
	t.Run("of a body of which a part had arrived", func(t *testing.T) {
		r := inMemory(t)
		want(t, r.post(t, lines, strings.NewReader(nd(started, open1)+content1[:10]), by("p", 1, 0)).short(), "400 truncated 2")
		want(t, r.post(t, lines, strings.NewReader(nd(started, open1, content1)), by("p", 1, 0)).short(), "200  3")
		want(t, r.post(t, lines, strings.NewReader(nd(content1, close1)), by("p", 1, 2)).short(), "200  2")
		r.wantEvents(t, started, open1, content1, close1)
	})
	t.Run("whatever became of an answer that was lost", func(t *testing.T) {
		for _, kept := range []bool{false, true} {
			log := memory(t)
			r := newRig(t, log, ingest.Config{})
			log.setLoss(stream.ErrUnavailable, kept)
			want(t, r.post(t, lines, strings.NewReader(nd(started, open1)), by("p", 1, 0)).short(), "503 append_uncertain 0")
			log.setLoss(nil, false)
			want(t, r.post(t, lines, strings.NewReader(nd(started, open1)), by("p", 1, 0)).short(), "200  2")
			r.wantEvents(t, started, open1)
		}
	})
	t.Run("of an event stream in which some are rejected", func(t *testing.T) {
		r := inMemory(t)
		body := sent(started, `no`, open1, content1, `no`)
		want(t, r.post(t, sse, strings.NewReader(body), by("p", 1, 0)).short(), "200  3 [1  not_json] [4  not_json]")
		want(t, r.post(t, sse, strings.NewReader(body), by("p", 1, 0)).short(), "200  5") // all are dealt with
		want(t, r.post(t, sse, strings.NewReader(sent(close1)), by("p", 1, 5)).short(), "200  1")
		r.wantEvents(t, started, open1, content1, close1)
	})
	t.Run("of the end", func(t *testing.T) {
		r := inMemory(t)
		for range 2 {
			want(t, r.post(t, lines, strings.NewReader(nd(started, finished)), by("p", 1, 0)).short(), "200  2")
		}
		want(t, r.post(t, lines, strings.NewReader(nd(open1)), by("p", 1, 2)).short(), "409 run_ended 0")
		want(t, r.post(t, lines, strings.NewReader(nd(finished, open1)), by("p", 1, 1)).short(), "409 run_ended 1 [1  after_end]")
		want(t, r.post(t, lines, strings.NewReader(nd(open1)), by("p", 2, 0)).short(), "409 run_ended 0")
		r.wantEvents(t, started, finished)
		want(t, r.states(t), "r1:started@t1 r1:finished@t1")
	})
	t.Run("and a gap is refused", func(t *testing.T) {
		r := inMemory(t)
		want(t, r.post(t, lines, strings.NewReader(nd(started)), by("p", 1, 1)).short(), "409 sequence_gap 0")
		want(t, r.post(t, lines, strings.NewReader(nd(started)), by("p", 1, 0)).short(), "200  1")
		want(t, r.post(t, lines, strings.NewReader(nd(open1)), by("p", 1, 2)).short(), "409 sequence_gap 0")
		r.wantEvents(t, started)
	})
	t.Run("only where all header fields are there and can be read", func(t *testing.T) {
		r := inMemory(t)
		for name, set := range map[string]func(*http.Request){
			"one":        func(req *http.Request) { req.Header.Set("Aguihub-Seq", "0") },
			"two":        func(req *http.Request) { by("p", 1, 0)(req); req.Header.Del("Aguihub-Epoch") },
			"one twice":  func(req *http.Request) { by("p", 1, 0)(req); req.Header.Add("Aguihub-Seq", "0") },
			"epoch 0":    by("p", 0, 0),
			"below 0":    by("p", 1, -1),
			"no number":  func(req *http.Request) { by("p", 1, 0)(req); req.Header.Set("Aguihub-Epoch", "x") },
			"a bad name": by("p:1", 1, 0), "no name": by("", 1, 0), "a long name": by(strings.Repeat("p", 129), 1, 0),
		} {
			if got := r.post(t, lines, strings.NewReader(nd(started)), set).short(); got != "400 bad_sequence 0" {
				t.Errorf("%s: %s", name, got)
			}
		}
		r.wantEvents(t)
	})
}

func TestOfTwoWritersTheOlderIsRefused(t *testing.T) {
	t.Run("by its epoch", func(t *testing.T) {
		r := inMemory(t)
		want(t, r.post(t, lines, strings.NewReader(nd(started)), by("p", 1, 0)).short(), "200  1")
		want(t, r.post(t, lines, strings.NewReader(nd(open1)), by("q", 1, 0)).short(), "409 fenced 0")
		want(t, r.post(t, lines, strings.NewReader(nd(open1)), by("q", 2, 0)).short(), "200  1")
		want(t, r.post(t, lines, strings.NewReader(nd(content1)), by("p", 1, 1)).short(), "409 fenced 0")
		r.wantEvents(t, started, open1)
	})
	t.Run("in the middle of its body, where the other writes through another hub", func(t *testing.T) {
		log := memory(t)
		a, b := newRig(t, log, ingest.Config{}), newRig(t, log, ingest.Config{})
		w, got := a.live(t, lines)
		write(t, w, nd(started))
		a.waitFor(t, 1)
		want(t, b.post(t, lines, strings.NewReader(nd(open1))).short(), "200  1")
		write(t, w, nd(open1))
		want(t, (<-got).short(), "409 fenced 1")
		_ = w.Close()
		// One after the other they may take turns.
		want(t, a.post(t, lines, strings.NewReader(nd(content1))).short(), "200  1")
		want(t, b.post(t, lines, strings.NewReader(nd(close1))).short(), "200  1")
		a.wantEvents(t, started, open1, content1, close1)
	})
}

// TestARequestWhoseConnectionIsLostIsInNobodysWay sends at one hub what a network does that forgets connections without a word:
// the request stays open, and nothing comes.
func TestARequestWhoseConnectionIsLostIsInNobodysWay(t *testing.T) {
	begin := func(t *testing.T, cfg ingest.Config) (*rig, *io.PipeWriter, <-chan reply) {
		t.Helper()
		r := newRig(t, memory(t), cfg)
		w, got := r.live(t, lines, by("p", 1, 0))
		write(t, w, nd(started)+open1[:10])
		r.waitFor(t, 1)
		return r, w, got
	}
	t.Run("neither in that of its producer's retry", func(t *testing.T) {
		r, w, got := begin(t, ingest.Config{TurnTimeout: 100 * time.Millisecond})
		want(t, r.post(t, lines, strings.NewReader(nd(started, open1)), by("p", 1, 0)).short(), "200  2")
		want(t, (<-got).short(), "409 fenced 1")
		_ = w.Close()
		r.wantEvents(t, started, open1)
	})
	t.Run("nor at once in that of a later epoch", func(t *testing.T) {
		r, w, got := begin(t, ingest.Config{TurnTimeout: time.Hour})
		want(t, r.post(t, lines, strings.NewReader(nd(open1)), by("q", 2, 0)).short(), "200  1")
		want(t, (<-got).short(), "409 fenced 1")
		_ = w.Close()
		r.wantEvents(t, started, open1)
	})
	t.Run("but it is where the other is nobody's retry", func(t *testing.T) {
		r, w, got := begin(t, ingest.Config{TurnTimeout: 50 * time.Millisecond})
		want(t, r.post(t, lines, strings.NewReader(nd(open1)), by("q", 1, 0)).short(), "409 run_busy 0")
		want(t, r.post(t, lines, strings.NewReader(nd(open1))).short(), "409 run_busy 0")
		write(t, w, open1[10:]+"\n")
		_ = w.Close()
		want(t, (<-got).short(), "200  2")
	})
	t.Run("and where it isn't silent its producer's next one waits", func(t *testing.T) {
		r, w, got := begin(t, ingest.Config{TurnTimeout: patience})
		next, then := r.live(t, lines, by("p", 1, 2))
		write(t, next, nd(content1))
		write(t, w, open1[10:]+"\n")
		_ = w.Close()
		want(t, (<-got).short(), "200  2")
		_ = next.Close()
		want(t, (<-then).short(), "200  1")
		r.wantEvents(t, started, open1, content1)
	})
}

func TestALeaseIsHeldWhileARequestPublishesAndAfter(t *testing.T) {
	log := memory(t)
	r := newRig(t, log, ingest.Config{})
	held := func() stream.Lease {
		t.Helper()
		ls, err := log.Leases(t.Context(), "r1")
		if err != nil {
			t.Fatal(err)
		}
		return ls[0]
	}
	w, got := r.live(t, lines)
	write(t, w, nd(started))
	r.waitFor(t, 1)
	if l := held(); !l.Held || l.Epoch != 1 {
		t.Fatalf("%+v", l)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	<-got
	if l := held(); !l.Held || l.Ended {
		t.Fatalf("%+v", l)
	}
	want(t, r.post(t, lines, strings.NewReader(nd(finished))).short(), "200  1")
	if l := held(); l.Held || !l.Ended {
		t.Fatalf("%+v", l)
	}
}

// counting is a log that counts the entries that are read.
type counting struct {
	*lossy
	read int
}

func (c *counting) Range(ctx context.Context, run stream.RunID, after stream.ID, maxEntries, maxBytes int) (stream.Page, error) {
	page, err := c.lossy.Range(ctx, run, after, maxEntries, maxBytes)
	c.read += len(page.Entries) + 1
	return page, err
}

func TestManySmallRequestsReadTheRunOnce(t *testing.T) {
	log := &counting{lossy: memory(t)}
	r := newRig(t, log, ingest.Config{})
	want(t, r.post(t, lines, strings.NewReader(nd(started, open1))).short(), "200  2")
	const n = 200
	for range n {
		want(t, r.post(t, jsonType, strings.NewReader(content1)).short(), "200  1")
	}
	if log.read > 2*n {
		t.Fatalf("%d requests read %d entries", n, log.read)
	}
	// What somebody else wrote is seen all the same.
	if _, err := log.Append(t.Context(), "r1", stream.Record{Event: []byte(close1)}); err != nil {
		t.Fatal(err)
	}
	want(t, r.post(t, jsonType, strings.NewReader(content1)).short(), "422 invalid_event 0 [0  illegal]")
	log.Delete("r1")
	want(t, r.post(t, jsonType, strings.NewReader(content1)).short(), "422 invalid_event 0 [0  before_start]")
}
