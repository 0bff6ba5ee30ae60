package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/stream"
)

// redisWatchEvery is how often Redis is asked how it does: four times between two scrapes.
const redisWatchEvery = 10 * time.Second

// checkRedis looks, once Redis has answered, whether it keeps what it is given, and says how the hub will learn of entries.
// It fails where Redis may throw whole runs away.
func (p *process) checkRedis(ctx context.Context) error {
	server, err := p.stacks[0].redis.Server(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.logger.Warn("Redis doesn't tell of its memory: nobody has looked whether it throws runs away", zap.Error(err))
		return nil
	}
	if p.flags.RedisConfigure && server.Policy != "" && server.Policy != keepAll {
		if err := p.stacks[0].redis.KeepAll(ctx); err != nil {
			p.logger.Warn("--redis-configure: Redis takes no configuration", zap.Error(err))
		} else {
			p.logger.Info("set maxmemory-policy", zap.String("from", server.Policy), zap.String("to", keepAll))
			server.Policy = keepAll
		}
	}
	mayExpire, err := server.CheckEviction()
	if err != nil {
		return fmt.Errorf("--redis: %w. Set maxmemory-policy to noeviction: in redis.conf, by CONFIG SET, in a managed server's parameter group, "+
			"or with --redis-configure where the server allows it", err)
	}
	if mayExpire {
		p.logger.Warn("Redis throws keys with an expiry away when its memory is full: runs that have ended may go before --retention. noeviction keeps them",
			zap.String("maxmemory_policy", server.Policy))
	}
	var fields []zap.Field
	if server.Version != "" { // the embedded one tells of neither
		fields = append(fields, zap.String("version", server.Version))
	}
	if server.Policy != "" {
		fields = append(fields, zap.String("maxmemory_policy", server.Policy), zap.Int64("maxmemory", server.Limit))
	}
	p.logger.Info("Redis", append(fields, zap.String("tail", p.flags.Tail), zap.String("without_wake_ups", p.stacks[0].redis.WithoutWakeUps()))...)
	return nil
}

// keepAll is the one maxmemory-policy under which nothing is lost.
const keepAll = "noeviction"

// watch logs what changes about Redis while the hub serves. It is for one goroutine.
type watch struct {
	logger      *zap.Logger
	redis       *stream.Redis
	tail        *stream.Tail
	stale       bool // the credentials file can't be read
	policy      string
	silent      bool   // Redis doesn't tell
	uninterrupt bool   // the tail's reads can't be interrupted
	wakesBy     string // what sends the wake-ups that the tail reads by
}

func newWatch(p *process, s *stack) *watch {
	return &watch{logger: p.logger, redis: s.redis, tail: s.tail}
}

// told takes what Redis tells.
func (w *watch) told(s stream.Server, err error) {
	logger := w.logger
	w.tailed(w.tail.Health())
	if stale := w.redis.CredentialsErr(); (stale != nil) != w.stale {
		if w.stale = stale != nil; w.stale {
			logger.Error("--redis-credentials-file can't be read: what was read before it stays in use", zap.Error(stale))
		}
	}
	if err != nil {
		if !w.silent && !errors.Is(err, stream.ErrUnavailable) { // that it is away is said by others
			w.silent = true
			logger.Warn("Redis doesn't tell how it does", zap.Error(err))
		}
		return
	}
	w.silent = false
	if w.policy != "" && s.Policy != w.policy {
		level := logger.Warn
		if _, err := s.CheckEviction(); err != nil {
			level = logger.Error
		}
		level("maxmemory-policy of Redis has changed", zap.String("from", w.policy), zap.String("to", s.Policy))
	}
	w.policy = s.Policy
}

// tailed logs what changed about how entries are learnt of.
func (w *watch) tailed(h stream.Health) {
	if (h.InterruptErr != nil) != w.uninterrupt {
		if w.uninterrupt = h.InterruptErr != nil; w.uninterrupt {
			w.logger.Warn("reads can't be interrupted: runs are followed up to two seconds late. The user needs XADD and PEXPIRE on {PREFIX:tail:*", zap.Error(h.InterruptErr))
		}
	}
	if h.Wakes.By != w.wakesBy {
		w.wakesBy = h.Wakes.By
		w.logger.Info("wake-ups", zap.String("by", cmp.Or(w.wakesBy, "none")), zap.Int("runs", h.Wakes.Keys), zap.Uint64("lost", h.Wakes.Lost))
	}
}
