package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/metrics"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport/console"
)

// serving is what runs once Redis has answered.
type serving struct {
	service  *backfill.Service
	registry *stream.Registry
	tail     *stream.Tail
	handler  http.Handler
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
func newServing(asked, life context.Context, p *process) (*serving, error) {
	f := p.flags
	registry := p.redis.NewRegistry(p.tail)
	newest, err := registry.Last(asked)
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	log := followedLog{p.redis, p.tail}
	s := &serving{registry: registry, tail: p.tail}
	s.service = backfill.New(life, log, registry, newest, backfill.Config{
		Name: hubName(), AttachWait: f.AttachWait, MaxEvent: int(f.MaxEvent), MaxConversation: int(f.MaxConversation),
		PassInvalid: f.Invalid == "pass", CacheBytes: int(f.Memory) / 5,
		Hub: hub.Config{QueueBytes: int(f.QueueBytes), Budget: int(f.Memory) / 5 * 4},
	}, p.logger)
	mux := http.NewServeMux()
	if f.console() {
		mux.Handle("/", console.Handler())
	}
	s.handler = mux
	return s, nil
}

// stop ends what would keep the server from ending.
func (s *serving) stop(ctx context.Context) bool { return true }

// close ends the rest, when no request is under way any more.
func (s *serving) close() { s.service.Close() }

// read fills in the figures of the parts.
func (s *serving) read(r *metrics.Reading) {
	h, t := s.service.Figures(), s.tail.Health()
	r.Hub = &metrics.Hub{
		Feeds: int64(h.Feeds), Waiting: h.Waiting, Subscribers: h.Subscribers, HeldBytes: h.Bytes, Entries: uint64(h.Entries),
		Withheld: uint64(h.Withheld), Deliveries: uint64(h.Deliveries), Lagged: uint64(h.Lagged),
	}
	r.Tail = &metrics.Tail{
		Keys: int64(t.Keys), Shards: int64(t.Shards), Failing: t.Err != nil, LastRead: t.OldestRead, Skipped: s.registry.Skipped(),
	}
}
