// Package streamtest helps tests that need a log: real servers, collectors for what a tail delivers, and the
// suite that every log must pass.
package streamtest

import (
	"context"
	"net"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/loadtest/process"
)

const (
	// patience is how long anything may take that is waited for. It only matters to failing tests.
	patience = 2 * time.Minute
	// pollEvery is the pause between two looks at another process.
	pollEvery = 5 * time.Millisecond
	// portAttempts is how often a port that somebody else took first is replaced by another.
	portAttempts = 5
)

// missing is what a test fails with where there is no server to test against.
const missing = `redis-server is not in PATH, and these tests don't skip without it.
Install Redis 7.0 or newer (or Valkey, with redis-server as its link), for example:
  Debian, Ubuntu:  apt-get install redis-server
  Alpine:          apk add redis
  macOS:           brew install redis`

// Server is a redis-server process of one test, on a free port of loopback, with an append-only file, so that
// it comes back with all data after Kill and Start.
type Server struct {
	dir  string
	args []string
	env  []string // beside the test's own
	port string

	mu   sync.Mutex
	proc *process.Process // nil while it is dead
}

// StartRedis starts a redis-server for this test and kills it at the end. extra are further arguments of its command
// line, e.g. "--notify-keyspace-events", "Kt". Without a redis-server in PATH the test fails.
func StartRedis(tb testing.TB, extra ...string) *Server {
	tb.Helper()
	return startRedis(tb, nil, extra...)
}

// startRedis is StartRedis with more in the server's environment.
func startRedis(tb testing.TB, env []string, extra ...string) *Server {
	tb.Helper()
	_, err := exec.LookPath("redis-server")
	if err != nil {
		tb.Fatal(missing)
	}
	s := &Server{dir: tb.TempDir(), args: extra, env: env}
	tb.Cleanup(s.Kill)
	for range portAttempts {
		if s.port, err = process.FreePort(tb.Context()); err != nil {
			break
		}
		if err = s.start(tb.Context()); err == nil {
			return s
		}
		s.Kill()
	}
	tb.Fatal(err)
	return nil
}

// Addr returns host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", s.port) }

// URL returns the URL for stream.Connect.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Pid returns the process id, 0 while the server is killed.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.Pid()
}

// Kill kills the server as a crash would and waits for its end. It may be called at any time.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		s.proc.Kill()
		s.proc = nil
	}
}

// Start starts a killed server again, on the same port with the same data, and waits until it serves.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	if err := s.start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

func (s *Server) start(ctx context.Context) error {
	// What a test sets in the environment is for the server alone.
	args := slices.Concat(s.env, []string{
		"redis-server", "--port", s.port, "--bind", "127.0.0.1", "--dir", s.dir, "--daemonize", "no",
		"--save", "", "--appendonly", "yes", "--appendfsync", "no", "--maxmemory-policy", "noeviction",
	}, s.args)
	p, err := process.Start(ctx, nil, "env", args...)
	if err != nil {
		return err
	}
	p.Name = "redis-server"
	s.mu.Lock()
	s.proc = p
	s.mu.Unlock()
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DialerRetries: 1, DisableIdentity: true})
	defer func() { _ = client.Close() }()
	return p.Serving(ctx, func(ctx context.Context) error {
		return p.Answers(client.Info(ctx, "server", "persistence").Result())
	})
}

// Client returns a client of the server, for commands that package stream doesn't offer. It is closed at the
// end of the test.
func (s *Server) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	return Client(tb, s.Addr())
}

// Client returns a plain client of the server at addr, closed at the end of the test.
func Client(tb testing.TB, addr string) *redis.Client {
	tb.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}
