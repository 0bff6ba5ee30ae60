package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/bridge"
	"github.com/aguihub/aguihub/demo"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
	"github.com/aguihub/aguihub/transport/agents"
	"github.com/aguihub/aguihub/transport/cancel"
	"github.com/aguihub/aguihub/transport/console"
	"github.com/aguihub/aguihub/transport/erase"
	"github.com/aguihub/aguihub/transport/ingest"
	"github.com/aguihub/aguihub/transport/lookup"
	"github.com/aguihub/aguihub/transport/sse"
	"github.com/aguihub/aguihub/transport/tickets"
	"github.com/aguihub/aguihub/transport/ws"
)

// serving is what runs once Redis has answered: the layers, wired.
type serving struct {
	logger   *zap.Logger
	memory   int64 // --memory
	tail     *stream.Tail
	registry *stream.Registry
	service  *backfill.Service
	ws       *ws.Server
	sse      *sse.Server
	ingest   *ingest.Server
	lookup   *lookup.Server
	bridge   *bridge.Bridge
	reaper   *publish.Reaper
	handler  http.Handler
	agents   sync.WaitGroup // what works beside the servers: the demo agent, the reaper, the sweep for unannounced runs and the reaper
}

// followedLog is the log with the tail that follows it.
type followedLog struct {
	*stream.Redis
	tail *stream.Tail
}

// Follow implements hub.Log.
func (l followedLog) Follow(run stream.RunID, after stream.ID, sink stream.Sink) func() {
	return l.tail.Follow(run, after, sink)
}

// newServing wires the layers. asked ends when the process is to stop, life when everything has been closed.
// newest is the registry's newest entry as of now.
func newServing(asked, life context.Context, p *process, st *stack, registry *stream.Registry, newest stream.ID) (_ *serving, err error) {
	f, memory := p.flags, int(p.flags.Memory)/len(p.stacks)
	s := &serving{logger: p.logger, memory: int64(memory), tail: st.tail, registry: registry}
	s.service = backfill.New(life, followedLog{st.redis, st.tail}, s.registry, newest, backfill.Config{
		Name: hubName(), AttachWait: f.AttachWait, MaxEvent: int(f.MaxEvent), MaxConversation: int(f.MaxConversation),
		PassInvalid: f.passInvalid(), CacheBytes: memory / 5,
		Store: st.redis, Retention: f.retention(), ThreadRetention: f.threadRetention(), NoCheckpoints: f.Checkpoints == off,
		MaxRunEntries: f.MaxRunEntries,
		Hub:           hub.Config{QueueBytes: int(f.QueueBytes), Budget: memory / 5 * 4},
	}, p.logger)
	defer func() {
		if err != nil {
			s.service.Close()
		}
	}()
	publisher, err := publish.New(st.redis, s.registry, publish.Config{
		MaxEvent: int(f.MaxEvent), PassInvalid: f.passInvalid(), LeaseTTL: f.LeaseTTL,
	})
	if err != nil {
		return nil, err
	}
	if s.handler, err = s.routes(life, p, st, publisher); err != nil {
		return nil, err
	}
	if f.demo() && st == p.stacks[0] {
		agent, err := demo.New(publisher, demo.Config{}, p.logger)
		if err != nil {
			return nil, err
		}
		s.agents.Go(func() { _ = agent.Run(asked) })
	}
	s.reaper = publish.NewReaper(st.redis, s.registry, publish.ReaperConfig{
		LeaseTTL: f.LeaseTTL, Idle: f.IdleTimeout, MaxEvent: int(f.MaxEvent), Stalled: s.service.Stalled,
	}, p.logger)
	s.agents.Go(func() { _ = s.reaper.Run(asked) })
	s.agents.Go(func() { _ = st.redis.Watch(asked, redisWatchEvery, newWatch(p, st).told) })
	s.agents.Go(func() { _ = s.service.Discover(asked, st.redis) })
	s.agents.Go(func() {
		_ = s.service.Tidy(asked, st.redis, backfill.TidyConfig{AbandonedAfter: f.AbandonedAfter, ThreadRetention: f.threadRetention()})
	})
	return s, nil
}

// routes starts the transports and mounts them behind the guard.
func (s *serving) routes(life context.Context, p *process, st *stack, publisher *publish.Publisher) (http.Handler, error) {
	f := p.flags
	config := transport.Config{WriteTimeout: f.WriteTimeout, MaxAge: f.MaxConnectionAge, Canceller: s.service, MaxInboundRate: f.MaxMessageRate, Plain: f.Deflate == "off"}
	var err error
	if s.ingest, err = ingest.New(life, publisher, ingest.Config{MaxEvent: int(f.MaxEvent), Threads: s.service}, p.logger); err != nil {
		return nil, err
	}
	if s.ws, err = ws.New(life, s.service, config, p.logger); err != nil {
		return nil, err
	}
	if s.sse, err = sse.New(life, s.service, config, p.logger); err != nil {
		return nil, err
	}
	if s.lookup, err = lookup.New(s.service, s.registry, config, p.logger); err != nil {
		return nil, err
	}
	if err := s.startBridge(life, p, st, publisher); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	s.ws.Mount(mux)
	s.sse.Mount(mux)
	s.lookup.Mount(mux)
	mux.Handle(ingest.Pattern, s.ingest)
	mux.Handle(cancel.Pattern, cancel.New(s.service, s.service, p.logger))
	mux.Handle(tickets.Pattern, tickets.New(p.logger))
	erase.New(s.service, p.logger).Mount(mux)
	callable, err := agents.New(s.bridge, s.sse, config, p.logger)
	if err != nil {
		return nil, err
	}
	callable.Mount(mux)
	if f.console() {
		console.Mount(mux, console.Hint{Version: builtFrom().Version, Publish: p.publishLine(st)})
	}
	return transport.Routes(mux, p.logger), nil
}

// claimsPerTTL has the claim of a thread outlast the lease of the run that was claimed with it, and the time in which a
// reaper ends that: until then the run may still go on.
const claimsPerTTL = 3

// startBridge makes the agents of the configuration callable.
func (s *serving) startBridge(life context.Context, p *process, st *stack, publisher *publish.Publisher) error {
	called, err := p.flags.agents()
	if err != nil {
		return usagef("%w", err)
	}
	s.bridge, err = bridge.New(life, publisher, agents.Threads{Service: s.service, Name: hubName()},
		agents.Claims{Service: s.service, Log: st.redis, TTL: claimsPerTTL * p.flags.LeaseTTL}, bridge.Config{
			Agents: called, MaxEvent: int(p.flags.MaxEvent), MaxRuns: p.flags.MaxAgentRuns, KeepEvery: p.flags.LeaseTTL / 3,
		}, p.logger)
	return err
}

// listenHost is the address that the operator chose to listen on: no name, so that nobody can rebind it.
func listenHost(address string) []string {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsUnspecified() || ip.IsLoopback() {
		return nil
	}
	return []string{host}
}

// drain takes nothing new, closes sockets one by one, and lets ingest and agents finish what is under way, all within
// the time that ctx and over give.
func (s *serving) drain(ctx context.Context, over time.Duration) {
	var parts sync.WaitGroup
	parts.Go(func() { s.ws.Drain(ctx, over) })
	parts.Go(func() { s.sse.Drain(ctx, over) })
	parts.Go(func() { s.ingest.Drain(ctx) })
	parts.Go(func() { s.bridge.Drain(ctx) })
	parts.Wait()
}

// stop ends the demo agent, the reaper and the transports: its run is ended, ingest answers what has arrived, sockets are closed.
// It reports whether all did so in time.
func (s *serving) stop(ctx context.Context) bool {
	s.agents.Wait()
	err := errors.Join(s.bridge.Close(ctx), s.ingest.Close(ctx))
	s.ws.Close(ctx)
	s.sse.Close(ctx)
	return errors.Join(err, ctx.Err()) == nil
}

// close ends the rest, when no request is under way any more.
func (s *serving) close() { s.service.Close() }
