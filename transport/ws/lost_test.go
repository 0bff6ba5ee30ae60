package ws

import (
	"testing"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

// loseTail has the log forget what came behind a cursor, and something else follow.
func loseTail(t *testing.T, h *tt.Hub, kept string) {
	t.Helper()
	at, err := stream.ParseCursor(kept)
	if err != nil {
		t.Fatal(err)
	}
	h.Log.Lose("r1", at.Entry)
	h.Append(t, "r1", tt.Text("later"))
}

func TestALossUnderASocket(t *testing.T) {
	t.Run("is a reset on the hub's subprotocol, which stays open", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		kept := f.Append(t, "r1", tt.TextStart, tt.Text("a"))
		f.Append(t, "r1", tt.Text("lost"))
		p := f.dial(t, "/v1/runs/r1/ws", linesName)
		p.until("live")
		loseTail(t, f.Hub, kept)
		if n := names(p.until("live")); n != "reset attached catchup RUN_STARTED MESSAGES_SNAPSHOT STATE_SNAPSHOT TEXT_MESSAGE_START live" {
			t.Error(n)
		}
	})
	t.Run("is a reset also for who waits for a thread's next run", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		kept := f.Begin(t, "r1", "t1")
		f.Append(t, "r1", tt.TextStart, tt.TextEnd, tt.Finished("r1", "t1"))
		p := f.dial(t, "/v1/threads/t1/ws", linesName)
		p.until("ended")
		f.atRest()
		loseTail(t, f.Hub, kept)
		if l := p.until("reset"); l[0].Reason != "lost" {
			t.Error(l)
		}
	})
	t.Run("closes the bare subprotocol with 4410", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		kept := f.Append(t, "r1", tt.TextStart, tt.Text("a"))
		f.Append(t, "r1", tt.Text("lost"))
		p := f.dial(t, "/v1/runs/r1/ws", bareName)
		for range 4 {
			p.message()
		}
		loseTail(t, f.Hub, kept)
		if code, reason, more := p.closed(); code != 4410 || more != 0 {
			t.Error(code, reason, more)
		}
	})
}
