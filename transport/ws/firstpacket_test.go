package ws

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/transport"
)

// TestFramesRightBehindTheHandshake: what came in one packet with the request is read, also where that is half a frame, and
// however the request's headers are written.
func TestFramesRightBehindTheHandshake(t *testing.T) {
	f := start(t, backfill.Config{}, transport.Config{})
	f.Begin(t, "r1", "t1")
	frames := join(masked(final|opPing, []byte("first")), masked(opText, []byte(`{"control":`)), masked(final, []byte(`"ping"}`)))
	for name, head := range map[string]string{
		"plain":            "Connection: Upgrade\r\nUpgrade: websocket\r\n",
		"in other cases":   "connection: keep-alive, UPGRADE\r\nUPGRADE: WebSocket\r\n",
		"on several lines": "Connection: keep-alive\r\nConnection: ,upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n",
	} {
		for _, cut := range []int{0, 1, 3, 12, 20, len(frames)} {
			t.Run(fmt.Sprintf("%s, %d bytes", name, cut), func(t *testing.T) {
				c, err := f.dialer(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				request := "GET /v1/runs/r1/ws HTTP/1.1\r\nHost: localhost\r\n" + head + "Sec-WebSocket-Version: 13\r\n" +
					"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: ag-ui.bearer.x\r\nSec-WebSocket-Protocol: " + linesName + "\r\n\r\n"
				if _, err := c.Write(slices.Concat([]byte(request), frames[:cut])); err != nil {
					t.Fatal(err)
				}
				in := bufio.NewReader(c)
				resp, err := http.ReadResponse(in, nil)
				if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Sec-Websocket-Protocol") != linesName {
					t.Fatal(resp, err)
				}
				if _, err := c.Write(frames[cut:]); err != nil {
					t.Fatal(err)
				}
				want := [][]byte{[]byte("\x8a\x05first"), pongLine}
				for got := []byte(nil); !bytes.Contains(got, want[0]) || !bytes.Contains(got, want[1]); {
					b := make([]byte, 512)
					n, err := in.Read(b)
					if err != nil {
						t.Fatalf("%v, after %q", err, got)
					}
					got = append(got, b[:n]...)
				}
			})
		}
	}
	t.Run("HTTP/1.0 is refused", func(t *testing.T) {
		c, err := f.dialer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "GET /v1/runs/r1/ws HTTP/1.0\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
		if b, _ := io.ReadAll(c); !strings.HasPrefix(string(b), "HTTP/1.0 426 ") {
			t.Errorf("%s", b)
		}
	})
}
