// Package sse attaches over server-sent events: docs/contract.md, section 4. A stream is a request of net/http whose
// goroutine loops over Session.Next.
package sse

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/metrics"
	"github.com/aguihub/aguihub/transport"
)

// Server attaches event streams to a service. Its methods may be called by anyone at once.
type Server struct {
	service *backfill.Service
	config  transport.Config
	logger  *zap.Logger
	group   *transport.Group // of the requests

	mu      sync.Mutex
	streams map[*answer]context.CancelCauseFunc // those that a client may come back to

	stats stats
}

// New returns a server. Its streams end with ctx or with Close.
func New(ctx context.Context, service *backfill.Service, config transport.Config, logger *zap.Logger) (*Server, error) {
	config, err := config.WithDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{service: service, config: config, logger: logger, streams: map[*answer]context.CancelCauseFunc{}, group: transport.NewGroup(ctx)}
	s.stats.age = metrics.NewHistogram()
	return s, nil
}

// Mount adds the server's paths to mux.
func (s *Server) Mount(mux *http.ServeMux) {
	for _, method := range []string{"GET", "POST"} {
		mux.Handle(method+" /v1/runs/{"+transport.PathRun+"}/sse", s.handler(false))
		mux.Handle(method+" /v1/threads/{"+transport.PathThread+"}/sse", s.handler(true))
	}
}

// Drain takes no new streams and ends those there are one by one, spread over a time, with how long to wait before coming
// back. Answers to POST /v1/agents are left until their run ends: their clients can't come back. It returns when all were
// told to go, or ctx ends.
func (s *Server) Drain(ctx context.Context, over time.Duration) {
	s.group.Shut()
	s.mu.Lock()
	var ends []context.CancelCauseFunc
	for _, end := range s.streams { // in the map's random order
		ends = append(ends, end)
	}
	s.mu.Unlock()
	transport.Spread(ctx, len(ends), over, func(i int) { ends[i](transport.Draining()) })
}

// enlist makes a stream one that Drain ends, and that ends when it is too old.
func (s *Server) enlist(ctx context.Context, a *answer) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	stop := func() bool { return true }
	if most := s.config.MaxAge; most > 0 {
		stop = time.AfterFunc(most-rand.N(most/10+1), func() { end(transport.Draining()) }).Stop
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[a] = end
	return ctx, func() {
		stop()
		end(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.streams, a)
	}
}

// Close ends all streams and waits until they are gone, or until ctx ends. New ones are refused. Call it before
// http.Server.Shutdown, which waits for streams but doesn't end them.
func (s *Server) Close(ctx context.Context) { s.group.Wait(ctx) }

func (s *Server) handler(thread bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.serve(w, r, thread); err != nil {
			transport.WriteProblem(w, s.logger, err)
		}
	})
}

// ask is what a request asks for.
type ask struct {
	request backfill.Request
	post    bool
	posted  []string // ids of the messages that were posted
}

// serve answers a request. An error is one that nothing was written for.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, thread bool) error {
	q, err := s.parse(r, thread)
	if err != nil {
		return err
	}
	ask := transport.Ask{Scope: auth.Attach, Run: q.request.Run, Thread: q.request.Thread}
	caller, err := transport.Allow(r, ask)
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		setHeaders(w.Header(), r)
		return nil
	}
	q.request.Grant = caller.Grant
	if q.post {
		if q.posted, err = s.readInput(w, r); err != nil {
			return err
		}
	}
	if err := caller.Come(); err != nil {
		return err
	}
	stand, err := caller.Sit()
	if err != nil {
		return err
	}
	defer stand()
	ctx, leave, ok := s.group.Join(r.Context())
	if !ok {
		return transport.Draining()
	}
	defer leave()
	ctx, over := caller.Until(ctx)
	defer over()
	s.stats.accepted.Add(1)
	s.stats.open.Add(1)
	defer s.stats.open.Add(-1)
	session, err := s.service.Attach(ctx, q.request)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx) // a drain and a token's end aren't the client's doing
	}
	if err != nil {
		return err
	}
	defer session.Close()
	a := newAnswer(s, w, r, q)
	ctx, unlist := s.enlist(ctx, a)
	defer unlist()
	err = a.run(ctx, session)
	if a.started && !q.post && isDraining(err) {
		err = a.sendAway()
	}
	if errors.Is(err, backfill.ErrForeign) {
		caller.Late(ask, "other_thread")
	}
	if !a.started {
		return err
	}
	if err == nil || errors.Is(err, transport.ErrTokenExpired) {
		err = errors.Join(err, a.body.Done()) // an end in good order, not a cut
	}
	if err != nil {
		s.stats.broken.Add(1)
		s.logger.Debug("stream ended", zap.Error(err))
	}
	return nil
}

// stats are the server's running figures; read them with Figures.
type stats struct {
	open                                                 atomic.Int64 // now
	accepted, broken, events, deliveries, bytes, skipped atomic.Int64 // since start
	writes                                               atomic.Int64 // since start
	age                                                  *metrics.Histogram
}

// Figures is a reading of a server's figures.
type Figures struct {
	Open       int64 // streams now
	Accepted   int64 // streams since start
	Broken     int64 // of them, ended otherwise than with their run
	Events     int64 // sent
	Deliveries int64 // live entries handed to streams, withheld ones too
	Bytes      int64 // sent, without HTTP's own
	Writes     int64 // of what was queued
	Skipped    int64 // of the deliveries, those that weren't sent as they were published

	Age *metrics.Histogram // from the XADD of the oldest live entry of a write to its end
}

// Figures reads the server's figures.
func (s *Server) Figures() Figures {
	return Figures{
		Open: s.stats.open.Load(), Accepted: s.stats.accepted.Load(), Broken: s.stats.broken.Load(),
		Events: s.stats.events.Load(), Deliveries: s.stats.deliveries.Load(), Bytes: s.stats.bytes.Load(),
		Writes: s.stats.writes.Load(), Skipped: s.stats.skipped.Load(), Age: s.stats.age,
	}
}
