package ws

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/transport"
)

// TestAPeerThatSendsTooMuchIsToldAndClosed: neither messages nor pings may keep a hub busy (I6).
func TestAPeerThatSendsTooMuchIsToldAndClosed(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{MaxInboundRate: 2})
	f.Begin(t, "r1", "t1")
	other := f.dial(t, "/v1/runs/r1/ws", linesName)
	other.until("live")
	var pings sync.WaitGroup
	defer pings.Wait()
	for _, c := range []struct {
		name, protocol string
		flood          func(p *peer) error
	}{
		{"messages", linesName, func(p *peer) error {
			return p.Write(deadline(t), websocket.MessageText, []byte(`{"control":"ping"}`))
		}},
		{"messages on the bare subprotocol", bareName, func(p *peer) error { return p.Write(deadline(t), websocket.MessageText, []byte(`x`)) }},
		{"pings", linesName, func(p *peer) error {
			ctx := deadline(t)
			pings.Go(func() { _ = p.Ping(ctx) }) // it waits for the pong, or the end
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := f.dial(t, "/v1/runs/r1/ws", c.protocol)
			for range 40 {
				if c.flood(p) != nil {
					break // closed already
				}
			}
			var all strings.Builder
			for {
				_, text, err := p.Read(deadline(t))
				if err != nil {
					if code := websocket.CloseStatus(err); code != websocket.StatusCode(transport.CloseConnections) {
						t.Errorf("closed with %d: %v", code, err)
					}
					break
				}
				all.Write(text)
			}
			if told := strings.Contains(all.String(), `"code":"message_rate"`); told != (c.protocol == linesName) {
				t.Errorf("told why: %v", told)
			}
		})
	}
	f.Append(t, "r1", `{"type":"CUSTOM","name":"n","value":1}`)
	if got := other.message(); !strings.Contains(got, "CUSTOM") {
		t.Errorf("another subscriber got %s", got)
	}
}

// TestFramesThatWeighNothing: nor may frames that hold next to nothing.
func TestFramesThatWeighNothing(t *testing.T) {
	const most = 1 << 10
	f := start(t, backfill.Config{}, transport.Config{MaxInbound: most})
	f.Begin(t, "r1", "t1")
	for _, c := range []struct {
		name string
		sent []byte
		code int
	}{
		{"pongs that nobody asked for", bytes.Repeat(masked(final|opPong, nil), 1000), int(transport.CloseConnections)},
		{"a message of empty frames", join(masked(opText, nil), bytes.Repeat(masked(0, nil), most)), int(transport.CloseTooBig)},
		{"a message of as many as may be", join(masked(opText, nil), bytes.Repeat(masked(0, nil), most-2), masked(final, nil), masked(final|opClose, []byte{0x0f, 0xa0})), 4000},
		{"some pongs", join(bytes.Repeat(masked(final|opPong, nil), 50), masked(final|opClose, []byte{0x0f, 0xa0})), 4000},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := f.raw(t, "/v1/runs/r1/ws", linesName)
			r.write(c.sent...)
			if code := r.untilClose(); code != c.code {
				t.Error(code)
			}
		})
	}
}

// FuzzControlLine: whatever a client sends is answered or ignored; nothing but a known line has an effect.
func FuzzControlLine(f *testing.F) {
	for _, line := range []string{`{"control":"ping"}`, `{"control":"cancel","reason":"x"}`, `{"control":"token","token":"x"}`, `{"control":1}`, `[]`, "\xff", `{"control":null}`, `{"CONTROL":"ping"}`} {
		f.Add([]byte(line))
	}
	fix := start(f, backfill.Config{}, transport.Config{})
	c := newConn(fix.server, lines)
	var caller transport.Caller
	c.caller.Store(&caller)
	f.Fuzz(func(t *testing.T, line []byte) {
		if strings.Contains(strings.ToLower(string(line)), "token") {
			return // needs a grant: FuzzVerify has it
		}
		answer := c.answer(t.Context(), line)
		if answer == nil {
			t.Fatalf("%q had an effect: nobody here takes cancels", line)
		}
		if strings.Contains(string(answer), "\n") || !strings.HasPrefix(string(answer), `{"control":"`) {
			t.Fatalf("%q is answered with %q", line, answer)
		}
	})
}
