package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/agui/framing"
	"github.com/aguihub/aguihub/publish"
)

const (
	// readBytes is what one read of an answer takes at most, and the size of a connection's buffers: a thousand runs at
	// once shall not weigh much, and events are small.
	readBytes = 8 << 10
	// afterEnd and afterEndBytes are for how long and how much an answer is read on behind the run's end: some agents send a
	// MESSAGES_SNAPSHOT there, and a connection that is read to its end can be used again.
	afterEnd      = 5 * time.Second
	afterEndBytes = 16 << 20
	// maxShown bounds the rejected events of a run that are written for those who look for faults: as many as a hub lists.
	maxShown = 100
)

const (
	typeSSE   = "text/event-stream"
	typeProto = "application/vnd.ag-ui.event+proto"
)

// call is one run on its way from the agent into the log. One goroutine uses it.
type call struct {
	bridge *Bridge
	run    *Run
	agent  *caller
	writer *publish.Run
	input  []byte
	asked  agui.Input
	names  func(thread string) bool // Request.Names
	header http.Header

	event    agui.Event
	started  bool
	bytes    int64
	behind   int64 // bytes since the run's end
	events   int
	rejected int
	shown    int
	first    string // what was wrong with the first rejected event
}

// drive calls the agent and ends the run.
func (c *call) drive(ctx context.Context) {
	b, r := c.bridge, c.run
	defer b.forget(r)
	total := time.AfterFunc(c.agent.Limits.Total, func() { r.cancel(errTotal) })
	defer total.Stop()
	defer c.hearCancel()() //nolint:contextcheck // the run has one of its own
	err := c.answer(ctx)
	how := c.finish(context.WithoutCancel(ctx), err)
	b.end(r)
	b.counts.end(how)
	b.counts.rejected.Add(int64(c.rejected))
	log := b.logger.With(zap.String("agent", c.agent.Name), zap.String("run", r.ID()), zap.String("thread", r.thread))
	if c.rejected > 0 {
		log.Warn("agent sent events that its clients would reject", zap.Int("events", c.rejected), zap.String("first", c.first))
	}
	if err != nil && how != EndCancelled {
		log.Warn("agent didn't end its run", zap.String("code", how), zap.Error(err))
	}
}

// hearCancel breaks the call off when somebody asks the run to end.
func (c *call) hearCancel() (stop func()) {
	ctx := c.writer.Context()
	unhook := context.AfterFunc(ctx, func() { c.run.cancel(context.Cause(ctx)) })
	return func() { unhook() }
}

// answer reads the agent's answer into the run. Nil means that the agent ended the run.
func (c *call) answer(ctx context.Context) error {
	resp, err := c.post(ctx, typeSSE)
	if err == nil && resp.StatusCode == http.StatusNotAcceptable { // nothing has run: it has protobuf only
		_ = resp.Body.Close()
		resp, err = c.post(ctx, typeProto)
	}
	if err != nil {
		return c.broken(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return &failure{
			code: CodeStatus, message: fmt.Sprintf("The agent answered with the status %d.", resp.StatusCode),
			cause: fmt.Errorf("status %d", resp.StatusCode), // what it says may quote the input
		}
	}
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return &failure{code: CodeInvalid, message: "The agent's answer is compressed, which wasn't asked for."}
	}
	return c.read(ctx, resp.Body, decoderOf(resp.Header, c.bridge.cfg.MaxEvent))
}

// post sends the input and waits for the answer's header.
func (c *call) post(ctx context.Context, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.agent.URL, bytes.NewReader(c.input))
	if err != nil {
		return nil, err
	}
	req.Header = c.header.Clone()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", accept)
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "aguihub")
	}
	timer := time.AfterFunc(c.agent.Limits.FirstByte, func() { c.run.cancel(errFirstByte) })
	defer timer.Stop()
	return c.agent.client.Do(req)
}

// decoderOf is what the answer is: protobuf if it says so, else an event stream, as the official client takes it.
func decoderOf(h http.Header, limit int) framing.Decoder {
	if kind, _, err := mime.ParseMediaType(h.Get("Content-Type")); err == nil && kind == typeProto {
		return framing.NewProtobuf(limit)
	}
	return framing.NewEventStream(limit)
}

// read is answer's loop: what was complete in one piece is in the log before the next one is asked for.
func (c *call) read(ctx context.Context, body io.Reader, dec framing.Decoder) error {
	write := context.WithoutCancel(ctx)
	emit := func(f framing.Frame) error { return c.take(write, f) }
	silence := time.AfterFunc(c.agent.Limits.Silence, func() { c.run.cancel(errSilence) })
	defer silence.Stop()
	piece := make([]byte, readBytes)
	for {
		n, err := body.Read(piece)
		c.bytes += int64(n)
		c.bridge.counts.bytes.Add(int64(n))
		if ctx.Err() != nil && !c.writer.Ended() {
			return c.broken(ctx, ctx.Err()) // what comes behind a cancel isn't wanted
		}
		if n > 0 {
			silence.Reset(c.patience())
			if err := c.written(dec.Feed(piece[:n], emit)); err != nil {
				return err
			}
		}
		if err != nil {
			return c.over(ctx, err, func() error { return dec.Finish(emit) })
		}
		if err := c.written(c.writer.Flush(write)); err != nil {
			return err
		}
		c.progress(silence)
		if c.behind += int64(n); !c.writer.Ended() {
			c.behind = 0
		} else if c.behind > afterEndBytes {
			return nil
		}
	}
}

// patience is for how long the next piece may take.
func (c *call) patience() time.Duration {
	if c.writer.Ended() {
		return min(afterEnd, c.agent.Limits.Silence)
	}
	return c.agent.Limits.Silence
}

// progress says how far the run is, once what was read is in the log.
func (c *call) progress(silence *time.Timer) {
	if n, _ := c.writer.Written(); n > 0 {
		c.run.begin()
	}
	if c.writer.Ended() {
		c.bridge.end(c.run)
		silence.Reset(c.patience())
	}
}

// over says what it means that an answer has ended, or broke off with err. finish takes what its end completes.
func (c *call) over(ctx context.Context, err error, finish func() error) error {
	clean := errors.Is(err, io.EOF)
	if clean {
		if err := c.written(finish()); err != nil && !errors.Is(err, framing.ErrTruncated) {
			return err
		}
	}
	if err := c.written(c.writer.Flush(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	switch {
	case c.writer.Ended():
		return nil
	case ctx.Err() != nil:
		return c.broken(ctx, err)
	case c.started:
		return &failure{code: CodeCut, message: "The agent's answer ended before its run did.", cause: cutCause(clean, err)}
	case c.bytes == 0:
		return &failure{code: CodeEmpty, message: "The agent's answer is empty.", cause: cutCause(clean, err)}
	default:
		return &failure{code: CodeInvalid, message: "The agent's answer has no event that a run can begin with.", cause: cutCause(clean, err)}
	}
}

func cutCause(clean bool, err error) error {
	if clean {
		return nil
	}
	return err
}

// written sorts out errors: those of the log end the call, a registry that can't be told of an end doesn't.
func (c *call) written(err error) error {
	var f *failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f), errors.Is(err, framing.ErrTruncated):
		return err
	case errors.Is(err, framing.ErrSyntax):
		if c.started {
			return &failure{code: CodeCut, message: "The agent's answer can't be read any further.", cause: err}
		}
		return &failure{code: CodeInvalid, message: "The agent's answer can't be read.", cause: err}
	case asWriteError(err):
		return &failure{code: CodeUnwritten, message: unwritten, cause: err}
	default:
		c.bridge.logger.Warn("run's end can't be announced", zap.String("run", c.run.ID()), zap.Error(err))
		return nil
	}
}

// take hands one event to the run.
func (c *call) take(ctx context.Context, f framing.Frame) error {
	if f.Err != nil {
		c.reject(f.Err.Error())
		return nil //nolint:nilerr // the next one may be well
	}
	if c.started && c.event.Parse(f.Data) == nil && c.event.Type == agui.RunStarted {
		c.reject("RUN_STARTED while the run is open") // one answer is one run: to begin anew would take away what all have seen
		return nil
	}
	if !c.started && c.event.Parse(f.Data) == nil && c.event.Type == agui.RunStarted && !c.mayAnswerIn(c.event.ThreadID()) {
		return &failure{code: CodeInvalid, message: "The agent answered in a thread that its caller may not write."}
	}
	if !c.started && c.event.Parse(f.Data) == nil && c.event.Type == agui.RunError {
		// An agent may refuse at once. With a start the thread has the user's question and what became of it.
		if err := c.start(ctx, c.writer); err != nil {
			return c.written(err)
		}
	}
	err := c.writer.Append(ctx, f.Data)
	bad, invalid := errors.AsType[*publish.InvalidError](err)
	switch {
	case invalid:
		return c.refused(ctx, f.Data, bad)
	case err != nil:
		return c.written(err)
	}
	c.events++
	c.bridge.counts.events.Add(1)
	if !c.started && c.writer.Started() {
		c.started = true
		if thread := string(c.writer.Thread()); thread != c.run.thread {
			c.bridge.logger.Warn("agent answers in another thread than it was asked in",
				zap.String("agent", c.agent.Name), zap.String("run", c.run.ID()), zap.String("asked", c.run.thread), zap.String("answered", thread))
		}
	}
	return nil
}

// mayAnswerIn says whether the run may become one of a thread that the agent names.
func (c *call) mayAnswerIn(thread string) bool {
	return thread == c.asked.ThreadID || c.names == nil || c.names(thread)
}

// refused deals with an event that the run didn't take.
func (c *call) refused(ctx context.Context, raw []byte, bad *publish.InvalidError) error {
	c.reject(string(bad.Reason)) // the rest may quote the event
	if bad.Terminal && !c.writer.Ended() && c.started {
		return &failure{code: CodeInvalidEnd, message: "The event that ended the run was invalid and is withheld."}
	}
	if c.shown == maxShown {
		return nil
	}
	shown, err := c.writer.AppendWithheld(ctx, raw, bad)
	if shown {
		c.shown++
	}
	return err
}

func (c *call) reject(detail string) {
	if c.rejected == 0 {
		c.first = detail
	}
	c.rejected++
}

// broken says why a call could not be made or was broken off.
func (c *call) broken(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	timeout := func(message string) error { return &failure{code: CodeTimeout, message: message, cause: cause} }
	switch {
	case errors.Is(cause, errFirstByte):
		return timeout("The agent didn't answer in time.")
	case errors.Is(cause, errSilence):
		return timeout("The agent was silent for too long.")
	case errors.Is(cause, errTotal):
		return timeout("The agent took too long.")
	case errors.Is(cause, errStopped):
		return &failure{code: CodeStopped, message: "The hub was stopped during the run.", cause: cause}
	case asWriteError(cause): // another one publishes the run now
		return &failure{code: CodeUnwritten, message: unwritten, cause: cause}
	case cause != nil:
		return cause // cancelled or superseded
	}
	if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() {
		return &failure{code: CodeTimeout, message: "The agent could not be reached in time.", cause: withoutURL(err)}
	}
	return &failure{code: CodeUnreachable, message: "The agent could not be reached.", cause: withoutURL(err)}
}
