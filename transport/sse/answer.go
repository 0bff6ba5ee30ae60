package sse

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

// answer is one event stream. It is owned by the goroutine of its request.
type answer struct {
	server  *Server
	w       http.ResponseWriter
	body    *transport.Writer
	r       *http.Request
	ask     ask
	buf     []byte
	started bool // something was written
}

func newAnswer(s *Server, w http.ResponseWriter, r *http.Request, q ask) *answer {
	return &answer{server: s, w: w, body: transport.NewWriter(w, s.config.WriteTimeout), r: r, ask: q}
}

// errNothing says that there is nothing for the client any more: it has the run's end.
var errNothing = errors.New("sse: nothing missed")

// run writes what the session gives until the run's end (nil), or returns what else ended it.
func (a *answer) run(ctx context.Context, session *backfill.Session) error {
	var waker transport.Waker
	wait := waker.Arm(ctx)
	defer waker.Wake()
	silence := time.AfterFunc(a.server.config.Silence, waker.Wake)
	defer silence.Stop()
	for {
		items, err := session.Next(wait)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		silent := wait.Err() != nil
		if silent {
			wait = waker.Arm(ctx) //nolint:fatcontext // its parent is ctx, not the one before
		}
		if werr := a.batch(session, items, silent); werr != nil {
			if errors.Is(werr, errNothing) {
				return nil
			}
			return werr
		}
		if session.Tailing() {
			transport.ObserveAge(a.server.stats.age, items, time.Now())
		}
		if silent || len(items) > 0 {
			silence.Reset(a.server.config.Silence)
		}
		switch {
		case err == nil, errors.Is(err, context.Canceled):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// isDraining says whether a stream ends since its client is sent away.
func isDraining(err error) bool {
	e, ok := errors.AsType[*transport.Error](err)
	return ok && e.Close == transport.CloseDraining
}

// sendAway tells the client, as EventSource reads it, when to come back.
func (a *answer) sendAway() error {
	a.buf = append(strconv.AppendInt(append(a.buf[:0], "retry: "...), transport.RetryAfter().Milliseconds(), 10), '\n', '\n')
	return a.flush()
}

// batch writes items, or a comment where there was silence. Before the first byte it looks whether there should be one.
func (a *answer) batch(session *backfill.Session, items []backfill.Item, silent bool) error {
	switch {
	case len(items) == 0 && silent && a.started:
		a.buf = append(a.buf[:0], ": \n\n"...)
		return a.flush()
	case len(items) == 0:
		return nil
	case !a.started:
		if err := a.begin(session, items); err != nil {
			return err
		}
	}
	return a.write(items)
}

// begin checks the first items and writes the header.
func (a *answer) begin(session *backfill.Session, items []backfill.Item) error {
	if a.ask.post {
		if err := a.checkPosted(session, items); err != nil {
			return err
		}
	}
	if a.missedNothing(items) {
		a.started = true
		a.w.WriteHeader(http.StatusNoContent)
		return errNothing
	}
	a.started = true
	setHeaders(a.w.Header(), a.r)
	a.w.WriteHeader(http.StatusOK)
	return nil
}

func setHeaders(h http.Header, r *http.Request) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	if r.ProtoMajor == 1 {
		h.Set("Connection", "close") // a stream that was cut leaves a deadline that must not meet another request
	}
}

// checkPosted refuses what a stock HttpAgent would make something wrong of: a run that doesn't answer what it posted,
// and an event that it can't read.
func (a *answer) checkPosted(session *backfill.Session, items []backfill.Item) error {
	if len(a.ask.posted) > 0 {
		known := make(map[string]bool)
		for _, id := range session.MessageIDs() {
			known[id] = true
		}
		if slices.ContainsFunc(a.ask.posted, func(id string) bool { return !known[id] }) {
			return &transport.Error{
				Status: http.StatusConflict, Code: "use_bridge",
				Message: "the run doesn't know all messages that were posted: it answers others. To start a run post to /v1/agents/{name}",
			}
		}
	}
	if slices.ContainsFunc(items, func(it backfill.Item) bool { return a.tooLarge(&it) }) {
		return &transport.Error{
			Status: http.StatusRequestEntityTooLarge, Code: "snapshot_too_large",
			Message: "an event is larger than the official client's reader takes over HTTP; a WebSocket takes it",
		}
	}
	return nil
}

// tooLarge says whether the reader of a POST's answer couldn't take an item.
func (a *answer) tooLarge(it *backfill.Item) bool {
	limit := a.server.config.MaxPosted
	if it.Delivery != nil {
		return slices.ContainsFunc(it.Delivery.Events, func(e []byte) bool { return len(e) > limit })
	}
	return len(it.Event) > limit
}

// missedNothing says whether a client comes back to a run that has ended and misses nothing of it: an EventSource would
// go on coming back otherwise.
func (a *answer) missedNothing(items []backfill.Item) bool {
	if a.ask.request.Thread != "" || a.ask.request.After == "" {
		return false
	}
	ended := false
	for i := range items {
		switch it := &items[i]; {
		case it.Event != nil, it.Delivery != nil && len(it.Delivery.Events) > 0, it.Control == backfill.ControlReset:
			return false
		case it.Control == backfill.ControlEnded:
			ended = true
		}
	}
	return ended
}

// Errors that end a body.
var (
	errReset = errors.New("sse: the run began anew, which a POST can't be told")
	errLarge = errors.New("sse: an event is larger than the reader of a POST takes")
)

// chunk is how much is gathered for one write, in bytes.
const chunk = 32 << 10

// write writes items and flushes.
func (a *answer) write(items []backfill.Item) error {
	stats := &a.server.stats
	a.buf = a.buf[:0]
	for i := range items {
		it := &items[i]
		if a.ask.post && a.tooLarge(it) {
			return errors.Join(errLarge, a.flush())
		}
		switch {
		case it.Delivery != nil:
			stats.deliveries.Add(1)
			stats.events.Add(int64(len(it.Delivery.Events)))
			if it.Delivery.Reason != "" {
				stats.skipped.Add(1)
			}
			if len(it.Delivery.Events) > 0 {
				a.buf = append(a.buf, transport.Encoded(it, transport.FormBlocks, encodeBlocks)...)
			}
		case it.Event != nil:
			stats.events.Add(1)
			a.buf = transport.AppendBlock(a.buf, it.Event, it.Cursor)
		case it.Control == backfill.ControlLive:
			a.buf = transport.AppendIDBlock(a.buf, it.Cursor)
		case it.Control == backfill.ControlReset && a.ask.post:
			return errors.Join(errReset, a.flush())
		case it.Control == backfill.ControlReset:
			a.buf = append(append(append(a.buf, "event: reset\ndata: "...), it.Line...), '\n', '\n')
		}
		if len(a.buf) >= chunk {
			if err := a.send(); err != nil {
				return err
			}
		}
	}
	return a.flush()
}

func encodeBlocks(d *hub.Delivery, cursor stream.Cursor) []byte {
	var b []byte
	for _, e := range d.Events[:len(d.Events)-1] {
		b = transport.AppendBlock(b, e, stream.Cursor{})
	}
	return transport.AppendBlock(b, d.Events[len(d.Events)-1], cursor)
}

// send writes what is gathered.
func (a *answer) send() error {
	if len(a.buf) > 0 {
		a.server.stats.writes.Add(1)
	}
	n, err := a.body.Write(a.buf)
	a.server.stats.bytes.Add(int64(n))
	if a.buf = a.buf[:0]; cap(a.buf) > 2*chunk {
		a.buf = nil // of a large event
	}
	return err
}

// flush writes what is gathered and hands it to the network.
func (a *answer) flush() error {
	if err := a.send(); err != nil {
		return err
	}
	return a.body.Flush()
}
