package transporttest

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Network is a net.Listener in memory whose connections buffer like a kernel does. It works inside a synctest bubble,
// where real sockets would hang.
type Network struct {
	buffer  int
	backlog chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

// NewNetwork returns a network whose connections buffer so many bytes in each direction.
func NewNetwork(buffer int) *Network {
	return &Network{buffer: buffer, backlog: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial connects to the listener; it fits http.Transport.DialContext.
func (n *Network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := Pipe(n.buffer)
	select {
	case n.backlog <- server:
		return client, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (n *Network) Accept() (net.Conn, error) {
	select {
	case c := <-n.backlog:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (n *Network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

// Addr implements net.Listener.
func (n *Network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// Pipe returns the two ends of a connection that buffers so many bytes in each direction.
func Pipe(buffer int) (a, b net.Conn) {
	there, back := newQueue(buffer), newQueue(buffer)
	return &end{in: back, out: there}, &end{in: there, out: back}
}

// queue is one direction of a connection.
type queue struct {
	limit int

	mu                          sync.Mutex
	changed                     *sync.Cond
	buf                         []byte
	ended, gone                 bool // the writer's, the reader's end is closed
	readDeadline, writeDeadline time.Time
}

func newQueue(limit int) *queue {
	q := &queue{limit: limit}
	q.changed = sync.NewCond(&q.mu)
	return q
}

func passed(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

func (q *queue) read(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.gone:
			return 0, net.ErrClosed
		case passed(q.readDeadline):
			return 0, os.ErrDeadlineExceeded
		case len(q.buf) > 0:
			n := copy(p, q.buf)
			q.buf = append(q.buf[:0], q.buf[n:]...)
			q.changed.Broadcast()
			return n, nil
		case q.ended:
			return 0, io.EOF
		}
		q.changed.Wait()
	}
}

func (q *queue) write(p []byte) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.ended:
			return n, net.ErrClosed
		case q.gone:
			return n, io.ErrClosedPipe
		case passed(q.writeDeadline):
			return n, os.ErrDeadlineExceeded
		}
		m := min(len(p), q.limit-len(q.buf))
		if m > 0 {
			q.buf = append(q.buf, p[:m]...)
			p, n = p[m:], n+m
			q.changed.Broadcast()
		}
		if len(p) == 0 {
			return n, nil
		}
		q.changed.Wait()
	}
}

func (q *queue) set(field *time.Time, t time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	*field = t
	q.changed.Broadcast()
	if wait := time.Until(t); !t.IsZero() && wait > 0 {
		time.AfterFunc(wait, q.changed.Broadcast)
	}
}

func (q *queue) close(flag *bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	*flag = true
	q.changed.Broadcast()
}

// end is one end of a connection.
type end struct{ in, out *queue }

// Read implements net.Conn.
func (e *end) Read(p []byte) (int, error) { return e.in.read(p) }

// Write implements net.Conn.
func (e *end) Write(p []byte) (int, error) { return e.out.write(p) }

// Close implements net.Conn.
func (e *end) Close() error {
	e.in.close(&e.in.gone)
	e.out.close(&e.out.ended)
	return nil
}

// LocalAddr implements net.Conn.
func (e *end) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// RemoteAddr implements net.Conn.
func (e *end) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2} }

// SetDeadline implements net.Conn.
func (e *end) SetDeadline(t time.Time) error {
	e.in.set(&e.in.readDeadline, t)
	e.out.set(&e.out.writeDeadline, t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (e *end) SetReadDeadline(t time.Time) error {
	e.in.set(&e.in.readDeadline, t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (e *end) SetWriteDeadline(t time.Time) error {
	e.out.set(&e.out.writeDeadline, t)
	return nil
}
