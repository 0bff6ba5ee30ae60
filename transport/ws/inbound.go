package ws

import (
	"bytes"
	"context"
	"encoding/json"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/transport"
)

// tooFast ends the connection of a peer that sends too much, and tells why where that can be told.
func (c *conn) tooFast() {
	err := transport.MessageRate()
	if c.protocol == lines {
		select {
		case c.box() <- c.errorLine(err):
		default: // there are answers enough on their way
		}
	}
	c.stop(err)
}

// Errors of what a peer sent.
var (
	errBinary = &transport.Error{
		Code: "binary_frame", Message: "binary messages aren't spoken here", Close: transport.CloseBadFrame,
	}
	errText = &transport.Error{
		Code: "text_not_utf8", Message: "the message isn't UTF-8", Close: transport.CloseBadText,
	}
	errInbound = &transport.Error{Code: "message_too_big", Message: "the message is too big", Close: transport.CloseTooBig}
	// errUnfinished says that a message wasn't sent to its end.
	errUnfinished = &transport.Error{Code: "silent", Message: "a message was begun and not ended", Close: transport.CloseSlow}
)

// take takes one message.
func (c *conn) take(text []byte) {
	switch {
	case len(text) > c.server.config.MaxInbound:
		c.stop(errInbound)
		return
	case !utf8.Valid(text): // RFC 6455, section 8.1
		c.stop(errText)
		return
	case c.protocol == bare:
		c.server.stats.ignored.Add(1)
		return
	}
	for line := range bytes.SplitSeq(text, newline) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if answer := c.answer(c.ctx, line); answer != nil && !c.reply(answer) {
			return // the attach is over; the connection is being closed
		}
	}
}

// reply has a line written; false where nothing is any more.
func (c *conn) reply(line []byte) bool {
	select {
	case c.box() <- line:
		c.wake()
		return true
	case <-c.ctx.Done():
		return false
	}
}

// Control lines that answer those of a client: docs/contract.md, section 3.
var (
	pongLine        = []byte(`{"control":"pong"}`)
	unsupportedLine = []byte(`{"control":"error","code":"unsupported","message":"this hub can't do that"}`)
	unknownLine     = []byte(`{"control":"error","code":"unknown_control","message":"the control line is unknown"}`)
	badLine         = []byte(`{"control":"error","code":"bad_line","message":"a line must be a JSON object with the field control"}`)
)

// answer does what a client's line asks for and returns what it is answered with; nil where that is nothing.
func (c *conn) answer(ctx context.Context, line []byte) []byte {
	var in struct {
		Control *string `json:"control"`
		Reason  string  `json:"reason"`
		Token   string  `json:"token"`
	}
	if json.Unmarshal(line, &in) != nil || in.Control == nil {
		c.server.stats.ignored.Add(1)
		return badLine
	}
	switch *in.Control {
	case "ping":
		return pongLine
	case "cancel":
		return c.cancelRun(ctx, in.Reason)
	case "token":
		return c.renew(ctx, in.Token)
	default:
		c.server.stats.ignored.Add(1)
		return unknownLine
	}
}

// cancelTimeout bounds the wait for Redis, during which nothing else that the peer sends is looked at.
const cancelTimeout = 5 * time.Second

// cancelRun asks the run that the attach is at to end. What comes of it is seen in the run.
func (c *conn) cancelRun(ctx context.Context, reason string) []byte {
	canceller := c.server.config.Canceller
	if canceller == nil {
		c.server.stats.ignored.Add(1)
		return unsupportedLine
	}
	err := transport.CheckReason(reason)
	if run := c.run.Load(); err == nil {
		if run == nil {
			err = backfill.ErrUnknownRun
		} else {
			ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
			defer cancel()
			caller := c.caller.Load()
			if err = caller.Allow(transport.Ask{Scope: auth.Cancel, Run: *run}); err == nil {
				err = canceller.Cancel(ctx, *run, reason, caller.Subject())
			}
		}
	}
	if err == nil {
		return nil
	}
	return c.errorLine(err)
}

// renewTimeout bounds the wait for an issuer's keys, during which nothing else that the peer sends is looked at.
const renewTimeout = 5 * time.Second

// renew goes on with a newer token. One that isn't as good as the one before is refused, and that one holds on.
func (c *conn) renew(ctx context.Context, token string) []byte {
	if c.caller.Load().Grant.Open() {
		c.server.stats.ignored.Add(1)
		return unsupportedLine
	}
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	renewed, err := c.caller.Load().Renew(ctx, token)
	if err != nil {
		return c.errorLine(err)
	}
	c.caller.Store(renewed)
	return nil
}

// errorLine tells the peer of an error.
func (c *conn) errorLine(err error) []byte {
	e := transport.ErrorFor(err)
	if e.Code == "internal" {
		c.server.logger.Warn("control line", zap.Error(err))
	}
	line, err := json.Marshal(struct {
		Control string `json:"control"`
		Code    string `json:"code"`
		Message string `json:"message"`
	}{"error", e.Code, e.Message})
	if err != nil {
		return badLine
	}
	return line
}

// pinged leaves the answer to a ping frame to who writes. Of several the newest is answered, as RFC 6455 allows.
func (c *conn) pinged(payload []byte) {
	if !c.inbound.Allow() {
		c.tooFast()
		return
	}
	c.pong.Store(&payload)
	c.wake()
}
