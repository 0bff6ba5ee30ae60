package transport

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync/atomic"
)

// WatchHeads counts connections that end before a request of theirs had arrived: those that took longer over a TLS handshake
// or a request's header than server.ReadHeaderTimeout, silent ones included, and those whose header was larger than
// server.MaxHeaderBytes. net/http refuses these itself and tells nobody. The server must serve what is returned, and its
// handler and hooks must not be changed afterwards. Over HTTP/2 only handshakes are counted: there a request that is refused
// doesn't end the connection.
func WatchHeads(server *http.Server, l net.Listener) net.Listener {
	// By net/http's own reckoning: what it buffers may be beyond the header.
	limit := int64(server.MaxHeaderBytes) + 4<<10
	handler := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, ok := r.Context().Value(headKey{}).(*head); ok {
			h.arrived.Store(true)
		}
		handler.ServeHTTP(w, r)
	})
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if h := headOf(conn); h != nil {
			return context.WithValue(ctx, headKey{}, h)
		}
		return ctx
	}
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		h := headOf(conn)
		if h == nil {
			return
		}
		switch state {
		case http.StateIdle:
			h.next()
		case http.StateClosed:
			h.count(limit)
		default:
		}
	}
	return heads{l}
}

type headKey struct{}

// heads is a listener whose connections are watched.
type heads struct{ net.Listener }

func (l heads) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		return &head{TCPConn: tcp}, err
	}
	return conn, err //nolint:wrapcheck // net/http looks at what kind of error it is
}

// head is a connection, and what came of the request that it waits for. It is a *net.TCPConn in all else.
type head struct {
	*net.TCPConn
	arrived atomic.Bool  // a handler has it
	again   atomic.Bool  // it isn't the first: the client may leave it at that
	late    atomic.Bool  // a read has run into its deadline
	bytes   atomic.Int64 // of it so far
}

// headOf finds it under TLS, too.
func headOf(conn net.Conn) *head {
	if outer, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = outer.NetConn()
	}
	h, _ := conn.(*head)
	return h
}

// Read implements net.Conn.
func (h *head) Read(p []byte) (int, error) {
	n, err := h.TCPConn.Read(p)
	if !h.arrived.Load() {
		h.bytes.Add(int64(n))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			h.late.Store(true)
		}
	}
	return n, err //nolint:wrapcheck // it stands for the connection's own
}

// next waits for another request on the same connection.
func (h *head) next() {
	h.again.Store(true)
	h.bytes.Store(0)
	h.late.Store(false)
	h.arrived.Store(false)
}

// count sorts out why the connection has ended.
func (h *head) count(limit int64) {
	switch {
	case h.arrived.Load():
	case h.late.Load() && (!h.again.Load() || h.bytes.Load() > 0):
		rejects.Add(rejectHandshake)
	case h.bytes.Load() >= limit:
		rejects.Add(rejectHeaders)
	}
}
