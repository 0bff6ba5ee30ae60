package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/coder/websocket"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

const (
	hubProtocol = "ag-ui.hub.v1.json" // docs/contract.md, section 3
	maxFrame    = 64 << 20            // one event may be larger than the 256 KiB of a message; conversations are bounded by the hub
)

// attachCommand prints what a subscriber sees.
type attachCommand struct {
	ID      string `arg:"" name:"run" help:"The run's id, or the thread's with --thread."`
	Thread  bool   `help:"The id names a thread: its runs are followed one after another, without an end."`
	From    string `default:"snapshot" enum:"snapshot,start" help:"What comes first: snapshots of what has been, or the run's own events from its first one: snapshot or start (${default})."`
	After   string `placeholder:"CURSOR" help:"Go on after this cursor, as --lines shows them."`
	Catchup string `default:"events" enum:"events,snapshot,auto" help:"How to be brought on after a cursor: by the missed events while they are few, by snapshots, or by the smaller: events, snapshot or auto (${default})."`
	Head    string `placeholder:"RUN" help:"Follow this run's branch of the thread."`
	Raw     bool   `help:"Include RAW events of the past."`
	Lines   bool   `help:"Print the lines of the wire as they come: events with their cursors, and control lines."`
	hubFlag

	cursor    string // of what was printed last
	connected bool   // at least once
	attached  bool   // since it connected last
	unbegun   bool   // entries were skipped before that: none of them begins the run
}

// line is an event line or a control line.
type line struct {
	Event   json.RawMessage `json:"event"`
	Control string          `json:"control"`
	Reason  string          `json:"reason"`
	ID      string          `json:"id"`
}

// comeBack is for how long a lost hub is looked for, and how long the pauses grow.
const (
	comeBack = 2 * time.Minute
	maxPause = 5 * time.Second
)

// patience is after what silence a person is told what is waited for.
const patience = time.Second

// Run implements the subcommand. It returns at the run's end, or when ctx ends. A connection that was lost, or closed with
// a code that invites to come back, is made anew from the cursor.
func (c *attachCommand) Run(ctx context.Context, con stdio) error {
	if c.After != "" {
		if _, err := stream.ParseCursor(c.After); err != nil {
			return usagef("--after %q: a cursor is <entry id>.<8 hex digits>, as attach --lines shows it in \"id\": %w", c.After, err)
		}
	}
	c.cursor = c.After
	lost := time.Now()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, maxPause) {
		before := c.cursor
		err := c.follow(ctx, con)
		if c.cursor != before {
			lost, pause = time.Now(), 100*time.Millisecond
		}
		if err == nil || ctx.Err() != nil || !c.connected || !again(err) || time.Since(lost) > comeBack {
			return err
		}
		_, _ = fmt.Fprintf(con.err, "%v; coming back\n", err)
		t := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-ctx.Done():
			t.Stop()
			return interrupted()
		case <-t.C:
		}
	}
}

// again says whether a lost connection may be made anew: docs/contract.md, section 3.
func again(err error) bool {
	var ce websocket.CloseError
	if !errors.As(err, &ce) {
		return errors.Is(err, errLost)
	}
	return slices.Contains([]websocket.StatusCode{1001, 1005, 1006, 1011, 1012, 1013, 1015, 4408, 4429}, ce.Code)
}

// follow attaches once and prints until the socket ends.
func (c *attachCommand) follow(ctx context.Context, con stdio) error {
	u, err := c.target()
	if err != nil {
		return err
	}
	header := http.Header{}
	c.show(header)
	//nolint:bodyclose // the library has read the body of a refusal, and there is none otherwise
	ws, resp, err := websocket.Dial(ctx, u.String(), &websocket.DialOptions{Subprotocols: []string{hubProtocol}, HTTPHeader: header})
	if err != nil {
		return c.refused(ctx, resp, err)
	}
	defer func() { _ = ws.CloseNow() }()
	c.connected, c.attached, c.unbegun = true, false, false
	ws.SetReadLimit(maxFrame)
	silence := time.AfterFunc(patience, func() {
		_, _ = fmt.Fprintf(con.err, "waiting for %s (a run that nobody has published yet: up to 30 s, or what the hub's --attach-wait says) …\n", c.ID)
	})
	defer silence.Stop()
	for {
		_, data, err := ws.Read(ctx)
		silence.Stop()
		if err != nil {
			return c.closed(ctx, err)
		}
		if err := c.print(con, data); err != nil {
			return err
		}
	}
}

func (c *attachCommand) target() (*url.URL, error) {
	if err := checkRun(c.ID); err != nil {
		return nil, err
	}
	kind := "runs"
	if c.Thread {
		kind = "threads"
	} else if c.Head != "" {
		return nil, usagef("--head: only with --thread")
	}
	u, err := c.endpoint(kind, c.ID, "ws")
	if err != nil {
		return nil, err
	}
	u.Scheme = map[string]string{"http": "ws", "https": "wss"}[u.Scheme]
	q := url.Values{}
	if c.From != "snapshot" {
		q.Set("from", c.From)
	}
	if c.cursor != "" {
		q.Del("from")
		q.Set("after", c.cursor)
		q.Set("catchup", c.Catchup)
	}
	if c.Head != "" {
		q.Set("head", c.Head)
	}
	if c.Raw {
		q.Set("raw", "1")
	}
	u.RawQuery = q.Encode()
	return u, nil
}

func (c *attachCommand) refused(ctx context.Context, resp *http.Response, err error) error {
	if ctx.Err() != nil {
		return interrupted()
	}
	if resp == nil {
		err = c.unreachable(err)
	} else {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		err = problemOf(resp.StatusCode, body)
	}
	if c.connected && (resp == nil || resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests) {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return err
}

// errLost says that a connection which was there is gone, and that the hub may be back soon.
var errLost = errors.New("connection lost")

// closed says what the end of the socket means for the exit code.
func (c *attachCommand) closed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return interrupted()
	}
	var ce websocket.CloseError
	if !errors.As(err, &ce) {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	switch ce.Code {
	case websocket.StatusNormalClosure:
		return nil
	case websocket.StatusCode(transport.CloseUnknownRun):
		if c.unbegun {
			return &closedError{ce, fmt.Sprintf("run %s: %s (4404 %s)\nTry aguihub check %s%s.", c.ID, nothingBegins, ce.Reason, c.ID, c.elsewhere())}
		}
		if ce.Reason != unknownRun {
			return &closedError{ce, fmt.Sprintf("run %s: %s (4404)", c.ID, ce.Reason)}
		}
		return &closedError{ce, fmt.Sprintf("unknown run %s: nobody has published to it, or it isn't yours to see (4404 %s)", c.ID, ce.Reason)}
	case websocket.StatusCode(transport.CloseToken):
		return &closedError{ce, fmt.Sprintf("the hub closed the connection: %d %s%s", ce.Code, ce.Reason, c.tokenHint())}
	default:
		return &closedError{ce, fmt.Sprintf("the hub closed the connection: %d %s", ce.Code, ce.Reason)}
	}
}

// closedError says that the hub closed the socket otherwise than at the run's end.
type closedError struct {
	close websocket.CloseError
	text  string
}

// Error implements error.
func (e *closedError) Error() string { return e.text }

// Unwrap gives the close error.
func (e *closedError) Unwrap() error { return e.close }

// print writes the events of a message, or its lines as they are.
func (c *attachCommand) print(con stdio, data []byte) error {
	out := bufio.NewWriter(con.out)
	for raw := range bytes.SplitSeq(data, []byte("\n")) {
		if len(raw) == 0 {
			continue
		}
		var l line
		if err := json.Unmarshal(raw, &l); err != nil {
			return fmt.Errorf("a line that isn't JSON: %w", err)
		}
		c.take(con, &l)
		if !c.Lines {
			if raw = l.Event; raw == nil {
				continue
			}
		}
		_, _ = out.Write(raw)
		_ = out.WriteByte('\n')
	}
	return out.Flush()
}

// unknownRun is what a hub says of a run of which it may tell nothing.
var unknownRun = transport.ErrorFor(backfill.ErrUnknownRun).Message

// nothingBegins is what a run is like whose RUN_STARTED is missing or withheld.
const nothingBegins = "entries are there, but none begins it"

// take notes where a line leaves one, and tells people what stands beside the events.
func (c *attachCommand) take(con stdio, l *line) {
	c.attached = c.attached || l.Control == "attached"
	if l.ID != "" && c.attached { // before, there is nothing to go on behind
		c.cursor = l.ID
	}
	first := !c.attached && !c.unbegun && l.Control == "skipped"
	c.unbegun = c.unbegun || first
	if first {
		_, _ = fmt.Fprintf(con.err, "%s: %s; waiting for a RUN_STARTED that the client takes (aguihub check %s%s tells what is wrong) …\n", c.ID, nothingBegins, c.ID, c.elsewhere())
	}
	if c.Lines {
		return
	}
	switch l.Control {
	case "skipped":
		_, _ = fmt.Fprintf(con.err, "skipped %s: %s (aguihub check %s%s tells more)\n", l.ID, l.Reason, c.ID, c.elsewhere())
	case "reset":
		_, _ = fmt.Fprintf(con.err, "reset: %s; what follows starts from nothing\n", l.Reason)
	}
}
