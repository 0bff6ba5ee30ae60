package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/coder/websocket"

	"github.com/aguihub/aguihub/transport"
)

const (
	hubProtocol = "ag-ui.hub.v1.json" // docs/contract.md, section 3
	maxFrame    = 64 << 20            // one event may be larger than the 256 KiB of a message; conversations are bounded by the hub
)

// attachCommand prints what a subscriber sees.
type attachCommand struct {
	ID     string `arg:"" name:"run" help:"The run's id, or the thread's with --thread."`
	Thread bool   `help:"The id names a thread: its runs are followed one after another, without an end."`
	From   string `default:"snapshot" enum:"snapshot,start" help:"What comes first: snapshots of what has been, or the run's own events from its first one: snapshot or start (${default})."`
	Head   string `placeholder:"RUN" help:"Follow this run's branch of the thread."`
	Raw    bool   `help:"Include RAW events of the past."`
	Lines  bool   `help:"Print the lines of the wire as they come: events with their cursors, and control lines."`
	hubFlag
}

// line is an event line or a control line.
type line struct {
	Event   json.RawMessage `json:"event"`
	Control string          `json:"control"`
	Reason  string          `json:"reason"`
	ID      string          `json:"id"`
}

// Run implements the subcommand. It returns at the run's end, or when ctx ends.
func (c *attachCommand) Run(ctx context.Context, con stdio) error {
	u, err := c.target()
	if err != nil {
		return err
	}
	//nolint:bodyclose // the library has read the body of a refusal, and there is none otherwise
	ws, resp, err := websocket.Dial(ctx, u.String(), &websocket.DialOptions{Subprotocols: []string{hubProtocol}})
	if err != nil {
		return c.refused(ctx, resp, err)
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(maxFrame)
	for {
		_, data, err := ws.Read(ctx)
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
		return c.unreachable(err)
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return problemOf(resp.StatusCode, body)
}

// closed says what the end of the socket means for the exit code.
func (c *attachCommand) closed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return interrupted()
	}
	var ce websocket.CloseError
	if !errors.As(err, &ce) {
		return fmt.Errorf("connection lost: %w", err)
	}
	switch ce.Code {
	case websocket.StatusNormalClosure:
		return nil
	case websocket.StatusCode(transport.CloseUnknownRun):
		return fmt.Errorf("unknown run %s: nobody has published to it (4404 %s)", c.ID, ce.Reason)
	default:
		return fmt.Errorf("the hub closed the connection: %d %s", ce.Code, ce.Reason)
	}
}

// print writes the events of a message, or its lines as they are.
func (c *attachCommand) print(con stdio, data []byte) error {
	out := bufio.NewWriter(con.out)
	for raw := range bytes.SplitSeq(data, []byte("\n")) {
		if len(raw) == 0 {
			continue
		}
		if !c.Lines {
			var l line
			if err := json.Unmarshal(raw, &l); err != nil {
				return fmt.Errorf("a line that isn't JSON: %w", err)
			}
			if l.Control == "skipped" {
				_, _ = fmt.Fprintf(con.err, "skipped %s: %s (aguihub check %s tells more)\n", l.ID, l.Reason, c.ID)
			}
			if raw = l.Event; raw == nil {
				continue
			}
		}
		_, _ = out.Write(raw)
		_ = out.WriteByte('\n')
	}
	return out.Flush()
}
