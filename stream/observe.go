package stream

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/metrics"
)

// observer counts what a client does. It is a hook of the client library, which may be called by anyone at once.
type observer struct {
	// static
	client  redis.UniversalClient
	seconds *metrics.Histogram // nil where calls block

	calls, dialled atomic.Uint64
	errors         metrics.Tally
}

// observe has a client counted. On a cluster the clients of the nodes are, since appends go to them directly.
func observe(client redis.UniversalClient, blocks bool) *observer {
	o := &observer{client: client}
	o.errors.Expect("dial", "unavailable", "denied", "full", "wrong_type", "other")
	if !blocks {
		o.seconds = metrics.NewHistogram()
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(o) })
	} else {
		client.AddHook(o)
	}
	return o
}

// DialHook implements redis.Hook.
func (o *observer) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			o.errors.Add("dial")
		} else {
			o.dialled.Add(1)
		}
		return conn, err
	}
}

// ProcessHook implements redis.Hook.
func (o *observer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		o.seconds.Observe(time.Since(began))
		o.called(ctx, err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (o *observer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmds)
		o.seconds.Observe(time.Since(began))
		for _, cmd := range cmds {
			o.called(ctx, cmd.Err())
		}
		return err
	}
}

func (o *observer) called(ctx context.Context, err error) {
	o.calls.Add(1)
	if kind := kindOfFailure(ctx, err); kind != "" {
		o.errors.Add(kind)
	}
}

// kindOfFailure names what went wrong with a call, as a label of metrics; "" for what is no failure: a caller that went
// away, and replies that the log asks for.
func kindOfFailure(ctx context.Context, err error) string {
	err = classify(ctx, "call", err)
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, ErrClosed):
		return ""
	case errors.Is(err, ErrUnavailable):
		return "unavailable"
	case errors.Is(err, ErrDenied):
		return "denied"
	case errors.Is(err, ErrFull):
		return "full"
	case errors.Is(err, ErrWrongType):
		return "wrong_type"
	}
	if reply, ok := errors.AsType[redis.Error](err); ok {
		text := reply.Error()
		if strings.HasPrefix(text, "NOSCRIPT") || strings.HasPrefix(text, "ERR no such key") {
			return ""
		}
	}
	return "other"
}

func (o *observer) figures() metrics.RedisClient {
	pool := o.client.PoolStats()
	return metrics.RedisClient{
		Calls: o.calls.Load(), Errors: o.errors.Read(), Dialled: o.dialled.Load(), Seconds: o.seconds,
		Open: int64(pool.TotalConns), Idle: int64(pool.IdleConns),
	}
}

// Figures tells what the log's clients did, by what they are for, and, where Watch runs, what the server tells of itself.
func (l *Redis) Figures() metrics.Redis {
	f := metrics.Redis{Clients: map[string]metrics.RedisClient{
		"commands": l.observed[useCommands].figures(), "appends": l.observed[useAppends].figures(),
	}}
	if o := l.readers.Load(); o != nil {
		f.Clients["readers"] = o.figures()
	}
	if s := l.server.Load(); s != nil {
		f.Server = &metrics.RedisServer{
			Used: s.Used, Limit: s.Limit, Policy: s.Policy, Evicted: uint64(s.Evicted), ClockAhead: s.ClockAhead, Told: s.told,
		}
	}
	return f
}
