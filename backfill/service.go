package backfill

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
)

// Registry is what a Service asks about runs and threads (stream.Registry).
type Registry interface {
	Announce(ctx context.Context, info stream.RunInfo) error
	Correct(ctx context.Context, thread stream.ThreadID, run stream.RunID, startMs int64) error
	Thread(ctx context.Context, thread stream.ThreadID, limit int) ([]stream.ThreadRun, error)
	ThreadWith(ctx context.Context, thread stream.ThreadID, run stream.RunID, startMs int64, limit int) ([]stream.ThreadRun, error)
	Follow(after stream.ID, sink func([]stream.RunEvent)) (stop func())
}

// Log is where a Service reads runs (stream.Redis with its Tail).
type Log interface {
	hub.Log
	Beside
	Bounds(ctx context.Context, runs ...stream.RunID) ([]stream.Bounds, error)
}

// Config of a Service. Nothing may change while it runs.
type Config struct {
	// Name is this hub's name, as `attached` tells it.
	Name string
	// AttachWait is how long an attach waits for a run that is unknown yet; 0 is 30 s.
	AttachWait time.Duration
	// MaxEvent is the largest event in bytes; 0 is 8 MiB.
	MaxEvent int
	// MaxConversation is the largest conversation and state that an attach restates, in bytes; 0 is 32 MiB.
	MaxConversation int
	// PassInvalid sends whatever is valid JSON (--invalid=pass).
	PassInvalid bool
	// CacheBytes bounds the conversations of ended runs that are kept for the next runs of their threads; 0 is 256 MiB.
	CacheBytes int
	// Store is where runs are kept beside their streams: checkpoints, expiry, deletion (stream.Redis). Nil keeps nothing.
	Store Store
	// NoCheckpoints neither writes nor reads checkpoints.
	NoCheckpoints bool
	// MaxRunEntries is about how many entries a run may have before the older half is trimmed, where a checkpoint covers
	// it; 0 is no bound, and else it is MinRunEntries at least.
	MaxRunEntries int
	// Retention is how long a run is kept after its end; 0 is 24 h.
	Retention time.Duration
	// ThreadRetention is how long what a thread's newest run has left is kept; 0 is 30 days, and where it is negative
	// nothing is left.
	ThreadRetention time.Duration
	// Hub is how feeds and subscribers are bounded.
	Hub hub.Config
}

func (c *Config) fill() {
	if c.AttachWait <= 0 {
		c.AttachWait = 30 * time.Second
	}
	if c.MaxEvent <= 0 {
		c.MaxEvent = agui.DefaultMaxEvent
	}
	if c.MaxConversation <= 0 {
		c.MaxConversation = 32 << 20
	}
	if c.Retention <= 0 {
		c.Retention = 24 * time.Hour
	}
	if c.ThreadRetention == 0 {
		c.ThreadRetention = 30 * 24 * time.Hour
	}
	if c.CacheBytes <= 0 {
		c.CacheBytes = 256 << 20
	}
}

// packLimit bounds what is packed or unpacked, in bytes: what is restated, and beside it as much of inputs and the like.
func (c *Config) packLimit() int { return 2*c.MaxConversation + 4<<20 }

func (c *Config) agui() agui.RunConfig {
	return agui.RunConfig{MaxEvent: c.MaxEvent, PassInvalid: c.PassInvalid}
}

// Errors that transports branch on.
var (
	// ErrUnknownRun says that a run had no entry within Config.AttachWait.
	ErrUnknownRun = errors.New("backfill: unknown run")
	// ErrTooLarge says that the conversation is larger than Config.MaxConversation.
	ErrTooLarge = errors.New("backfill: conversation too large")
	// ErrDeleted says that the run was deleted under the session.
	ErrDeleted = fmt.Errorf("%w: it was deleted", ErrUnknownRun)
)

// Service makes sessions. Its methods may be called by any number of goroutines.
type Service struct {
	config   Config
	hub      *hub.Hub
	alone    *hub.Hub // of runs whose subscribers may see nothing of their threads
	log      Log
	registry Registry
	logger   *zap.Logger
	pasts    *cache
	threads  *threads
	stats    stats
	keeper   *keeper
	losses   atomic.Int64 // noticed by sessions and in the registry, and deletions: whoever remembers runs looks anew
}

// New starts a service whose goroutines end with ctx; Close waits for them. newest is the registry's newest entry as
// of now: what is announced after it is heard.
func New(ctx context.Context, log Log, registry Registry, newest stream.ID, config Config, logger *zap.Logger) *Service {
	config.fill()
	s := &Service{config: config, log: log, registry: registry, logger: logger, pasts: newCache(config.CacheBytes)}
	s.stats.begin()
	s.keeper = newKeeper(ctx, s)
	s.hub = hub.New(ctx, log, s.newMachine, config.Hub, logger)
	s.alone = hub.New(ctx, log, s.newLoneMachine, config.Hub.Part(4), logger)
	s.threads = newThreads(ctx, s)
	s.threads.follow(newest)
	return s
}

// Close ends all sessions and waits for the service's goroutines.
func (s *Service) Close() {
	s.threads.close()
	s.hub.Close()
	s.alone.Close()
	s.keeper.close()
}

// Figures reads the hub's figures.
func (s *Service) Figures() hub.Figures { return s.hub.Figures() }

// lost forgets what may be of entries that are gone.
func (s *Service) lost() {
	s.pasts.clear()
	s.losses.Add(1)
}

// countReset counts a reset by its reason.
func (s *Service) countReset(reason string) { s.stats.resets.Add(reason) }
