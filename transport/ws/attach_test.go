package ws

import (
	"errors"
	"testing"

	"github.com/coder/websocket"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/transport"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

func asCloseError(err error, ce *websocket.CloseError) bool { return errors.As(err, ce) }

func TestAttach(t *testing.T) {
	t.Run("the hub's subprotocol gives the bracket, then live lines with cursors", func(t *testing.T) {
		f := start(t, backfill.Config{}, transport.Config{})
		f.Begin(t, "r1", "t1")
		f.Append(t, "r1", tt.TextStart, tt.Text("a"))
		p := f.dial(t, "/v1/runs/r1/ws", linesName)
		got := p.until("live")
		if n := names(got); n != "attached catchup RUN_STARTED MESSAGES_SNAPSHOT STATE_SNAPSHOT TEXT_MESSAGE_START live" {
			t.Fatal(n)
		}
		c := f.Append(t, "r1", tt.Text("b"))
		l := p.until("TEXT_MESSAGE_CONTENT")
		if l[0].ID != c || string(l[0].Event) != tt.Text("b") {
			t.Fatal(l[0].raw)
		}
		end := f.Append(t, "r1", tt.Finished("r1", "t1"))
		got = p.until("ended")
		if n := names(got); n != "TEXT_MESSAGE_END RUN_FINISHED skipped ended" || got[0].ID != "" || got[1].ID != end || got[2].ID != end {
			t.Fatal(n, got)
		}
		if code, _, _ := p.closed(); code != 1000 {
			t.Fatal(code)
		}
	})
}
