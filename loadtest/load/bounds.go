package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/loadtest/process"
)

// RawTCP is what is physically possible with a system call per event and subscriber: a program that writes each event to
// all connections, one after the other, and does nothing else. program has its loop in the command raw: see RunRaw.
func RawTCP(name, program string) Party {
	return Party{Name: name, Start: func(ctx context.Context, s Setting) (System, error) {
		port, err := process.FreePort(ctx)
		if err != nil {
			return nil, err
		}
		r := &raw{addr: "127.0.0.1:" + port}
		r.program, err = process.Start(ctx, s.Log, program, "raw", r.addr)
		if err != nil {
			return nil, err
		}
		err = r.program.Serving(ctx, func(ctx context.Context) error {
			var d net.Dialer
			r.feed, err = d.DialContext(ctx, "tcp", r.addr)
			return err
		})
		if err != nil {
			r.program.Kill()
			return nil, err
		}
		return r, nil
	}}
}

type raw struct {
	program *process.Process
	addr    string
	mu      sync.Mutex
	feed    net.Conn // the first connection is the publisher's
}

// Programs implements System.
func (r *raw) Programs() []*process.Process { return []*process.Process{r.program} }

// Publish implements System.
func (r *raw) Publish(_ context.Context, events []Event) ([]string, error) {
	var b []byte
	for _, e := range events {
		b = append(append(b, e.Data...), '\n')
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.feed.Write(b); err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	return nil, nil
}

// Attach implements System. There is one run.
func (r *raw) Attach(ctx context.Context, _, _ int) (Stream, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", r.addr)
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	s := &rawStream{conn: conn, r: bufio.NewReaderSize(conn, 4<<10)}
	if _, err := s.Next(); err != nil { // the greeting
		_ = conn.Close()
		return nil, fmt.Errorf("attach: %w", err)
	}
	return s, nil
}

// Close implements System.
func (r *raw) Close() {
	_ = r.feed.Close()
	r.program.Kill()
}

type rawStream struct {
	conn net.Conn
	r    *bufio.Reader
}

func (s *rawStream) Next() ([]byte, error) { return s.r.ReadSlice('\n') }
func (s *rawStream) Close() error          { return s.conn.Close() }

// RunRaw is the program of RawTCP, until its publisher leaves.
func RunRaw(ctx context.Context, addr string) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("raw: %w", err)
	}
	defer func() { _ = l.Close() }()
	feed, err := l.Accept()
	if err != nil {
		return fmt.Errorf("raw: %w", err)
	}
	var mu sync.Mutex
	conns := map[net.Conn]struct{}{}
	go func() { // it ends with the listener, and that with the program
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := c.Write([]byte("hello\n")); err == nil {
				mu.Lock()
				conns[c] = struct{}{}
				mu.Unlock()
			}
		}
	}()
	r := bufio.NewReaderSize(feed, 1<<20)
	for {
		event, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("raw: %w", err)
		}
		mu.Lock()
		for c := range conns {
			if _, err := c.Write(event); err != nil {
				_ = c.Close()
				delete(conns, c)
			}
		}
		mu.Unlock()
	}
}

// XRead is what Redis itself takes to hand an entry on: each subscriber is a blocked XREAD on a connection of its own.
func XRead(name string) Party {
	return Party{Name: name, Start: func(_ context.Context, s Setting) (System, error) {
		return &xread{appender: appender{client: s.Redis.client}, addr: s.Redis.addr}, nil
	}}
}

type xread struct {
	appender
	addr string
}

// Programs implements System.
func (*xread) Programs() []*process.Process { return nil }

// Close implements System.
func (*xread) Close() {}

// Attach implements System.
func (x *xread) Attach(ctx context.Context, run, _ int) (Stream, error) {
	client := redis.NewClient(&redis.Options{Addr: x.addr, PoolSize: 1, MaxRetries: -1, DisableIdentity: true})
	s := &xreadStream{ctx: context.WithoutCancel(ctx), client: client, key: "agui:run:" + runName(run), last: "0"}
	newest, err := client.XRevRangeN(ctx, s.key, "+", "-", 1).Result()
	if err != nil {
		_ = client.Close()
		return nil, fmt.Errorf("attach: %w", err)
	}
	if len(newest) > 0 {
		s.last = newest[0].ID
	}
	return s, nil
}

type xreadStream struct {
	ctx    context.Context //nolint:containedctx // of all reads; Close ends them
	client *redis.Client
	key    string
	last   string
	buf    []byte
}

// Next implements Stream.
func (s *xreadStream) Next() ([]byte, error) {
	for {
		got, err := s.client.XRead(s.ctx, &redis.XReadArgs{Streams: []string{s.key, s.last}, Block: time.Minute}).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s.buf = s.buf[:0]
		for _, m := range got[0].Messages {
			event, _ := m.Values["event"].(string)
			s.buf, s.last = append(s.buf, event...), m.ID
		}
		return s.buf, nil
	}
}

// Close implements Stream.
func (s *xreadStream) Close() error { return s.client.Close() }

// PubSub is what Redis spends where entries are appended and their payloads are published, too: one connection subscribes
// to all runs, as a hub would, and nobody reads a stream.
func PubSub(name string) Party {
	return Party{Name: name, Start: func(ctx context.Context, s Setting) (System, error) {
		p := &pubsub{client: s.Redis.client, streams: map[string]chan []byte{}, done: make(chan struct{})}
		p.sub = p.client.Subscribe(ctx, "none")
		ctx = context.WithoutCancel(ctx) // Close ends it
		p.wg.Go(func() { p.read(ctx) })
		return p, nil
	}}
}

type pubsub struct {
	client *redis.Client
	sub    *redis.PubSub
	wg     sync.WaitGroup
	done   chan struct{}

	mu      sync.Mutex
	streams map[string]chan []byte // by channel: one subscriber each
}

// Programs implements System.
func (*pubsub) Programs() []*process.Process { return nil }

// Close implements System.
func (p *pubsub) Close() {
	close(p.done)
	_ = p.sub.Close()
	p.wg.Wait()
}

func (p *pubsub) read(ctx context.Context) {
	for {
		m, err := p.sub.ReceiveMessage(ctx)
		if err != nil {
			return
		}
		p.mu.Lock()
		ch := p.streams[m.Channel]
		p.mu.Unlock()
		if ch == nil {
			continue
		}
		select {
		case ch <- []byte(m.Payload):
		case <-p.done:
			return
		}
	}
}

// Publish implements System.
func (p *pubsub) Publish(ctx context.Context, events []Event) ([]string, error) {
	pipe := p.client.Pipeline()
	for _, e := range events {
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: "agui:run:" + runName(e.Run), Values: []any{"event", e.Data}})
		pipe.Publish(ctx, runName(e.Run), e.Data)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	return nil, nil
}

// Attach implements System. A run has one subscriber.
func (p *pubsub) Attach(ctx context.Context, run, _ int) (Stream, error) {
	s := &pubsubStream{events: make(chan []byte, 16), done: make(chan struct{})}
	p.mu.Lock()
	p.streams[runName(run)] = s.events
	p.mu.Unlock()
	if err := p.sub.Subscribe(ctx, runName(run)); err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	return s, nil
}

type pubsubStream struct {
	events chan []byte
	once   sync.Once
	done   chan struct{}
}

// Next implements Stream.
func (s *pubsubStream) Next() ([]byte, error) {
	select {
	case b := <-s.events:
		return b, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Close implements Stream.
func (s *pubsubStream) Close() error {
	s.once.Do(func() { close(s.done) })
	return nil
}
