// Package ws attaches over WebSocket: docs/contract.md, section 3. A connection that has nothing to do is one
// goroutine, which waits for what the peer sends. What comes in the live tail is written by the server's hands, who never
// wait; what takes waiting, from the attach to the close, by a goroutine of the connection's own for as long as it takes.
// The server's keeper walks over all connections, has pings sent, and finds sockets that are stuck.
package ws

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/metrics"
	"github.com/aguihub/aguihub/transport"
)

// Server attaches WebSockets to a service. Its methods may be called by anyone at once.
type Server struct {
	service *backfill.Service
	config  transport.Config
	logger  *zap.Logger
	group   *transport.Group // of the connections' goroutines
	keeper  *transport.Group
	hands   *hands
	epoch   time.Time // what the connections' times count from
	stats   stats

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// New starts a server. Its connections end with ctx, or with Close, which also waits for them.
func New(ctx context.Context, service *backfill.Service, config transport.Config, logger *zap.Logger) (*Server, error) {
	config, err := config.WithDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		service: service, config: config, logger: logger, epoch: time.Now(), conns: map[*conn]struct{}{},
		group: transport.NewGroup(ctx), keeper: transport.NewGroup(context.WithoutCancel(ctx)), hands: newHands(),
	}
	s.stats.age = metrics.NewHistogram()
	s.keeper.Go(s.keep)                    //nolint:contextcheck // the group's context is ctx
	s.keeper.Go(s.hands.work)              //nolint:contextcheck // likewise
	s.group.Go(func(ctx context.Context) { //nolint:contextcheck // likewise
		<-ctx.Done()
		for _, c := range s.snapshot(nil) { // who comes later looks at ctx first
			c.wake()
		}
	})
	return s, nil
}

// Mount adds the server's paths to mux, which must stand behind a transport.Guard: here the origin isn't looked at.
func (s *Server) Mount(mux *http.ServeMux) {
	mux.Handle("GET /v1/runs/{"+transport.PathRun+"}/ws", s.handler(false))
	mux.Handle("GET /v1/threads/{"+transport.PathThread+"}/ws", s.handler(true))
}

// Drain takes no new connections, tells those there are that the hub goes away, and closes them with 1012 one by one,
// spread over a time, so that they don't come back elsewhere as one wave. It returns when all were told to go, or ctx ends.
func (s *Server) Drain(ctx context.Context, over time.Duration) {
	s.group.Shut()
	conns := s.snapshot(nil)
	rand.Shuffle(len(conns), func(i, j int) { conns[i], conns[j] = conns[j], conns[i] })
	for _, c := range conns {
		c.sendAway()
	}
	transport.Spread(ctx, len(conns), over, func(i int) { conns[i].stop(transport.Draining()) })
}

// Close closes all connections with 1012 and waits until they are gone, or until ctx ends: then they are cut. New ones
// are refused. http.Server.Shutdown doesn't wait for connections that became WebSockets.
func (s *Server) Close(ctx context.Context) {
	if !s.group.Wait(ctx) {
		for _, c := range s.snapshot(nil) {
			c.socket.cut()
		}
		s.group.Wait(context.WithoutCancel(ctx))
	}
	s.hands.close()
	s.keeper.Wait(context.WithoutCancel(ctx))
}

func (s *Server) handler(thread bool) http.Handler {
	//nolint:contextcheck // a connection outlives its request
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkHandshake(w.Header(), r); err != nil {
			transport.WriteProblem(w, s.logger, err)
			return
		}
		if err := come(r); err != nil {
			transport.WriteProblem(w, s.logger, err)
			return
		}
		ctx, leave, ok := s.group.Enter()
		if !ok {
			transport.WriteProblem(w, s.logger, transport.Draining())
			return
		}
		protocol, selected, err := selectProtocol(r)
		var request backfill.Request
		if err == nil {
			request, err = parseRequest(r, thread, protocol)
		}
		var caller *transport.Caller
		if err == nil {
			caller, err = transport.Allow(r, askOf(&request))
		}
		if err == nil {
			var stand func()
			if stand, err = caller.Sit(); err == nil {
				left := leave
				leave = func() { stand(); left() }
			}
		}
		c, accepted := s.accept(w, r, protocol, selected)
		if !accepted {
			leave()
			return
		}
		if err == nil {
			request.Grant = caller.Grant
			c.caller.Store(caller)
			c.asks = askOf(&request)
		}
		c.ctx, c.cancel = context.WithCancelCause(ctx)
		c.leave = leave
		go c.begin(&request, err) // the handler returns, and with it what net/http holds for a request
	})
}

// come counts the attach against its address' rate, whoever it is.
func come(r *http.Request) error {
	if caller := transport.CallerOf(r.Context()); caller != nil {
		return caller.Come()
	}
	return nil // Allow refuses it
}

// askOf is what an attach must be allowed.
func askOf(request *backfill.Request) transport.Ask {
	return transport.Ask{Scope: auth.Attach, Run: request.Run, Thread: request.Thread}
}

// begin is how a connection begins to be served. refusal is why it ends at once, nil where it may attach.
func (c *conn) begin(request *backfill.Request, refusal error) {
	c.server.add(c)
	if refusal != nil {
		c.cancel(refusal) // so that nothing is heeded that the peer sends
		c.listen()
		c.finish(refusal)
		return
	}
	c.listen()
	session, err := c.server.service.Attach(c.ctx, *request)
	if err != nil {
		c.finish(c.cause(err))
		return
	}
	c.session = session
	c.work()
}

// finish is how it ends.
func (c *conn) finish(err error) {
	if c.session != nil {
		c.session.Close()
	}
	if errors.Is(err, backfill.ErrForeign) {
		c.caller.Load().Late(c.asks, "other_thread")
	}
	c.end(err)
	c.reader.Wait()
	c.server.remove(c)
	c.leave()
}

// add counts a connection in.
func (s *Server) add(c *conn) {
	s.stats.accepted.Add(1)
	s.stats.open.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
}

// remove counts it out, and ends what still waits for it.
func (s *Server) remove(c *conn) {
	c.cancel(nil)
	s.stats.open.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// snapshot returns the connections, in buf's memory where they fit.
func (s *Server) snapshot(buf []*conn) []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	buf = buf[:0]
	for c := range s.conns {
		buf = append(buf, c)
	}
	return buf
}

// since is a moment as connections keep it: positive nanoseconds.
func (s *Server) since(t time.Time) int64 { return max(int64(t.Sub(s.epoch)), 1) }
