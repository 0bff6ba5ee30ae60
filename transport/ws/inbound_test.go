package ws

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/transport"
)

func (p *peer) send(kind websocket.MessageType, text string) {
	p.t.Helper()
	if err := p.Write(deadline(p.t), kind, []byte(text)); err != nil {
		p.t.Fatal(err)
	}
}

func TestControlLinesOfClients(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{})
	f.Begin(t, "r1", "t1")
	for _, c := range []struct {
		name, sent string
		want       []string // names, or the codes of errors
	}{
		{"a ping is answered", `{"control":"ping"}`, []string{"pong"}},
		{"unknown fields are ignored", `{"control":"ping","n":1}`, []string{"pong"}},
		{"a newline at the end is fine", "{\"control\":\"ping\"}\r\n", []string{"pong"}},
		{"each line is answered", "{\"control\":\"ping\"}\n{\"control\":\"x\"}\n\n{\"control\":\"ping\"}", []string{"pong", "unknown_control", "pong"}},
		{"cancel is unsupported where there is nobody to take it", `{"control":"cancel","reason":"enough"}`, []string{"unsupported"}},
		{"a token isn't taken yet", `{"control":"token","token":"x"}`, []string{"unsupported"}},
		{"an unknown one is an error", `{"control":"selfdestruct"}`, []string{"unknown_control"}},
		{"an event is an error", `{"type":"CUSTOM"}`, []string{"bad_line"}},
		{"a number is an error", `7`, []string{"bad_line"}},
		{"null is an error", `null`, []string{"bad_line"}},
		{"no JSON is an error", `ping`, []string{"bad_line"}},
		{"a control that is no string is an error", `{"control":1}`, []string{"bad_line"}},
		{"64 KiB are taken", `{"control":"ping","pad":"` + strings.Repeat("x", 64<<10-27) + `"}`, []string{"pong"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := f.dial(t, "/v1/runs/r1/ws", linesName)
			p.until("live")
			p.send(websocket.MessageText, c.sent)
			var got []string
			for len(got) < len(c.want) {
				for _, l := range linesOf(t, p.message()) {
					if l.Control == "error" {
						got = append(got, l.Code)
					} else {
						got = append(got, l.name())
					}
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Fatalf("got %v, want %v", got, c.want)
			}
		})
	}
	t.Run("a ping is answered before there is a run", func(t *testing.T) {
		p := f.dial(t, "/v1/runs/later/ws", linesName)
		p.send(websocket.MessageText, `{"control":"ping"}`)
		p.until("pong")
		f.Begin(t, "later", "t2")
		p.until("live")
	})
	t.Run("a flood of lines is answered whole", func(t *testing.T) {
		p := f.dial(t, "/v1/runs/r1/ws", linesName)
		p.until("live")
		const lines = 3000
		p.send(websocket.MessageText, strings.Repeat("{\"control\":\"ping\"}\n", lines))
		for n := 0; n < lines; {
			n += len(linesOf(t, p.message()))
		}
	})
	t.Run("the bare subprotocol ignores and counts", func(t *testing.T) {
		before := f.server.Figures().Ignored
		p := f.dial(t, "/v1/runs/r1/ws")
		for range 5 {
			p.send(websocket.MessageText, `{"control":"ping"}`)
		}
		p.drop(t)
		if err := p.Ping(deadline(t)); err != nil { // it is answered behind them
			t.Fatal(err)
		}
		if n := f.server.Figures().Ignored - before; n != 5 {
			t.Fatalf("%d counted", n)
		}
	})
	for name, path := range map[string]string{"a run that is there": "r1", "a run that is waited for": "never"} {
		t.Run("ping frames are answered with what they hold, on "+name, func(t *testing.T) {
			p := f.dial(t, "/v1/runs/"+path+"/ws")
			p.drop(t)
			for range 3 {
				if err := p.Ping(deadline(t)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestBadFrames(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{})
	f.Begin(t, "r1", "t1")
	for _, name := range []string{bareName, linesName} {
		for _, c := range []struct {
			name string
			kind websocket.MessageType
			size int
			unit string
			code websocket.StatusCode
		}{
			{"a binary message closes with 1003", websocket.MessageBinary, 3, "x", 1003},
			{"a large binary message closes with 1003", websocket.MessageBinary, 3 << 20, "x", 1003},
			{"a message over 64 KiB closes with 1009", websocket.MessageText, 64<<10 + 1, "x", 1009},
			{"a message far over 64 KiB closes with 1009", websocket.MessageText, 3 << 20, "x", 1009},
			{"a text message that isn't UTF-8 closes with 1007", websocket.MessageText, 1, "{\"control\":\"\xff\"}", 1007},
			{"half a surrogate pair is no UTF-8 and closes with 1007", websocket.MessageText, 1, "\xed\xa0\xbd", 1007},
		} {
			t.Run(c.name+" on "+name, func(t *testing.T) {
				p := f.dial(t, "/v1/runs/r1/ws", name)
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					_ = p.Write(deadline(t), c.kind, []byte(strings.Repeat(c.unit, c.size))) // it may be cut
				}()
				if code, _, _ := p.closed(); code != c.code {
					t.Fatal(code)
				}
				<-sent
			})
		}
	}
}

// raw is a client that writes frames itself.
type raw struct {
	net.Conn
	t    testing.TB
	head string // of the answer
}

func (f *fixture) raw(tb testing.TB, path, protocol string) *raw {
	tb.Helper()
	c, err := f.dialer(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	key := base64.StdEncoding.EncodeToString(make([]byte, 16))
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Protocol: %s\r\n\r\n", path, key, protocol); err != nil {
		tb.Fatal(err)
	}
	var head []byte
	for b := make([]byte, 1); !strings.HasSuffix(string(head), "\r\n\r\n"); head = append(head, b...) {
		if _, err := c.Read(b); err != nil {
			tb.Fatal(err)
		}
	}
	if !strings.HasPrefix(string(head), "HTTP/1.1 101 ") {
		tb.Fatalf("%s", head)
	}
	return &raw{c, tb, string(head)}
}

// frame reads a frame.
func (r *raw) frame() (op byte, payload []byte) {
	r.t.Helper()
	head := make([]byte, 2)
	if _, err := io.ReadFull(r, head); err != nil {
		r.t.Fatal(err)
	}
	size := uint64(head[1])
	switch size {
	case 126:
		b := make([]byte, 2)
		if _, err := io.ReadFull(r, b); err != nil {
			r.t.Fatal(err)
		}
		size = uint64(binary.BigEndian.Uint16(b))
	case 127:
		b := make([]byte, 8)
		if _, err := io.ReadFull(r, b); err != nil {
			r.t.Fatal(err)
		}
		size = binary.BigEndian.Uint64(b)
	}
	payload = make([]byte, size)
	if _, err := io.ReadFull(r, payload); err != nil {
		r.t.Fatal(err)
	}
	return head[0] &^ final, payload // with the reserved bits
}

// untilClose reads up to a close frame and returns its code.
func (r *raw) untilClose() int {
	r.t.Helper()
	for {
		if op, b := r.frame(); op == opClose {
			return int(binary.BigEndian.Uint16(b))
		}
	}
}

func (r *raw) write(b ...byte) {
	r.t.Helper()
	if _, err := r.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

// join is bytes behind one another.
func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestHostileFrames(t *testing.T) {
	for _, c := range []struct {
		name  string
		frame []byte
		code  int
	}{
		{"a frame without a mask", []byte{0x81, 2, '{', '}'}, 1002},
		{"an unknown opcode", []byte{0x83, 0x80, 0, 0, 0, 0}, 1002},
		{"a reserved bit", []byte{0xc1, 0x80, 0, 0, 0, 0}, 1002},
		{"a continuation of nothing", []byte{0x80, 0x80, 0, 0, 0, 0}, 1002},
		{"a binary frame of a terabyte that never comes", []byte{0x82, 0xff, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2}, 1003},
	} {
		t.Run(c.name+" closes the connection within a few seconds", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startInMemory(t, backfill.Config{}, transport.Config{})
				f.Begin(t, "r1", "t1")
				r := f.raw(t, "/v1/runs/r1/ws", linesName)
				r.write(c.frame...)
				if code := r.untilClose(); code != c.code {
					t.Fatal(code)
				}
				time.Sleep(closeWait + time.Second)
				synctest.Wait()
				if _, err := r.Read(make([]byte, 1)); err == nil {
					t.Fatal("still open")
				}
				if s := f.server.Figures(); s.Open != 0 {
					t.Fatalf("%+v", s)
				}
			})
		})
	}
}

// TestAMessageThatIsNotEnded: what it holds of memory is given back.
func TestAMessageThatIsNotEnded(t *testing.T) {
	for name, frame := range map[string][]byte{
		"in mid-frame":       {0x81, 0x85, 0, 0, 0, 0, 'a'},
		"between two frames": {0x01, 0x81, 0, 0, 0, 0, 'a'},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startInMemory(t, backfill.Config{}, transport.Config{PingEvery: time.Hour})
				f.Begin(t, "r1", "t1")
				r := f.raw(t, "/v1/runs/r1/ws", linesName)
				began := time.Now()
				r.write(frame...)
				if code := r.untilClose(); code != 4408 || time.Since(began) != messageWait {
					t.Error(code, time.Since(began))
				}
				synctest.Wait()
				if s := f.server.Figures(); s.Open != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestFarewells: a peer that closes is answered with its code, and one whose close frame there can't be with 1002.
func TestFarewells(t *testing.T) {
	for _, c := range []struct {
		name    string
		payload []byte
		want    []byte
	}{
		{"without a code", nil, nil},
		{"with one", []byte{0x03, 0xe8}, []byte{0x03, 0xe8}},
		{"with a reason", []byte("\x03\xe9gone"), []byte{0x03, 0xe9}},
		{"with one of its own", []byte{0x0f, 0xa0}, []byte{0x0f, 0xa0}},
		{"with one that was registered later", []byte{0x03, 0xf6}, []byte{0x03, 0xf6}},
		{"with half a code", []byte{0x03}, []byte{0x03, 0xea}},
		{"with one that is never sent", []byte{0x03, 0xed}, []byte{0x03, 0xea}},
		{"with one that there isn't", []byte{0xff, 0xff}, []byte{0x03, 0xea}},
		{"with a reason that isn't UTF-8", []byte("\x03\xe8\xff"), []byte{0x03, 0xea}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := start(t, backfill.Config{}, transport.Config{})
			f.Begin(t, "r1", "t1")
			r := f.raw(t, "/v1/runs/r1/ws", linesName)
			r.write(masked(final|opClose, c.payload)...)
			for {
				op, b := r.frame()
				if op != opClose {
					continue
				}
				if !bytes.Equal(b, c.want) {
					t.Errorf("answered with %x", b)
				}
				break
			}
			if bytes.Equal(c.want, []byte{0x03, 0xea}) {
				return // the hub waits a while for an answer
			}
			if _, err := r.Read(make([]byte, 1)); err == nil {
				t.Error("still open")
			}
		})
	}
}
