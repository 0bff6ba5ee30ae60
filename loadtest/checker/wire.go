package checker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
)

const (
	subprotocol = "ag-ui.hub.v1.json" // docs/contract.md, section 3
	// window is the receive buffer of a subscriber's socket: small, so that a pause reaches the hub soon.
	window = 64 << 10
	// maxMessage is the largest message that is read.
	maxMessage = 16 << 20
	// A reconnect waits for retryFirst and up to retrySpread more.
	retryFirst  = 20 * time.Millisecond
	retrySpread = 500 * time.Millisecond
)

// Wire is a way to attach.
type Wire int

// The ways. On Bare a reconnect is a fresh attach; it is for runs only.
const (
	Socket Wire = iota
	SSE
	Bare
)

// Follow follows the run until its end, or until ctx ends, coming back after each end of a connection.
func (s *Subscriber) Follow(ctx context.Context, wire Wire) {
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	for !s.ended && ctx.Err() == nil {
		if s.Figures.Connects++; s.Figures.Connects > 1 {
			s.Figures.Reconnects++
		}
		hubs := s.hubs()
		base := hubs[s.rng.IntN(len(hubs))]
		connection, stop := ctx, func() {}
		if s.habits.Leave > 0 {
			connection, stop = context.WithTimeout(ctx, s.random(2*s.habits.Leave))
		}
		var err error
		switch wire {
		case SSE:
			err = s.events(connection, client, base)
		case Bare:
			err = s.bare(connection, client, base)
		case Socket:
			err = s.socket(connection, client, base)
		}
		s.open, s.buffered = false, nil // cut before its end: it never was
		s.Figures.Closes[label(connection, err)]++
		stop()
		if s.ended {
			return
		}
		pause(ctx, retryFirst+s.random(retrySpread))
	}
}

func (s *Subscriber) random(most time.Duration) time.Duration {
	return time.Duration(s.rng.Int64N(int64(max(most, 1))))
}

// label names how a connection ended.
func label(connection context.Context, err error) string {
	var closed websocket.CloseError
	switch {
	case err == nil:
		return "ended"
	case connection.Err() != nil:
		return "left"
	case errors.As(err, &closed):
		return strconv.Itoa(int(closed.Code))
	case strings.HasPrefix(err.Error(), "status "):
		return err.Error()
	default:
		return "cut"
	}
}

func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		_ = tcp.SetReadBuffer(window)
	}
	return c, err
}

// nap pauses now and then.
func (s *Subscriber) nap(ctx context.Context, next *time.Time) {
	if s.habits.Pause == 0 || time.Now().Before(*next) {
		return
	}
	pause(ctx, s.random(s.habits.Nap))
	*next = time.Now().Add(s.random(2 * s.habits.Pause))
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// line is one line of the hub's subprotocol.
type line struct {
	ID      string          `json:"id"`
	Event   json.RawMessage `json:"event"`
	Control string          `json:"control"`
	Mode    string          `json:"mode"`
	From    string          `json:"from"`
	Omitted int             `json:"omitted"`
	Reason  string          `json:"reason"`
}

// socket is one connection over WebSocket.
func (s *Subscriber) socket(ctx context.Context, client *http.Client, base string) error {
	q := url.Values{"catchup": {[]string{"snapshot", "events", "auto"}[s.rng.IntN(3)]}}
	if s.cursor != "" {
		q.Set("after", s.cursor)
	}
	//nolint:bodyclose // the library has read the body of a refusal, and there is none otherwise
	ws, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(base, "http")+"/v1/"+s.target+"/ws?"+q.Encode(),
		&websocket.DialOptions{Subprotocols: []string{subprotocol}, HTTPClient: client})
	if err != nil {
		if resp != nil {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return err
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(maxMessage)
	next, brackets := time.Now().Add(s.random(2*s.habits.Pause)), 0
	for {
		_, data, err := ws.Read(ctx)
		if websocket.CloseStatus(err) == websocket.StatusNormalClosure && s.ended {
			return nil
		}
		if err != nil {
			return err
		}
		for raw := range bytes.SplitSeq(data, []byte("\n")) {
			var l line
			if err := json.Unmarshal(raw, &l); err != nil {
				return err
			}
			switch l.Control {
			case "live":
				if brackets++; brackets > 1 {
					s.Figures.Lags++
				}
			case "reset":
				brackets = 0
			}
			if err := s.line(&l); err != nil {
				return err
			}
		}
		if s.ended && s.last != "" { // a thread's socket stays open
			return nil
		}
		s.nap(ctx, &next)
	}
}

// line takes one line.
func (s *Subscriber) line(l *line) error {
	switch l.Control {
	case "":
		e := eventLine{id: l.ID}
		if err := json.Unmarshal(l.Event, &e.event); err != nil {
			return err
		}
		if s.open {
			s.buffered = append(s.buffered, e)
		} else {
			s.entry(e)
		}
	case "catchup":
		s.open, s.mode, s.from, s.buffered = true, l.Mode, l.From, nil
	case "live":
		s.bracket(l.ID, l.Omitted)
	case "reset":
		s.reset(l.Reason)
	case "ended":
		s.end()
	}
	return nil
}

// events is one connection over SSE. What comes without an id is held until one comes, as in a bracket.
func (s *Subscriber) events(ctx context.Context, client *http.Client, base string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/"+s.target+"/sse", http.NoBody)
	if err != nil {
		return err
	}
	if s.cursor != "" {
		req.Header.Set("Last-Event-ID", s.cursor)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNoContent:
		s.end()
		return nil
	default:
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	next := time.Now().Add(s.random(2 * s.habits.Pause))
	r := bufio.NewReaderSize(resp.Body, 64<<10)
	var id, name, data string
	for {
		text, err := r.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) && s.ended {
				return nil
			}
			return err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(text, "\n"), ": ")
		switch field {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			data = value
		case "":
			if text != "\n" {
				continue // a comment
			}
			if err := s.block(id, name, data); err != nil {
				return err
			}
			if id, name, data = "", "", ""; s.ended && s.last != "" {
				return nil
			}
			s.nap(ctx, &next)
		}
	}
}

// omitted is whether the bracket may have left out CUSTOM events, which isn't said over SSE: at least 1 where it holds about
// as many bytes of them as one holds at most.
func (s *Subscriber) omitted() int {
	n := 0
	for _, l := range s.buffered {
		if l.event.Type == "CUSTOM" {
			n += l.size
		}
	}
	return n / fullBracket
}

// fullBracket is what CUSTOM events a bracket that left out some holds at least, in bytes: docs/contract.md, section 2, less a large one.
const fullBracket = 256<<10 - 16<<10

// block takes one block.
func (s *Subscriber) block(id, name, data string) error {
	if name == "reset" {
		var l line
		if err := json.Unmarshal([]byte(data), &l); err != nil {
			return err
		}
		s.reset(l.Reason)
		return nil
	}
	e := eventLine{id: id, size: len(data)}
	if data != "" {
		if err := json.Unmarshal([]byte(data), &e.event); err != nil {
			return err
		}
	}
	terminal := e.event.Type == "RUN_FINISHED"
	switch {
	case id != "" && data != "":
		for _, held := range s.buffered { // closings of the entry
			s.entry(held)
		}
		s.buffered = nil
		s.entry(e)
	case id != "":
		s.mode, s.from = "snapshot", s.cursor
		if s.cursor == "" {
			s.mode = "fresh"
		} else if len(s.buffered) == 0 {
			s.mode = "events"
		}
		terminal = len(s.buffered) > 0 && s.buffered[len(s.buffered)-1].event.Type == "RUN_FINISHED"
		s.bracket(id, s.omitted())
	case data != "":
		s.buffered = append(s.buffered, e)
		terminal = false
	}
	if terminal {
		s.end()
	}
	return nil
}
