package transport_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aguihub/aguihub/transport"
)

// The rule: what net/http refuses before anybody is asked is counted, too, and nothing else is.
func TestConnectionsThatNeverAskAreCounted(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	lender := httptest.NewTLSServer(ok)
	certificates := lender.TLS.Certificates
	lender.Close()
	serve := func(withTLS bool, patience, idle time.Duration) string {
		server := &http.Server{
			Handler: ok, ReadHeaderTimeout: patience, IdleTimeout: idle, MaxHeaderBytes: 16 << 10,
			TLSConfig: &tls.Config{Certificates: certificates}, ErrorLog: log.New(io.Discard, "", 0),
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		watched := transport.WatchHeads(server, l)
		go func() {
			if withTLS {
				done <- server.ServeTLS(watched, "", "")
				return
			}
			done <- server.Serve(watched)
		}()
		t.Cleanup(func() {
			_ = server.Shutdown(context.Background())
			if err := <-done; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
		return l.Addr().String()
	}
	// Who is to be in time always is, however slow this machine: but for a first request, or a handshake, of one who is too
	// late behind it, which have two seconds.
	const soon, later = 300 * time.Millisecond, 2 * time.Second
	plain, encrypted, plainIdle := serve(false, time.Minute, time.Minute), serve(true, time.Minute, time.Minute), serve(false, time.Minute, soon)
	plainSoon, encryptedSoon := serve(false, soon, time.Minute), serve(true, soon, time.Minute)
	plainLater, encryptedLater := serve(false, later, time.Minute), serve(true, later, time.Minute)
	const request = "GET / HTTP/1.1\r\nHost: a\r\n"
	for name, c := range map[string]struct {
		address    string
		overTLS    bool
		send, more string // more once the first answer is there
		slow, big  uint64
	}{
		"nothing is sent":                   {address: plainSoon, slow: 1},
		"a handshake isn't begun":           {address: encryptedSoon, slow: 1},
		"nothing is sent behind it":         {address: encryptedLater, overTLS: true, slow: 1},
		"a header doesn't end":              {address: plainSoon, send: request, slow: 1},
		"a header doesn't end, over TLS":    {address: encryptedSoon, overTLS: true, send: request, slow: 1},
		"a header is too large":             {address: plain, send: request + "X: " + strings.Repeat("x", 40<<10), big: 1},
		"a header is too large, over TLS":   {address: encrypted, overTLS: true, send: request + "X: " + strings.Repeat("x", 40<<10), big: 1},
		"one is answered":                   {address: plain, send: request + "Connection: close\r\n\r\n"},
		"one is answered, and no more come": {address: plainIdle, send: request + "\r\n"},
		"the second doesn't end":            {address: plainLater, send: request + "\r\n", more: request, slow: 1},
		"the second is too large":           {address: encrypted, overTLS: true, send: request + "\r\n", more: request + "X: " + strings.Repeat("x", 40<<10), big: 1},
		"what is sent is no HTTP":           {address: plain, send: "hello\r\n\r\n"},
		"what is sent is no TLS":            {address: encrypted, send: request + "\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			before := transport.Rejects()
			var conn net.Conn
			conn, err := net.Dial("tcp", c.address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if c.overTLS {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			}
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			_, _ = io.WriteString(conn, c.send) // the server may close before it has all
			r := bufio.NewReader(conn)
			if c.overTLS && c.send == "" {
				if err := conn.(*tls.Conn).Handshake(); err != nil {
					t.Fatal(err)
				}
			}
			if c.more != "" {
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				_, _ = io.WriteString(conn, c.more)
			}
			_, _ = io.Copy(io.Discard, r) // until the server has had enough
			_ = conn.Close()
			want := maps.Clone(before)
			want["slow_handshake"] += c.slow
			want["headers"] += c.big
			for deadline := time.Now().Add(time.Minute); !maps.Equal(transport.Rejects(), want); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("counted %v, want %v", transport.Rejects(), want)
				}
			}
		})
	}
}
