package ingest

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

// Pattern is where the server belongs in an http.ServeMux.
const Pattern = "POST /v1/runs/{" + transport.PathRun + "}/events"

// Defaults of Config.
const (
	// DefaultMaxJSON is what four of the largest events weigh.
	DefaultMaxJSON = 32 << 20
	// DefaultIdleTimeout leaves an agent time to think: models that reason and slow tools are silent for minutes.
	DefaultIdleTimeout = 5 * time.Minute
	// DefaultMaxPartial is what 32 of the largest events weigh.
	DefaultMaxPartial = 256 << 20
	// DefaultTurnTimeout is for senders of single events who don't wait for the answer before the next.
	DefaultTurnTimeout = 5 * time.Second
)

// idleAfterEnd is for how long a body is read on once its run has ended: there is hardly anything to come.
const idleAfterEnd = 5 * time.Second

// Opener opens runs for writing: *publish.Publisher.
type Opener interface {
	Open(ctx context.Context, rc publish.RunConfig) (*publish.Run, error)
}

// Threads tells of what thread a run is; "" where it has none yet (backfill.Service).
type Threads interface {
	ThreadOf(ctx context.Context, run stream.RunID) (stream.ThreadID, error)
}

// Config bounds what one request may do. Nothing may change while running.
type Config struct {
	// MaxEvent is the largest event, and the largest input, in bytes: the publisher's. 0 means [agui.DefaultMaxEvent].
	MaxEvent int
	// MaxJSON is the largest body of application/json in bytes. The other formats, which are meant to be endless, have
	// no such limit. 0 means [DefaultMaxJSON].
	MaxJSON int64
	// IdleTimeout is for how long a body may pause, and how long an item of it may take from its first byte to its last,
	// so that a byte now and then isn't enough. 0 means [DefaultIdleTimeout].
	IdleTimeout time.Duration
	// MaxPartial is how many bytes of events that haven't come complete all bodies may hold together. Beyond that none that
	// holds more than a piece may grow. 0 means [DefaultMaxPartial].
	MaxPartial int64
	// Threads tells of what thread a run is before it is opened; nil leaves that to what Open finds.
	Threads Threads
	// TurnTimeout is for how long a request waits for another one of this process that writes the same run. 0 means
	// [DefaultTurnTimeout].
	TurnTimeout time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if c.MaxEvent < 0 || c.MaxJSON < 0 || c.IdleTimeout < 0 || c.TurnTimeout < 0 || c.MaxPartial < 0 {
		return c, errors.New("ingest: a limit is negative")
	}
	if c.MaxEvent == 0 {
		c.MaxEvent = agui.DefaultMaxEvent
	}
	if c.MaxJSON == 0 {
		c.MaxJSON = DefaultMaxJSON
	}
	if c.MaxPartial == 0 {
		c.MaxPartial = DefaultMaxPartial
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = DefaultIdleTimeout
	}
	if c.TurnTimeout == 0 {
		c.TurnTimeout = DefaultTurnTimeout
	}
	return c, nil
}

// Server is the handler of [Pattern]. Its methods may be called by any number of goroutines at once.
type Server struct {
	opener Opener
	cfg    Config
	logger *zap.Logger
	group  *transport.Group
	turns  turns
	counts counts

	partial atomic.Int64 // bytes of events that haven't come complete
}

// New returns a server that writes through opener. When ctx ends bodies are read no further: what of them has arrived is
// appended and answered as by Close. It fails if cfg is invalid.
func New(ctx context.Context, opener Opener, cfg Config, logger *zap.Logger) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Server{opener: opener, cfg: cfg, logger: logger, group: transport.NewGroup(ctx)}, nil
}

// Drain takes no more requests and waits until those that are under way have been answered, or until ctx ends. It ends none.
func (s *Server) Drain(ctx context.Context) { s.group.Drain(ctx) }

// Close takes no more requests, ends those that are under way with 503 and the code draining, and waits until they have
// been answered or ctx ends; then it returns ctx's error.
func (s *Server) Close(ctx context.Context) error {
	if !s.group.Wait(ctx) {
		return ctx.Err()
	}
	return nil
}

// ServeHTTP takes one body for the run that the path names.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.counts.begin()
	ans := newAnswer()
	err := s.take(w, r, ans)
	s.counts.end(ans, err)
	if err == nil {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = transport.WriteJSON(w, ans) // a sender that has left is no matter of ours
		return
	}
	s.writeProblem(w, transport.ErrorFor(err), ans)
}

// take does what the request asks for and says in ans how far it came.
//
//nolint:contextcheck // what is under way ends with the server, the token and the run, not with the request
func (s *Server) take(w http.ResponseWriter, r *http.Request, ans *answer) error {
	run, err := transport.RunID(r)
	if err != nil {
		return err
	}
	form, err := formatOf(r.Header)
	if err != nil {
		w.Header().Set("Accept-Post", acceptPost)
		return err
	}
	sequence, err := sequenceOf(r.Header)
	if err != nil {
		return err
	}
	heeds, err := cancelOf(r.Header)
	if err != nil {
		return err
	}
	if form == formatJSON && r.ContentLength > s.cfg.MaxJSON {
		return bodyTooLarge()
	}
	caller, err := s.allow(r, run)
	if err != nil {
		return err
	}
	ctx, leave, ok := s.group.Enter()
	if !ok {
		return transport.Draining()
	}
	defer leave()
	ctx, replace := context.WithCancelCause(ctx)
	defer replace(nil)
	turn := &writer{sequence: sequence, began: time.Now(), leave: func() { replace(errReplaced) }}
	done, err := s.turns.wait(r.Context(), run, turn, s.cfg.TurnTimeout)
	if err != nil {
		return openError(err)
	}
	defer done()
	opened, err := s.opener.Open(r.Context(), publish.RunConfig{Run: run, Continue: true, Sequence: sequence})
	if err != nil {
		return openError(err)
	}
	if thread := opened.Thread(); thread != "" && !caller.Grant.NamesThread(string(thread)) {
		_ = opened.Release(context.WithoutCancel(r.Context())) // nothing was written
		return otherThread(caller, run)
	}
	b := newBody(s.cfg, form, opened, http.NewResponseController(w), ans)
	b.caller, b.turn, b.partial = caller, turn, &s.partial
	b.counted, b.heeds = sequence != nil, heeds
	ctx, end := caller.Until(ctx)
	defer end()
	b.cause = func() error { return context.Cause(ctx) }
	stop := context.AfterFunc(ctx, b.clock.interrupt)
	defer stop()
	if heeds {
		defer b.heedCancel()()
	}
	err = b.copy(context.WithoutCancel(r.Context()), r.Body)
	if b.late != nil {
		s.logger.Warn("run's end can't be announced", zap.String("run", string(run)), zap.Error(b.late))
	}
	if err != nil { // the rest of the body isn't wanted
		w.Header().Set("Connection", "close")
	}
	return b.result(err)
}

// allow says whether whoever posts may write the run: their token must name it, and its thread, where it has one.
func (s *Server) allow(r *http.Request, run stream.RunID) (*transport.Caller, error) {
	caller, err := transport.Allow(r, transport.Ask{Scope: auth.Publish, Run: run})
	if err != nil || caller.Grant.Open() || s.cfg.Threads == nil {
		return caller, err
	}
	thread, err := s.cfg.Threads.ThreadOf(r.Context(), run)
	if err != nil {
		return nil, err
	}
	if thread != "" && !caller.Grant.NamesThread(string(thread)) {
		return nil, otherThread(caller, run)
	}
	return caller, nil
}

// otherThread refuses to write a run of a thread that the token doesn't name.
func otherThread(caller *transport.Caller, run stream.RunID) error {
	err := transport.ThreadNotNamed()
	caller.Late(transport.Ask{Scope: auth.Publish, Run: run}, err.Code)
	return err
}

// format is what a body may be.
type format uint8

const (
	formatJSON format = iota
	formatNDJSON
	formatSSE
)

// acceptPost names the formats to whoever sent another one.
const acceptPost = "application/json, application/x-ndjson, application/jsonl, text/event-stream"

// formatOf reads the header fields that say what a body is.
func formatOf(h http.Header) (format, error) {
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return 0, &transport.Error{
			Status: http.StatusUnsupportedMediaType, Code: "unsupported_encoding", Message: "the body must not be encoded",
		}
	}
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if charset := params["charset"]; err == nil && (charset == "" || strings.EqualFold(charset, "utf-8")) {
		switch kind {
		case "application/json":
			return formatJSON, nil
		case "application/x-ndjson", "application/ndjson", "application/jsonl":
			return formatNDJSON, nil
		case "text/event-stream":
			return formatSSE, nil
		}
	}
	return 0, &transport.Error{
		Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type",
		Message: "the body must be UTF-8 of one of the types " + acceptPost,
	}
}

// Header fields that make a retry safe.
const (
	headerProducer = "Aguihub-Producer"
	headerEpoch    = "Aguihub-Epoch"
	headerSeq      = "Aguihub-Seq"
)

// sequenceOf reads them; nil where there are none.
func sequenceOf(h http.Header) (*publish.Sequence, error) {
	var values [3]string
	given := 0
	for i, name := range []string{headerProducer, headerEpoch, headerSeq} {
		switch all := h.Values(name); len(all) {
		case 0:
			continue
		case 1:
			values[i] = all[0]
			given++
		default:
			return nil, badSequence(name + " stands there twice")
		}
	}
	if given == 0 {
		return nil, nil
	}
	if given < len(values) {
		return nil, badSequence(headerProducer + ", " + headerEpoch + " and " + headerSeq + " belong together: all three, or none")
	}
	epoch, err := strconv.ParseUint(values[1], 10, 53)
	if err != nil || epoch == 0 {
		return nil, badSequence(headerEpoch + " must be a number from 1 on")
	}
	seq, err := strconv.ParseUint(values[2], 10, 53)
	if err != nil {
		return nil, badSequence(headerSeq + " must be a number from 0 on")
	}
	return &publish.Sequence{Producer: values[0], Epoch: epoch, Seq: seq}, nil
}

func badSequence(message string) error { return transport.BadRequest("bad_sequence", message) }

func bodyTooLarge() error {
	return &transport.Error{
		Status: http.StatusRequestEntityTooLarge, Code: "body_too_large",
		Message: "the body is larger than a JSON body may be; NDJSON and event streams may be endless",
	}
}

// openError says why a run can't be written to.
func openError(err error) error {
	if gap, ok := errors.AsType[*stream.GapError](err); ok {
		return &transport.Error{
			Status: http.StatusConflict, Code: "sequence_gap", Cause: err,
			Message: fmt.Sprintf("events before these are missing: %s must be at most %d", headerSeq, gap.Next),
		}
	}
	switch {
	case errors.Is(err, publish.ErrEnded):
		return runEnded()
	case errors.Is(err, publish.ErrFenced):
		return fenced(err)
	case errors.Is(err, publish.ErrBadSequence):
		return badSequence(headerProducer + " must be 1 to 128 of A-Z, a-z, 0-9 and ._~-")
	case errors.Is(err, context.Canceled): // the sender has left
		return truncated()
	default:
		return err
	}
}

func truncated() error {
	return &transport.Error{
		Status: http.StatusBadRequest, Code: "truncated", Message: "the body ended too early; what had come complete is appended",
	}
}

func runEnded() error {
	return &transport.Error{Status: http.StatusConflict, Code: "run_ended", Message: "the run has ended and takes no more events"}
}

// fenced says that somebody else writes the run now.
func fenced(cause error) error {
	return &transport.Error{
		Status: http.StatusConflict, Code: "fenced", Cause: cause,
		Message: "a producer with a later epoch writes the run, or a hub has ended it because this one gave no sign of life",
	}
}

// runBusy says that another request writes the run.
func runBusy(run stream.RunID) error {
	return &transport.Error{
		Status: http.StatusConflict, Code: "run_busy", RetryAfter: time.Second,
		Message: "another request is writing the run", Cause: errors.New("run " + string(run) + " has a writer"),
	}
}
