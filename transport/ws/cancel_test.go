package ws

import (
	"context"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
	"github.com/aguihub/aguihub/transport"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

// canceller takes cancels, and fails with err.
type canceller struct {
	asked chan string
	err   error
}

func (c *canceller) Cancel(_ context.Context, run stream.RunID, reason, by string) error {
	c.asked <- string(run) + " " + reason + " " + by
	return c.err
}

func TestCancel(t *testing.T) {
	t.Run("reaches the run of the attach and isn't answered", func(t *testing.T) {
		c := &canceller{asked: make(chan string, 10)}
		f := start(t, backfill.Config{}, transport.Config{Canceller: c})
		f.Begin(t, "r1", "t1")
		p := f.dial(t, "/v1/runs/r1/ws", linesName)
		p.until("live")
		p.send(websocket.MessageText, `{"control":"cancel","reason":"Enough."}`+"\n"+`{"control":"cancel"}`+"\n"+`{"control":"ping"}`)
		if got := names(p.until("pong")); got != "pong" {
			t.Error(got)
		}
		if a, b := <-c.asked, <-c.asked; a != "r1 Enough. anonymous" || b != "r1  anonymous" {
			t.Error(a, b)
		}
	})
	t.Run("reaches the run that a thread is at", func(t *testing.T) {
		c := &canceller{asked: make(chan string, 10)}
		f := start(t, backfill.Config{}, transport.Config{Canceller: c})
		p := f.dial(t, "/v1/threads/t1/ws", linesName)
		p.until("attached")
		p.send(websocket.MessageText, `{"control":"cancel"}`)
		if got := p.until("error"); got[len(got)-1].Code != "unknown_run" {
			t.Error(got)
		}
		for _, run := range []string{"r1", "r2"} {
			f.Begin(t, run, "t1")
			p.until("live")
			p.send(websocket.MessageText, `{"control":"cancel"}`)
			if got := <-c.asked; got != run+"  anonymous" {
				t.Error(got)
			}
			f.Append(t, run, tt.Finished(run, "t1"))
			p.until("ended")
		}
	})
	t.Run("that can't be is answered with why", func(t *testing.T) {
		c := &canceller{asked: make(chan string, 10)}
		f := start(t, backfill.Config{}, transport.Config{Canceller: c})
		f.Begin(t, "r1", "t1")
		p := f.dial(t, "/v1/runs/r1/ws", linesName)
		p.until("live")
		for _, x := range []struct {
			err    error
			reason string
			code   string
		}{
			{stream.ErrRunEnded, "", "run_ended"},
			{stream.ErrUnavailable, "", "redis_unavailable"},
			{context.DeadlineExceeded, "", "timeout"},
			{nil, strings.Repeat("x", 1001), "bad_reason"},
		} {
			c.err = x.err
			p.send(websocket.MessageText, `{"control":"cancel","reason":"`+x.reason+`"}`)
			if got := p.until("error"); got[len(got)-1].Code != x.code {
				t.Errorf("%s: %v", x.code, got)
			}
		}
	})
	t.Run("isn't understood on the bare subprotocol", func(t *testing.T) {
		c := &canceller{asked: make(chan string, 10)}
		f := start(t, backfill.Config{}, transport.Config{Canceller: c})
		f.Begin(t, "r1", "t1")
		p := f.dial(t, "/v1/runs/r1/ws")
		p.send(websocket.MessageText, `{"control":"cancel"}`)
		streamtest.Eventually(t, "it is counted", func() bool { return f.server.Figures().Ignored == 1 })
		if len(c.asked) > 0 {
			t.Error("it was")
		}
	})
}

func TestAStallIsToldOnce(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{})
	f.Begin(t, "r1", "t1")
	f.Begin(t, "r2", "t2")
	p, bare, thread := f.dial(t, "/v1/runs/r1/ws", linesName), f.dial(t, "/v1/runs/r1/ws"), f.dial(t, "/v1/threads/t1/ws", linesName)
	p.until("live")
	thread.until("live")
	stall := func(since int64) {
		for range 3 { // as a reaper does, at each look
			f.Service.Stalled("r1", since)
		}
	}
	stall(7)
	for _, tab := range []*peer{p, thread} {
		if got := tab.until("stalled"); names(got) != "stalled" || !strings.Contains(got[0].raw, `"since":7`) {
			t.Error(got)
		}
	}
	f.Service.Stalled("nobody", 7)
	late := f.dial(t, "/v1/runs/r1/ws", linesName)
	late.until("live")
	stall(7)
	if got := late.until("stalled"); names(got) != "stalled" {
		t.Error(got)
	}
	f.Append(t, "r1", tt.TextStart) // it is back
	p.until("TEXT_MESSAGE_START")
	stall(9)
	if got := p.until("stalled"); names(got) != "stalled" || !strings.Contains(got[0].raw, `"since":9`) {
		t.Error(got)
	}
	f.Append(t, "r1", tt.TextEnd, tt.Finished("r1", "t1"))
	if got := names(p.until("ended")); strings.Contains(got, "stalled") {
		t.Error(got)
	}
	for {
		_, m, err := bare.Read(deadline(t))
		if err != nil {
			break
		}
		if strings.Contains(string(m), "stalled") {
			t.Errorf("on the bare subprotocol: %s", m)
		}
	}
}
