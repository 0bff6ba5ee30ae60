package ingest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/transport"
)

// pieceBytes is what one read takes at most.
const pieceBytes = 32 << 10

// errRejected says that an invalid event stopped a body of JSON or NDJSON.
var errRejected = errors.New("ingest: an event was rejected")

// body is one request's body on its way into a run. One goroutine uses it, but for its clock.
type body struct {
	cfg   Config
	form  format
	run   *publish.Run
	dec   decoder
	clock clock
	ans   *answer

	index   int  // of the next item
	taken   int  // events that the run took
	inputAt int  // index of the input; −1 where there is none
	ended   bool // the run ended within this body
	counted bool // the sender counts events, those included that are rejected and skipped
	heeds   bool // the sender wants an answer as soon as the run is to be cancelled
	late    error
	caller  *transport.Caller // who sends it
	turn    *writer           // what others know of it who want to write the run
	cause   func() error      // why it was interrupted
	begun   time.Time         // when the item that is being read began; zero between items
	held    int               // bytes of that item
	partial *atomic.Int64     // of all bodies
	event   agui.Event        // scratch
}

func newBody(cfg Config, form format, run *publish.Run, rc *http.ResponseController, ans *answer) *body {
	b := &body{cfg: cfg, form: form, run: run, clock: clock{rc: rc}, ans: ans, inputAt: -1}
	switch form {
	case formatJSON:
		b.dec = newJSONDecoder(cfg.MaxEvent)
	case formatNDJSON:
		b.dec = newNDJSONDecoder(cfg.MaxEvent)
	default:
		b.dec = newSSEDecoder(cfg.MaxEvent)
	}
	// An answer may come before the body's end, and must not wait for it.
	_ = rc.EnableFullDuplex()
	return b
}

// copy appends what r holds, and returns why it went no further; nil at its end. The run is released.
func (b *body) copy(ctx context.Context, r io.Reader) error {
	err := b.read(ctx, r)
	_ = b.hold(0)
	if b.inputAt >= 0 && b.taken == 0 && err == nil {
		err = b.reject(b.inputAt, &publish.InvalidError{
			Path: "/input", Reason: agui.ReasonIllegal, Detail: "/input: it goes with the first event, and none came",
		})
	}
	b.asked(ctx)
	if b.index == 0 && err == nil {
		b.ans.Hint = "the body has no event"
	}
	if released := b.written(b.run.Release(ctx)); released != nil {
		err = released
	}
	b.ans.Accepted, b.ans.Unclosed = b.taken, b.run.Unclosed()
	events, last := b.run.Written()
	if !last.IsZero() {
		b.ans.LastID = last.String()
	}
	if _, broken := errors.AsType[*publish.WriteError](err); broken {
		b.ans.Accepted = min(events, b.taken)
	}
	b.clock.rest(err == nil)
	return err
}

// read is copy's loop: one piece at a time, and what was complete in it is in the log before the next is asked for.
func (b *body) read(ctx context.Context, r io.Reader) error {
	emit := func(it item) error { return b.take(ctx, it) }
	piece := make([]byte, pieceBytes)
	var total int64
	for {
		idle := b.cfg.IdleTimeout
		if b.ended {
			idle = min(idle, idleAfterEnd)
		}
		if !b.clock.extend(b.patience(idle)) {
			return b.cutOff() //nolint:contextcheck // it looks at the run's own
		}
		n, err := r.Read(piece)
		b.ans.bytes += int64(n)
		if n > 0 {
			b.turn.hear()
		}
		if total += int64(n); b.form == formatJSON && total > b.cfg.MaxJSON {
			return bodyTooLarge()
		}
		if err := b.caller.Post(0, n); err != nil {
			return err
		}
		if err := b.feed(piece[:n], emit); err != nil {
			return err
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return b.fed(b.dec.finish(emit))
		case b.clock.interrupted():
			return b.cutOff() //nolint:contextcheck // it looks at the run's own
		case errors.Is(err, os.ErrDeadlineExceeded):
			return b.idle()
		default:
			return errTruncated
		}
		if err := b.written(b.run.Flush(ctx)); err != nil {
			return err
		}
	}
}

// feed hands a piece to the decoder, and notes when what it leaves open began.
func (b *body) feed(piece []byte, emit func(item) error) error {
	before := b.index
	err := b.fed(b.dec.feed(piece, emit))
	held := b.held + len(piece)
	switch {
	case !b.dec.within():
		b.begun, held = time.Time{}, 0
	case b.begun.IsZero() || b.index != before:
		b.begun, held = time.Now(), len(piece)
	}
	if full := b.hold(held); err == nil {
		err = full
	}
	return err
}

// hold notes how much of an item there is that isn't complete. It fails where all bodies together hold too much; those that
// hold little may always go on.
func (b *body) hold(n int) error {
	n = min(n, b.cfg.MaxEvent) // what is beyond isn't kept
	all := b.partial.Add(int64(n - b.held))
	grows := n > b.held
	if b.held = n; grows && n > pieceBytes && all > b.cfg.MaxPartial {
		return &transport.Error{
			Status: http.StatusServiceUnavailable, Code: "ingest_busy", RetryAfter: 2 * time.Second,
			Message: "too many large events are on their way at once; what had come complete is appended",
		}
	}
	return nil
}

// patience is for how long the next read may wait: idle, or what of it is left to the item that is being read.
func (b *body) patience(idle time.Duration) time.Duration {
	if b.begun.IsZero() {
		return idle
	}
	return min(idle, time.Until(b.begun.Add(idle)))
}

// fed says what a decoder's error means.
func (b *body) fed(err error) error {
	if bad, ok := errors.AsType[*syntaxError](err); ok {
		return b.reject(b.index, &publish.InvalidError{Reason: agui.ReasonNotJSON, Detail: bad.Error()})
	}
	return err
}

// written sorts out what a flush says: a registry that can't be told of the end is no matter of the sender.
func (b *body) written(err error) error {
	if err == nil {
		return nil
	}
	if _, broken := errors.AsType[*publish.WriteError](err); broken {
		return err
	}
	b.late = err
	return nil
}

// take hands an item to the run.
func (b *body) take(ctx context.Context, it item) error {
	if err := b.caller.Post(1, 0); err != nil {
		return err
	}
	at := b.index
	b.index++
	if it.err == nil && (it.named || at == 0) {
		input, found := inputOf(it.data)
		if !found && it.named {
			input, found = it.data, true
		}
		if found {
			return b.takeInput(at, input)
		}
	}
	var err error
	if it.err != nil {
		err = &publish.InvalidError{Reason: agui.ReasonTooLarge, Detail: "larger than an event may be"}
	} else if err = b.checkThread(it.data); err == nil {
		err = b.run.Append(ctx, it.data)
	}
	if bad, ok := errors.AsType[*publish.InvalidError](err); ok {
		return b.rejectEvent(ctx, at, bad)
	}
	if refused, ok := errors.AsType[*transport.Error](err); ok {
		return refused
	}
	b.taken++
	b.ended = b.run.Ended()
	return b.written(err)
}

// checkThread refuses a RUN_STARTED of another thread than the run's, and of one that the sender's token doesn't name.
func (b *body) checkThread(event []byte) error {
	g := b.caller.Grant
	of := b.run.Thread()
	if g.Open() && of == "" || b.event.Parse(event) != nil || b.event.Type != agui.RunStarted {
		return nil //nolint:nilerr // what can't be read is judged where it is appended
	}
	if of != "" && string(of) != b.event.ThreadID() {
		return &publish.InvalidError{Reason: agui.ReasonOtherThread, Path: "/threadId", Detail: "the run is of another thread, and stays there"}
	}
	if g.NamesThread(b.event.ThreadID()) {
		return nil
	}
	return otherThread(b.caller, b.run.ID())
}

func (b *body) takeInput(at int, input []byte) error {
	err := b.run.SetInput(input)
	if bad, ok := errors.AsType[*publish.InvalidError](err); ok {
		return b.reject(at, bad)
	}
	b.inputAt = at
	return err
}

// rejectEvent lists an event that the run didn't take.
func (b *body) rejectEvent(ctx context.Context, at int, bad *publish.InvalidError) error {
	if err := b.reject(at, bad); err != nil {
		if errors.Is(bad, publish.ErrEnded) {
			return runEnded()
		}
		return err
	}
	if b.counted {
		b.run.Skip()
	}
	if !bad.Terminal || b.run.Ended() {
		return nil
	}
	// The agent behind an event stream meant to end the run and won't come back: those who watch must not wait for ever.
	b.ended = true
	return b.written(b.run.Fail(ctx, "invalid_end", "The event that ended the run was invalid and is withheld."))
}

// reject lists an item. In an event stream the next one is taken, else it stops the body.
func (b *body) reject(at int, bad *publish.InvalidError) error {
	b.ans.reject(rejection{Index: at, Path: bad.Path, Reason: string(bad.Reason), Detail: bad.Detail})
	if b.form == formatSSE {
		return nil
	}
	return errRejected
}

// idle says what it means that nothing came for so long. Behind the run's end it is as good as the body's end.
func (b *body) idle() error {
	if b.ended {
		return nil
	}
	message := "the body paused for too long; what had come complete is appended"
	if !b.begun.IsZero() {
		message = "an event took too long from its first byte to its last; what had come complete is appended"
	}
	return &transport.Error{Status: http.StatusRequestTimeout, Code: "idle", Message: message}
}

// cutOff is what a body gets that is still being read when the server stops, when the run is to be cancelled, when the
// sender's token ends, or when another request takes its place.
func (b *body) cutOff() error {
	switch {
	case b.ended:
		return nil
	case b.heeds && b.toBeCancelled():
		return cancelRequested()
	case errors.Is(b.cause(), transport.ErrTokenExpired):
		return transport.ErrTokenExpired
	case errors.Is(b.cause(), errReplaced):
		return fenced(errReplaced)
	default:
		return transport.Draining()
	}
}

// result makes of what copy said what the client is told.
func (b *body) result(err error) error {
	bad, broken := errors.AsType[*publish.WriteError](err)
	switch {
	case broken && bad.Uncertain == 0 && errors.Is(err, publish.ErrFenced):
		return fenced(err)
	case broken && bad.Uncertain == 0 && errors.Is(err, publish.ErrEnded):
		return runEnded()
	case broken && bad.Uncertain > 0:
		b.ans.Uncertain = bad.Uncertain
		return &transport.Error{
			Status: http.StatusServiceUnavailable, Code: "append_uncertain", Cause: err,
			Message: "Redis didn't answer: the accepted events are in the log, and so may be those counted as uncertain; read the run before sending them again",
		}
	case errors.Is(err, errRejected):
		return &transport.Error{
			Status: http.StatusUnprocessableEntity, Code: "invalid_event",
			Message: "an event is invalid; those before it are appended, it and those behind it are not",
		}
	case errors.Is(err, errTruncated):
		return truncated()
	default:
		return err
	}
}

// clock is a request's read deadline, which the server may bring forward.
type clock struct {
	rc *http.ResponseController

	mu   sync.Mutex
	over bool
}

// extend allows the next read to take d; false after interrupt.
func (c *clock) extend(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	_ = c.rc.SetReadDeadline(time.Now().Add(d)) // not with every ResponseWriter; then the server's own limits hold
	return true
}

// interrupt ends the read that is under way and those to come. Behind rest it does nothing.
func (c *clock) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over = true
	_ = c.rc.SetReadDeadline(time.Unix(1, 0))
}

func (c *clock) interrupted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// lingering is for how long the rest of a refused body is still read, so that its sender gets to see the answer.
const lingering = time.Second

// rest leaves the connection to net/http. whole says that the body was read to its end.
func (c *clock) rest(whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if whole {
		_ = c.rc.SetReadDeadline(time.Time{})
		return
	}
	_ = c.rc.SetReadDeadline(time.Now().Add(lingering))
}
