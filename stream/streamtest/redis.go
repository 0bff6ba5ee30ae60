// Package streamtest helps tests that need a log: real servers, collectors for what a tail delivers, and the
// suite that every log must pass.
package streamtest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
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
	path string
	args []string
	env  []string // beside the test's own
	port int

	mu  sync.Mutex
	cmd *exec.Cmd
	out *bytes.Buffer
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
	path, err := exec.LookPath("redis-server")
	if err != nil {
		tb.Fatal(missing)
	}
	s := &Server{dir: tb.TempDir(), path: path, args: extra, env: env}
	tb.Cleanup(s.Kill)
	for range portAttempts {
		s.port = freePort(tb)
		if err = s.start(tb.Context()); err == nil {
			return s
		}
		s.Kill()
	}
	tb.Fatalf("redis-server: %v\n%s", err, s.out)
	return nil
}

// freePort returns a port that nobody listens on right now.
func freePort(tb testing.TB) int {
	tb.Helper()
	var config net.ListenConfig
	l, err := config.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// Addr returns host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL returns the URL for stream.Connect.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Pid returns the process id, 0 while the server is killed.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// Kill kills the server as a crash would and waits for its end. It may be called at any time.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Start starts a killed server again, on the same port with the same data, and waits until it serves.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	if err := s.start(tb.Context()); err != nil {
		tb.Fatalf("redis-server: %v\n%s", err, s.out)
	}
}

func (s *Server) start(ctx context.Context) error {
	args := append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--daemonize", "no",
		"--save", "", "--appendonly", "yes", "--appendfsync", "no", "--maxmemory-policy", "noeviction",
	}, s.args...)
	// The context must not kill it: at the end of a test cleanups still talk to the server.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.path, args...)
	cmd.Env = append(cmd.Environ(), s.env...)
	s.mu.Lock()
	s.out = &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = s.out, s.out
	if err := cmd.Start(); err != nil {
		s.mu.Unlock()
		return err
	}
	s.cmd = cmd
	s.mu.Unlock()
	return s.waitServing(ctx)
}

// waitServing waits until the server, and no other one on its port, answers PING.
func (s *Server) waitServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DialerRetries: 1, DisableIdentity: true})
	defer func() { _ = client.Close() }()
	pid := "process_id:" + strconv.Itoa(s.Pid())
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		err := client.Ping(ctx).Err()
		if err == nil {
			info, infoErr := client.Info(ctx, "server").Result()
			switch {
			case infoErr != nil:
				err = infoErr
			case !bytes.Contains([]byte(info), []byte(pid)):
				return errPortTaken
			default:
				return nil
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return err
		}
	}
}

// errPortTaken says that another server answers on the port that was thought to be free.
var errPortTaken = errors.New("another server has the port")

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
