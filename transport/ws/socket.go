package ws

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// errStuck says that the peer took no byte for the write timeout.
var errStuck = errors.New("ws: the peer takes nothing")

// socket is the network connection under a WebSocket. Frames of data are built and written here rather than by the
// library, so that a batch of them is one system call on bytes that all subscribers share, and that a slow but steady
// peer isn't taken for a stuck one; the library shakes hands, reads and closes. The library's own frames come through
// Write, whole, since its buffer holds any control frame.
type socket struct {
	net.Conn
	server *Server
	head   []byte // what net/http has read already; owned by the reader
	// budget is how many more bytes the message at hand may take to arrive: 0 any number, less none; owned by the reader.
	budget int

	// blocked is since when the write under way has made no progress, 0 while there is none.
	blocked atomic.Int64

	// turn is held while whole frames are written: keeping others out meanwhile is what it is for.
	turn   sync.Mutex
	closed bool // a close frame was written, and nothing may follow; guarded by turn
}

// Sizes of the library's buffers, in bytes. Frames of data don't pass through them, and what clients send is small; the
// control frames must fit. With net/http's 4 KiB each an idle connection costs about 8 KiB more (docs/benchmarks.md).
const (
	readBuffer  = 256
	writeBuffer = 256
)

// hijacker gives the library a socket with small buffers.
type hijacker struct {
	http.ResponseWriter
	server *Server
	socket *socket
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	s := &socket{Conn: conn, server: h.server}
	if n := buffers.Reader.Buffered(); n > 0 {
		head, err := buffers.Peek(n)
		if err != nil {
			return nil, nil, fmt.Errorf("what was read already: %w", err)
		}
		s.head = append(s.head, head...)
	}
	h.socket = s
	return s, bufio.NewReadWriter(bufio.NewReaderSize(s, readBuffer), bufio.NewWriterSize(s, writeBuffer)), nil
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
	if s.budget < 0 {
		return 0, errInbound
	}
	n, err := s.Conn.Read(p)
	if s.budget > 0 && n > 0 {
		if s.budget -= n; s.budget == 0 {
			s.budget = -1
		}
	}
	return n, err
}

const (
	opText  = 0x1
	opClose = 0x8
	opPing  = 0x9
	opPong  = 0xA
	final   = 0x80
)

// Write implements net.Conn for the library, which writes close frames only.
func (s *socket) Write(p []byte) (int, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if len(p) > 0 && p[0]&0xf == opClose {
		s.closed = true
	}
	if err := s.send(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// writeFrames writes whole frames, given in parts, in few system calls. The parts are not kept.
func (s *socket) writeFrames(p *parcel) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	if len(p.parts) == 1 {
		return s.send(p.parts[0])
	}
	buf := p.buf[:0]
	for _, part := range p.parts {
		if len(buf)+len(part) > cap(buf) {
			if err := s.send(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
		if len(part) > cap(buf) {
			if err := s.send(part); err != nil {
				return err
			}
			continue
		}
		buf = append(buf, part...)
	}
	return s.send(buf)
}

// send writes p. It fails with errStuck once the peer has taken nothing for the timeout; the keeper wakes it up to look
// (nudge), so that no write needs a timer.
func (s *socket) send(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	last := time.Now()
	s.blocked.Store(s.server.since(last))
	defer s.blocked.Store(0)
	for {
		n, err := s.Conn.Write(p)
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

// nudge makes a write that is under way look whether it got on.
func (s *socket) nudge(now time.Time) {
	_ = s.SetWriteDeadline(now) // a connection that is closed already needs no nudge
}

// cut ends the connection without a word.
func (s *socket) cut() { _ = s.Close() }

// parcel is frames that are to be written together.
type parcel struct {
	parts [][]byte
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
	p.parts, p.heads = p.parts[:0], p.heads[:0]
	parcels.Put(p)
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
