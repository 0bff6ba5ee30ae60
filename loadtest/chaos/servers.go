// Package chaos runs hubs, Redis servers, producers and subscribers against each other while a schedule of faults, which
// a seed decides, kills, stops, moves and trims what it can, and lets package checker judge what every subscriber got.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/loadtest/process"
)

// server is a redis-server process on one port, with an append-only file in dir.
type server struct {
	dir    string
	port   string
	extra  []string
	proc   *process.Process // nil while it is dead
	client *redis.Client
}

// portAttempts is how often a port that somebody else took first is replaced by another.
const portAttempts = 5

func newServer(ctx context.Context, dir string, extra ...string) (*server, error) {
	var err error
	for range portAttempts {
		s := &server{dir: dir, extra: extra}
		if s.port, err = process.FreePort(ctx); err != nil {
			return nil, err
		}
		s.client = plainClient(s.addr())
		if err = s.start(ctx); err == nil {
			return s, nil
		}
		s.kill()
		_ = s.client.Close()
	}
	return nil, err
}

func plainClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true, DialTimeout: time.Second})
}

func (s *server) addr() string { return "127.0.0.1:" + s.port }

func (s *server) start(ctx context.Context) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	p, err := process.Start(ctx, nil, "redis-server", append([]string{
		"--port", s.port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "yes", "--appendfsync", "no",
		"--maxmemory-policy", "noeviction", "--notify-keyspace-events", "Kt", "--repl-diskless-sync-delay", "0", "--loglevel", "warning",
	}, s.extra...)...)
	if err != nil {
		return err
	}
	s.proc = p
	return p.Serving(ctx, func(ctx context.Context) error {
		return p.Answers(s.client.Info(ctx, "server", "persistence").Result())
	})
}

// kill kills the server as a crash would.
func (s *server) kill() {
	if s.proc != nil {
		s.proc.Kill()
		s.proc = nil
	}
}

// wipe removes what a killed server has on disk.
func (s *server) wipe() error { return os.RemoveAll(s.dir) }

// replicate makes the server a replica of another and waits until it has what that has.
func (s *server) replicate(ctx context.Context, of *server) error {
	if err := s.client.ReplicaOf(ctx, "127.0.0.1", of.port).Err(); err != nil {
		return err
	}
	return s.synced(ctx)
}

// synced waits until a replica has what its master has, in its append-only file too: until that is written anew, a kill
// would lose all.
func (s *server) synced(ctx context.Context) error {
	return process.WaitFor(ctx, "replica", func(ctx context.Context) error {
		info, err := s.client.Info(ctx, "replication").Result()
		if err != nil {
			return err
		}
		if !strings.Contains(info, "master_link_status:up") {
			return errors.New("no link to the master yet")
		}
		info, err = s.client.Info(ctx, "persistence").Result()
		if err != nil {
			return err
		}
		if !strings.Contains(info, "aof_rewrite_in_progress:0") || !strings.Contains(info, "aof_rewrite_scheduled:0") {
			return errors.New("its append-only file is being written anew")
		}
		return nil
	})
}

// proxy is an address that leads to one server now and to another later.
type proxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string
	conns  map[net.Conn]struct{}
	closed bool
}

func newProxy(ctx context.Context, target string) (*proxy, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]struct{}{}}
	p.wg.Go(func() { p.serve(context.WithoutCancel(ctx)) })
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) serve(ctx context.Context) {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		var d net.Dialer
		out, err := d.DialContext(ctx, "tcp", target)
		if err != nil || !p.keep(target, in, out) {
			_ = in.Close()
			if out != nil {
				_ = out.Close()
			}
			continue
		}
		p.wg.Go(func() { p.copy(in, out) })
		p.wg.Go(func() { p.copy(out, in) })
	}
}

// keep keeps a connection to target, unless the proxy leads elsewhere meanwhile.
func (p *proxy) keep(target string, conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.target != target {
		return false
	}
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return true
}

func (p *proxy) copy(dst, src net.Conn) {
	_, _ = io.Copy(dst, src)
	_, _ = dst.Close(), src.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, dst)
	delete(p.conns, src)
}

// lead has new connections go to target, and cuts the present ones or leaves them.
func (p *proxy) lead(target string, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	if cut {
		for c := range p.conns {
			_ = c.Close()
		}
	}
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.lead("", true)
	p.wg.Wait()
}

// hub is a process of aguihub.
type hub struct {
	binary string
	args   []string
	listen string // host:port
	base   string // http://host:port
	// metrics is the address of the metrics, goroutines how many there were when it had started first.
	metrics    string
	goroutines float64
	log        *os.File
	cmd        *exec.Cmd
}

var banner = regexp.MustCompile(`attach +ws(://[^/]+)/`)

// start starts the process, on its first ports again where it had some.
func (h *hub) start(ctx context.Context) error {
	for _, addr := range []*string{&h.listen, &h.metrics} {
		if *addr != "" {
			continue
		}
		port, err := process.FreePort(ctx)
		if err != nil {
			return err
		}
		*addr = "127.0.0.1:" + port
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), h.binary, append([]string{
		"--listen=" + h.listen, "--metrics-listen=" + h.metrics, "--no-demo", "--log-level=warn", "--attach-wait=5s",
	}, h.args...)...)
	from, err := h.log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	cmd.Stderr = h.log
	if err := cmd.Start(); err != nil {
		return err
	}
	h.cmd = cmd
	return process.WaitFor(ctx, "hub", func(context.Context) error {
		text := make([]byte, 8<<10)
		n, _ := h.log.ReadAt(text, from)
		m := banner.FindSubmatch(text[:n])
		if m == nil {
			return fmt.Errorf("it hasn't said where it listens: %s", text[:n])
		}
		h.base = "http" + string(m[1])
		return nil
	})
}

func (h *hub) kill() {
	if h.cmd != nil {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
		h.cmd = nil
	}
}

// drain asks the process to end and waits for it. Its exit code must be 0.
func (h *hub) drain() error {
	cmd := h.cmd
	h.cmd = nil
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("SIGTERM: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("a drained hub: %w", err)
	}
	return nil
}
