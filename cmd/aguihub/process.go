package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/aguihub/aguihub/audit"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

const (
	// stopTimeout bounds a clean stop; what hasn't ended by then is cut. Below the 30 s that supervisors commonly give.
	stopTimeout = 10 * time.Second
	// readHeaderTimeout and idleTimeout are how long a client may take over its headers and keep an idle connection.
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	// redisFirstPause and redisLastPause bound the pauses between tries while Redis is absent at start.
	redisFirstPause = 100 * time.Millisecond
	redisLastPause  = 2 * time.Second
)

// process is one running hub: what was opened for it, in the order of opening.
type process struct {
	flags  *serveCommand
	logger *zap.Logger

	// static after newProcess
	embedded     *stream.Embedded // nil with --redis
	stacks       []*stack         // one a tenant, at least one
	access       *transport.Access
	audit        *audit.Log // nil when off
	main         net.Listener
	tls          *tls.Config  // of main; nil where it speaks plain HTTP
	metrics      net.Listener // nil when off
	debug        net.Listener // nil when off
	metricsTaken bool         // off because another process has the default port
	gate         gate

	stopping atomic.Bool
}

// stack is what serves one tenant: all layers, on keys of its own, so that none of them can mix tenants up.
type stack struct {
	tenant  string // "" where there is one only
	prefix  string // of its keys
	redis   *stream.Redis
	tail    *stream.Tail
	serving atomic.Pointer[serving] // nil until Redis has answered
}

// newProcess opens what the flags name, so that a port that is taken or a URL that can't be used is known at once.
func newProcess(ctx context.Context, flags *serveCommand, logger *zap.Logger) (_ *process, err error) {
	p := &process{flags: flags, logger: logger}
	defer func() {
		if err != nil {
			p.closeAll()
		}
	}()
	if err := p.openRedis(); err != nil {
		return nil, err
	}
	if err := p.openAccess(ctx); err != nil {
		return nil, err
	}
	if p.tls, err = flags.openTLS(logger); err != nil {
		return nil, err
	}
	if p.main, err = listen(ctx, "--listen", flags.Listen); err != nil {
		return nil, err
	}
	if flags.MetricsListen != off {
		p.metrics, err = listen(ctx, "--metrics-listen", flags.MetricsListen)
		if errors.Is(err, syscall.EADDRINUSE) && flags.MetricsListen == defaultMetrics {
			// A second hub on one machine is common where people try things, and nobody asked for this port.
			p.metricsTaken, err = true, nil
		}
		if err != nil {
			return nil, err
		}
	}
	if flags.DebugListen != "" && flags.DebugListen != off {
		if p.debug, err = listen(ctx, "--debug-listen", flags.DebugListen); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func listen(ctx context.Context, flag, address string) (net.Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s: %w: something else listens there; %[1]s HOST:PORT takes another port, port 0 a free one", flag, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return l, nil
}

func (p *process) openRedis() error {
	url := p.flags.Redis
	if p.flags.embedded() {
		var err error
		if p.embedded, err = stream.StartEmbedded(p.flags.EmbeddedRedisListen); err != nil {
			return fmt.Errorf("--embedded-redis-listen: %w", err)
		}
		url = p.embedded.URL()
	}
	security := stream.Security{
		CAFile: p.flags.RedisCA, CertFile: p.flags.RedisCert, KeyFile: p.flags.RedisKey, CredentialsFile: p.flags.RedisCredentialsFile,
	}
	issuers, err := p.flags.issuers()
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	for _, tenant := range tenantsOf(issuers) {
		s := &stack{tenant: tenant, prefix: tenantPrefix(p.flags.KeyPrefix, tenant)}
		if s.redis, err = stream.Connect(url, stream.Config{KeyPrefix: s.prefix, Security: security}); err != nil {
			return usagef("--redis: %w", err)
		}
		s.tail = s.redis.NewTail(stream.TailConfig{By: stream.TailBy(p.flags.Tail)})
		p.stacks = append(p.stacks, s)
	}
	return nil
}

// closeAll closes what was opened, the newest first. Closing twice does no harm.
func (p *process) closeAll() {
	for _, l := range []net.Listener{p.debug, p.metrics, p.main} {
		if l != nil {
			_ = l.Close()
		}
	}
	for _, s := range p.stacks {
		_ = s.redis.Close()
	}
	_ = p.audit.Close()
	if p.embedded != nil {
		p.embedded.Close()
	}
}

// banner says what runs where, for whoever started the hub by hand.
func (p *process) banner(w io.Writer) {
	scheme := "http"
	if p.tls != nil {
		scheme = "https"
	}
	base := scheme + "://" + reachable(p.main.Addr().String())
	var b strings.Builder
	fmt.Fprintf(&b, "aguihub %s\n", builtFrom().Version)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-9s "+format+"\n", append([]any{name}, args...)...)
	}
	if p.flags.console() {
		line("page", "%s/", base)
	}
	line("attach", "ws%s/v1/runs/RUN/ws   or: aguihub attach RUN --url %s", strings.TrimPrefix(base, "http"), base)
	if p.embedded != nil {
		line("redis", "embedded at %s (nothing is kept after the stop)", p.embedded.Addr())
	}
	line("publish", "%s", p.publishLine(p.stacks[0]))
	if agents, err := p.flags.agents(); err == nil {
		for _, a := range agents {
			line("agent", "%s/v1/agents/%s", base, a.Name)
		}
	}
	if p.flags.demo() {
		line("demo", "a run after another, in threads demo, demo-thread-2, …")
	}
	switch {
	case p.metrics != nil:
		line("metrics", "http://%s/metrics", reachable(p.metrics.Addr().String()))
	case p.metricsTaken:
		line("metrics", "off: %s is taken; choose another address with --metrics-listen", defaultMetrics)
	}
	if p.debug != nil {
		line("debug", "http://%s/debug/pprof/", p.debug.Addr())
	}
	line("access", "%s", p.flags.accessLine())
	if p.flags.InsecureNoAuth {
		line("WARNING", "there is no authentication: whoever reaches %s sees and publishes everything", p.flags.Listen)
	}
	_, _ = io.WriteString(w, b.String())
}

// reachable turns an address that listens everywhere into one that a person can open.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err == nil && (host == "::" || host == "0.0.0.0" || host == "") {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// run serves until asked ends or a listener fails, then stops in order.
func (p *process) run(asked context.Context) error {
	defer p.closeAll()
	ctx, cancel := context.WithCancelCause(asked)
	defer cancel(nil)
	// What serves outlives ctx: a stop closes it step by step.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()

	var group errgroup.Group
	for _, s := range p.stacks {
		group.Go(func() error {
			_ = s.tail.Run(life)
			return nil
		})
	}
	servers := p.listenAndServe(&group, cancel)
	if front, err := p.connect(ctx, life); err != nil {
		cancel(err)
	} else {
		p.gate.open(front)
		p.logger.Info("serving", zap.String("listen", p.main.Addr().String()), zap.String("key_prefix", p.flags.KeyPrefix))
	}
	<-ctx.Done()

	p.stopping.Store(true)
	p.logger.Info("stopping", zap.Duration("drain", p.flags.DrainTime))
	p.drain(life)
	stopCtx, stopped := context.WithTimeout(life, stopTimeout)
	defer stopped()
	clean := true
	for _, s := range p.running() {
		clean = s.stop(stopCtx) && clean
	}
	for _, server := range servers {
		if err := server.Shutdown(stopCtx); err != nil {
			clean = false
			_ = server.Close()
		}
	}
	for _, s := range p.running() {
		s.close()
	}
	end()
	_ = group.Wait()
	p.logger.Info("stopped", zap.Bool("clean", clean))
	if asked.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// drain sends everybody away in good order, for --drain-time at most. What is left then is stopped.
func (p *process) drain(life context.Context) {
	over := p.flags.DrainTime
	ctx, cancel := context.WithTimeout(life, over)
	defer cancel()
	var parts sync.WaitGroup
	for _, s := range p.running() {
		parts.Go(func() { s.drain(ctx, over*9/10) })
	}
	parts.Wait()
}

// listenAndServe starts the servers, the hub's own first. One that fails ends the process through cancel.
func (p *process) listenAndServe(group *errgroup.Group, cancel context.CancelCauseFunc) []*http.Server {
	var servers []*http.Server
	start := func(l net.Listener, h http.Handler, security *tls.Config) {
		if l == nil {
			return
		}
		server := &http.Server{
			Handler: h, TLSConfig: security, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
			ErrorLog: log.New(serverLog{p.logger}, "", 0),
		}
		servers = append(servers, server)
		if l == p.main {
			l = transport.WatchHeads(server, l)
		}
		group.Go(func() error {
			serve := server.Serve
			if security != nil {
				serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
			}
			if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
				cancel(fmt.Errorf("listener %s: %w", l.Addr(), err))
			}
			return nil
		})
	}
	start(p.main, &p.gate, p.tls)
	start(p.metrics, p.opsHandler(), nil)
	start(p.debug, debugHandler(), nil)
	return servers
}

// connect wires the layers when Redis answers.
func (p *process) connect(ctx, life context.Context) (http.Handler, error) {
	for _, s := range p.stacks {
		registry := s.redis.NewRegistry(s.tail)
		newest, err := p.waitForRedis(ctx, s, registry)
		if err != nil {
			return nil, err
		}
		if s == p.stacks[0] { // the server is all tenants'
			if err := p.checkRedis(ctx); err != nil {
				return nil, err
			}
		}
		serving, err := newServing(ctx, life, p, s, registry, newest)
		if err != nil {
			return nil, err
		}
		s.serving.Store(serving)
	}
	return p.front()
}

// running are the stacks that serve.
func (p *process) running() (out []*serving) {
	for _, s := range p.stacks {
		if serving := s.serving.Load(); serving != nil {
			out = append(out, serving)
		}
	}
	return out
}

// waitForRedis returns the registry's newest entry when Redis answers. It fails when ctx ends, and for a registry that
// can't be read however long one waits.
func (p *process) waitForRedis(ctx context.Context, s *stack, registry *stream.Registry) (stream.ID, error) {
	wait := redisFirstPause
	for {
		newest, err := registry.Last(ctx)
		switch {
		case err == nil:
			return newest, nil
		case ctx.Err() != nil:
			return stream.ID{}, ctx.Err()
		case errors.Is(err, stream.ErrWrongType):
			return stream.ID{}, fmt.Errorf("%s: %w", s.redis.Keys().Runs(), err)
		}
		p.logger.Warn("waiting for Redis: /readyz fails until it answers", zap.Error(err), zap.Duration("next_try_in", wait))
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return stream.ID{}, ctx.Err()
		}
		wait = min(2*wait, redisLastPause)
	}
}

// hubName tells this hub from others in `attached` lines.
func hubName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "hub"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// publishLine is what publishes a run's first event from a terminal.
func (p *process) publishLine(st *stack) string {
	const event = `{"type":"RUN_STARTED","threadId":"t1","runId":"r1"}`
	key := st.redis.Keys().Run("r1")
	if p.embedded == nil {
		return fmt.Sprintf("XADD %s * event '%s'", key, event)
	}
	host, port, _ := net.SplitHostPort(p.embedded.Addr())
	hostFlag := ""
	if host != "127.0.0.1" {
		hostFlag = " -h " + host
	}
	return fmt.Sprintf("redis-cli%s -p %s XADD %s '*' event '%s'", hostFlag, port, key, event)
}
