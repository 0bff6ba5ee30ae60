package ws

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// errStuck says that the peer took no byte for the write timeout.
var errStuck = errors.New("ws: the peer takes nothing")

// socket is the network connection under a WebSocket. Frames are built and written here, so that a batch of them is one
// system call on bytes that all subscribers share, and that a slow but steady peer isn't taken for a stuck one.
type socket struct {
	net.Conn
	server *Server
	head   []byte // what was read already, by net/http or while nobody read; owned by the reader

	// blocked is since when the write under way has made no progress, 0 while there is none.
	blocked atomic.Int64

	raw    syscall.RawConn // nil where one can't look or write without waiting, as with TLS
	secure bool            // a write that ran out of time can't be gone on with: with TLS

	// turn is held while whole frames are written: keeping others out meanwhile is what it is for.
	turn   sync.Mutex
	closed bool    // a close frame was written, and nothing may follow; guarded by turn
	rest   *parcel // what writeNow had to leave, which goes first; guarded by turn
}

func newSocket(s *Server, conn net.Conn) *socket {
	k := &socket{Conn: conn, server: s}
	_, k.secure = conn.(*tls.Conn)
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			k.raw = raw
		}
	}
	return k
}

// Read implements net.Conn.
func (s *socket) Read(p []byte) (int, error) {
	if len(s.head) > 0 {
		n := copy(p, s.head)
		if s.head = s.head[n:]; len(s.head) == 0 {
			s.head = nil
		}
		return n, nil
	}
	return s.Conn.Read(p)
}

const (
	opText  = 0x1
	opClose = 0x8
	opPing  = 0x9
	opPong  = 0xA
	final   = 0x80
)

// writeClose writes a close frame, behind which nothing is written.
func (s *socket) writeClose(payload []byte) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.closed = true
	if err := s.settle(); err != nil {
		return err
	}
	return s.send(append([]byte{final | opClose, byte(len(payload))}, payload...))
}

// writeFrames writes whole frames in few system calls, behind what was left before, and frees the parcel.
func (s *socket) writeFrames(p *parcel) error {
	defer p.free()
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	if err := s.settle(); err != nil {
		return err
	}
	return s.sendAll(p)
}

// writeNow writes of whole frames what the network takes without waiting, and frees the parcel then. done is false where
// something is left, or where that can't be told: it is written before anything else.
func (s *socket) writeNow(p *parcel, by *hand) (done bool, err error) {
	if !s.turn.TryLock() { // for a close frame
		p.free()
		return false, net.ErrClosed
	}
	defer s.turn.Unlock()
	if s.closed {
		p.free()
		return false, net.ErrClosed
	}
	for s.raw != nil && s.rest == nil {
		b := p.next()
		if len(b) == 0 {
			p.free()
			return true, nil
		}
		n, err := by.write(s.raw, b)
		s.server.stats.bytes.Add(int64(n))
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // of a nudge that came late: send takes it back
			p.free()
			return false, err
		}
		if p.skip(n); n < len(b) {
			break
		}
	}
	s.rest = p
	return false, nil
}

// settle writes what was left; s.turn is held.
func (s *socket) settle() error {
	p := s.rest
	if p == nil {
		return nil
	}
	s.rest = nil
	defer p.free()
	return s.sendAll(p)
}

func (s *socket) sendAll(p *parcel) error {
	for b := p.next(); len(b) > 0; b = p.next() {
		if err := s.send(b); err != nil {
			return err
		}
		p.skip(len(b))
	}
	return nil
}

// send writes p, waiting for the network. It fails with errStuck once the peer has taken nothing for the timeout; the
// keeper wakes it up to look (nudge), so that no write needs a timer.
func (s *socket) send(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	last := time.Now()
	s.blocked.Store(s.server.since(last))
	defer s.blocked.Store(0)
	if s.secure {
		return s.sendRecords(p)
	}
	for {
		n, err := s.Write(p)
		s.server.stats.bytes.Add(int64(n))
		p = p[n:]
		if len(p) == 0 {
			return nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		now := time.Now()
		if n > 0 {
			last = now
			s.blocked.Store(s.server.since(now))
		} else if now.Sub(last) >= s.server.config.WriteTimeout {
			return errStuck
		}
		if err := s.SetWriteDeadline(time.Time{}); err != nil {
			return err
		}
	}
}

// recordBytes is what a peer has to take within the write timeout under TLS, where a record may have four times that.
const recordBytes = 4 << 10

// sendRecords is send where a write that was broken off can't be gone on with: each record has the whole timeout.
func (s *socket) sendRecords(p []byte) error {
	for len(p) > 0 {
		now := time.Now()
		s.blocked.Store(s.server.since(now))
		if err := s.SetWriteDeadline(now.Add(s.server.config.WriteTimeout)); err != nil {
			return err
		}
		n, err := s.Write(p[:min(len(p), recordBytes)])
		s.server.stats.bytes.Add(int64(n))
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errStuck
		case err != nil:
			return err
		}
		p = p[n:]
	}
	return nil
}

// nudge makes a write that is under way look whether it got on.
func (s *socket) nudge(now time.Time) {
	if !s.secure {
		_ = s.SetWriteDeadline(now) // a connection that is closed already needs no nudge
	}
}

// cut ends the connection without a word.
func (s *socket) cut() { _ = s.Close() }

// parcel is frames that are to be written together.
type parcel struct {
	parts [][]byte
	at    int    // how many of the parts are written
	heads []byte // where small parts live
	buf   []byte
}

// parcelBytes is how much is copied together for one system call. It fits about a hundred deltas; a preamble's large
// events are written from where they lie.
const parcelBytes = 32 << 10

var parcels = sync.Pool{New: func() any { return &parcel{buf: make([]byte, 0, parcelBytes)} }}

func newParcel() *parcel { return parcels.Get().(*parcel) }

func (p *parcel) free() {
	clear(p.parts)
	p.parts, p.heads, p.at = p.parts[:0], p.heads[:0], 0
	parcels.Put(p)
}

// next is what goes into the next system call; nothing once all is written.
func (p *parcel) next() []byte {
	switch {
	case p.at == len(p.parts):
		return nil
	case p.at == len(p.parts)-1, len(p.parts[p.at]) > cap(p.buf):
		return p.parts[p.at]
	}
	p.buf = p.buf[:0]
	for _, part := range p.parts[p.at:] {
		if len(p.buf)+len(part) > cap(p.buf) {
			break
		}
		p.buf = append(p.buf, part...)
	}
	return p.buf
}

// skip says that n more bytes are written.
func (p *parcel) skip(n int) {
	for p.at < len(p.parts) && n >= len(p.parts[p.at]) {
		n -= len(p.parts[p.at])
		p.at++
	}
	if n > 0 {
		p.parts[p.at] = p.parts[p.at][n:]
	}
}

// add adds bytes that nobody changes.
func (p *parcel) add(b []byte) { p.parts = append(p.parts, b) }

// control adds a control frame; the payload has at most 125 bytes.
func (p *parcel) control(op byte, payload []byte) {
	from := len(p.heads)
	p.heads = append(append(p.heads, final|op, byte(len(payload))), payload...)
	p.add(p.heads[from:len(p.heads):len(p.heads)])
}

// hold leaves a place for the header of a text frame, to be set once its size is known.
func (p *parcel) hold() (place int) {
	p.add(nil)
	return len(p.parts) - 1
}

func (p *parcel) set(place, size int) {
	from := len(p.heads)
	p.heads = appendHeader(p.heads, size)
	p.parts[place] = p.heads[from:len(p.heads):len(p.heads)]
}

// maxHeader is the longest that appendHeader appends.
const maxHeader = 10

// appendHeader appends the header of a text frame that isn't fragmented: RFC 6455, section 5.2.
func appendHeader(dst []byte, size int) []byte {
	switch {
	case size <= 125:
		return append(dst, final|opText, byte(size))
	case size <= 0xffff:
		return binary.BigEndian.AppendUint16(append(dst, final|opText, 126), uint16(size))
	default:
		return binary.BigEndian.AppendUint64(append(dst, final|opText, 127), uint64(size))
	}
}
