package stream

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is what a Redis server tells of itself; of several that which is fullest.
type Server struct {
	Version     string
	Used, Limit int64         // memory in bytes; a Limit of 0 is none
	Policy      string        // maxmemory_policy; empty where the server doesn't say
	Evicted     int64         // keys thrown away for want of memory since the start, of all servers
	ClockAhead  time.Duration // of this machine's clock, give or take half a round trip

	told time.Time
}

// fill is how full a server is, from 0 to 1; 0 where it has no limit.
func (s *Server) fill() float64 {
	if s.Limit <= 0 {
		return 0
	}
	return float64(s.Used) / float64(s.Limit)
}

// Server asks the server, on a cluster each master, how it does. It needs no rights but those to INFO and TIME.
func (l *Redis) Server(ctx context.Context) (Server, error) {
	cluster, ok := l.commands.(*redis.ClusterClient)
	if !ok {
		return askServer(ctx, l.commands)
	}
	var mu sync.Mutex
	var fullest Server
	var evicted int64
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		s, err := askServer(ctx, node)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		evicted += s.Evicted
		// One that throws away is the one to know of, however full it is.
		if fullest.told.IsZero() || evicts(s.Policy) && !evicts(fullest.Policy) || evicts(s.Policy) == evicts(fullest.Policy) && s.fill() >= fullest.fill() {
			fullest = s
		}
		return nil
	})
	fullest.Evicted = evicted
	return fullest, classify(ctx, "server", err)
}

// evicts says whether a policy may throw away streams that have no expiry.
func evicts(policy string) bool { return strings.HasPrefix(policy, "allkeys-") }

func askServer(ctx context.Context, client redis.Cmdable) (Server, error) {
	// The whole of it: sections by name in one call are not to be had everywhere.
	info, err := client.Info(ctx).Result()
	if err != nil {
		return Server{}, classify(ctx, "info", err)
	}
	s := parseInfo(info)
	sent := time.Now()
	clock, err := client.Time(ctx).Result()
	s.told = time.Now()
	if err == nil {
		s.ClockAhead = clock.Sub(sent.Add(s.told.Sub(sent) / 2))
	}
	return s, nil
}

func parseInfo(info string) Server {
	var s Server
	number := func(text string) int64 {
		n, _ := strconv.ParseInt(text, 10, 64) // a server that says something else says nothing
		return n
	}
	for line := range strings.Lines(info) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		switch name {
		case "redis_version":
			s.Version = value
		case "used_memory":
			s.Used = number(value)
		case "maxmemory":
			s.Limit = number(value)
		case "maxmemory_policy":
			s.Policy = value
		case "evicted_keys":
			s.Evicted = number(value)
		}
	}
	return s
}

// EvictionError says that the server throws runs away when its memory is full.
type EvictionError struct{ Policy string }

// Error implements error.
func (e *EvictionError) Error() string {
	return fmt.Sprintf("stream: redis has maxmemory-policy %s: when its memory is full it throws away whole runs, without an error", e.Policy)
}

// CheckEviction says what a server's policy does to runs: an *EvictionError where it may throw away any key. mayExpire
// says that only keys with an expiry go, which are those of runs that have ended.
func (s *Server) CheckEviction() (mayExpire bool, err error) {
	if evicts(s.Policy) {
		return false, &EvictionError{Policy: s.Policy}
	}
	return strings.HasPrefix(s.Policy, "volatile-"), nil
}

// KeepAll sets the server's maxmemory-policy to noeviction, on a cluster each master's. Managed servers refuse it with
// [ErrDenied], or don't know the command.
func (l *Redis) KeepAll(ctx context.Context) error {
	set := func(ctx context.Context, client redis.Cmdable) error {
		return classify(ctx, "config", client.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
	}
	if cluster, ok := l.commands.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return set(ctx, node) })
	}
	return set(ctx, l.commands)
}

// Watch asks the server every so often, for Figures, until ctx ends, and then returns ctx's error. changed is called with
// each answer, the first included, and with each error, by one goroutine.
func (l *Redis) Watch(ctx context.Context, every time.Duration, told func(Server, error)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		ask, cancel := context.WithTimeout(ctx, every)
		s, err := l.Server(ask)
		cancel()
		if err == nil {
			l.server.Store(&s)
		}
		if ctx.Err() == nil {
			told(s, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
