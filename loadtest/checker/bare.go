package checker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// bare is one connection over WebSocket without the hub's subprotocol: nothing but events, so that what a snapshot covers
// is told by the counters in it, and each connection begins with nothing.
func (s *Subscriber) bare(ctx context.Context, client *http.Client, base string) error {
	//nolint:bodyclose // the library has read the body of a refusal, and there is none otherwise
	ws, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(base, "http")+"/v1/"+s.target+"/ws", &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		if resp != nil {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return err
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(maxMessage)
	s.view = newView()
	s.note(step{kind: resetStep, bare: true})
	next := time.Now().Add(s.random(2 * s.habits.Pause))
	var past bracketOfBare
	for {
		_, data, err := ws.Read(ctx)
		if websocket.CloseStatus(err) == websocket.StatusNormalClosure && s.ended {
			return nil
		}
		if err != nil {
			return err
		}
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return err
		}
		if !past.takes(s.view, &e) {
			past.close(s)
		}
		s.apply(&e)
		switch n := e.counter(); {
		case e.Type == "RUN_FINISHED":
			past.close(s)
			s.ended = true
			s.note(step{kind: endStep, bare: true})
		case n > 0 && !past.open:
			s.Figures.Deliveries++
			s.note(step{kind: entryStep, bare: true, n: n})
		}
		s.nap(ctx, &next)
	}
}

// bracketOfBare is a preamble, or a catch-up after lag, as far as it can be told from what is live.
type bracketOfBare struct {
	open  bool
	state bool // its state came
}

// takes says whether an event belongs to the past.
func (b *bracketOfBare) takes(v *view, e *event) bool {
	switch e.Type {
	case "MESSAGES_SNAPSHOT":
		b.open, b.state = true, false
		return true
	case "STATE_SNAPSHOT":
		first := b.open && !b.state
		b.state = true
		return first
	case "CUSTOM":
		return b.open && e.counter() <= v.newest()
	case "TEXT_MESSAGE_CONTENT", "RUN_FINISHED":
		return false
	}
	return true // it has no counter
}

// close ends the past at the newest counter that it held.
func (b *bracketOfBare) close(s *Subscriber) {
	if n := s.view.newest(); b.open && n > 0 {
		s.Figures.Brackets++
		s.note(step{kind: bracketStep, bare: true, n: n, fresh: true, digest: s.view.digest()})
	}
	b.open = false
}

// newest is the greatest counter in the view.
func (v *view) newest() int {
	n := v.state
	for _, text := range v.texts {
		words := strings.Fields(string(text))
		if len(words) == 0 {
			continue
		}
		if last, err := strconv.Atoi(words[len(words)-1]); err == nil {
			n = max(n, last)
		}
	}
	return n
}
