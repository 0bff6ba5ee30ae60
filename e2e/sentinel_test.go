package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/coder/websocket"
)

// sentinel is a subscriber on ag-ui.hub.v1.json that tells how far a hub has come: an attach after it is at that entry or behind.
type sentinel struct {
	conn *websocket.Conn
	done chan struct{} // closed when the reader has ended

	mu      sync.Mutex
	at      string // the newest entry id that the hub told
	err     error  // why it ended; nil for a normal close
	over    bool
	changed chan struct{} // closed and replaced at every change
}

func watch(ctx context.Context, base, target string) (*sentinel, error) {
	conn, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(base, "http")+"/v1/"+target+"/ws", &websocket.DialOptions{Subprotocols: []string{"ag-ui.hub.v1.json"}})
	if err != nil {
		return nil, fmt.Errorf("sentinel: %w", err)
	}
	if resp.Body != nil {
		_ = resp.Body.Close()
	}
	conn.SetReadLimit(64 << 20)
	s := &sentinel{conn: conn, done: make(chan struct{}), changed: make(chan struct{})}
	go s.read(ctx)
	return s, nil
}

func (s *sentinel) read(ctx context.Context) {
	defer close(s.done)
	for {
		_, message, err := s.conn.Read(ctx)
		if err != nil {
			if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
				err = nil
			}
			s.change(func() { s.over, s.err = true, err })
			return
		}
		for line := range bytes.SplitSeq(message, []byte{'\n'}) {
			var l struct{ ID string }
			if json.Unmarshal(line, &l) == nil && l.ID != "" {
				entry, _, _ := strings.Cut(l.ID, ".")
				s.change(func() { s.at = entry })
			}
		}
	}
}

func (s *sentinel) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	close(s.changed)
	s.changed = make(chan struct{})
}

// reached waits until the hub has come to an entry, or the run's subscribers were let go.
func (s *sentinel) reached(ctx context.Context, entry string) error {
	for {
		s.mu.Lock()
		at, over, err, changed := s.at, s.over, s.err, s.changed
		s.mu.Unlock()
		switch {
		case at == entry || (over && err == nil):
			return nil
		case over:
			return fmt.Errorf("sentinel: %w", err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("sentinel: the hub never came to %s, it is at %s: %w", entry, at, ctx.Err())
		}
	}
}

func (s *sentinel) close() {
	_ = s.conn.CloseNow()
	<-s.done
}
