package ws

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gobwas/ws"
	"github.com/klauspost/compress/flate"
	"go.uber.org/zap"
)

// What a peer sends is read by one goroutine at a time. While there is nothing it waits in await, on the smallest stack
// that there is and without a buffer: for an idle subscriber that is most of its memory (docs/profiles.md). What comes is
// read by another, which has as much of both as it takes.

// errFrame says that the peer breaks RFC 6455 or 7692.
var errFrame = errors.New("ws: a frame that there can't be")

var inboxes = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, inboxBytes) }}

// inboxBytes fits what clients send as a rule, which is pongs and lines of control.
const inboxBytes = 512

// messageWait is how long a message of a peer may take from its first byte to its last: while it does it holds memory.
const messageWait = 30 * time.Second

// await waits until the peer sends something else than an answer to a ping, or the connection is closed, and has it read.
func (c *conn) await() {
	_ = c.socket.raw.Read(c.arrived) // its error comes again
	go c.read()
}

// arrived looks at what came while nobody reads; false where there is nothing more. Answers to pings, which are all that a peer
// sends that only listens, it takes as readControl does: to have them read would cost two goroutines each. What else there is
// it leaves to read.
func (c *conn) arrived(fd uintptr) bool {
	var frame [6]byte // a control frame of a client that holds nothing, with its mask
	for {
		n, later := readFD(fd, frame[:])
		switch {
		case later:
			return false
		case n == len(frame) && frame[0] == final|opPong && frame[1] == maskBit && c.asked.Swap(0) != 0:
		default:
			c.socket.head = bytes.Clone(frame[:n])
			return true
		}
	}
}

// maskBit stands beside the length of what clients send.
const maskBit = 0x80

// listen begins to take what the peer sends.
func (c *conn) listen() {
	c.reader.Add(1)
	if len(c.socket.head) == 0 && c.socket.raw != nil {
		go c.await()
	} else {
		go c.read()
	}
}

// read takes what the peer sends until there is nothing more for now, or for ever.
func (c *conn) read() {
	in := inboxes.Get().(*bufio.Reader)
	in.Reset(c.socket)
	defer func() {
		in.Reset(nil)
		inboxes.Put(in)
	}()
	var m inMessage
	for {
		err := c.readFrame(in, &m)
		if err != nil {
			c.lost(err)
			if errors.Is(err, errFrame) {
				_, _ = io.Copy(io.Discard, in) // until the close frame is answered, or the connection is cut
			}
			c.reader.Done()
			return
		}
		if c.socket.raw != nil && in.Buffered() == 0 && !m.open && !c.isOver() {
			go c.await()
			return
		}
	}
}

// lost ends a connection whose peer can't be read any more.
func (c *conn) lost(err error) {
	c.server.logger.Debug("connection lost", zap.Error(err))
	switch {
	case errors.Is(err, errFrame):
		c.stop(errProtocol)
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.stop(errUnfinished)
	default:
		c.stop(errLeft)
	}
}

// inMessage is a message that is arriving.
type inMessage struct {
	open     bool
	empty    int // how many of its frames are empty, but for the last
	deflated bool
	text     []byte
}

// readFrame reads a frame, and does what it asks for. While the connection is being closed it only looks for the peer's
// own close frame. Behind that there is nothing: it fails with io.EOF.
func (c *conn) readFrame(in *bufio.Reader, m *inMessage) error {
	h, err := ws.ReadHeader(in)
	if errors.Is(err, ws.ErrHeaderLengthMSB) || errors.Is(err, ws.ErrHeaderLengthUnexpected) {
		return errFrame
	}
	if err != nil {
		return err
	}
	state := ws.StateServerSide
	if m.open {
		state |= ws.StateFragmented
	}
	deflated := c.deflates && h.Rsv == rsv1>>4 && (h.OpCode == ws.OpText || h.OpCode == ws.OpBinary)
	if deflated {
		state |= ws.StateExtended
	}
	if ws.CheckHeader(h, state) != nil {
		return errFrame
	}
	if h.OpCode.IsControl() {
		return c.readControl(in, h)
	}
	first := !m.open
	m.open = !h.Fin
	if first {
		m.text, m.empty, m.deflated = nil, 0, deflated
		c.admit(h)
	}
	if h.Length == 0 && !h.Fin {
		m.empty++ // it weighs a byte, or else there would be no end of them
	}
	if !c.isOver() && h.Length > int64(c.server.config.MaxInbound-m.empty-len(m.text)) {
		c.stop(errInbound)
	}
	if c.isOver() {
		_, err := io.CopyN(io.Discard, in, h.Length)
		return err
	}
	if first {
		if err := c.socket.SetReadDeadline(time.Now().Add(messageWait)); err != nil {
			return err
		}
	}
	if err := m.read(in, h); err != nil || !h.Fin {
		return err
	}
	if err := c.socket.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	text := m.text
	if m.deflated {
		if text, err = inflate(text, c.server.config.MaxInbound); err != nil {
			return errFrame
		}
	}
	m.text = nil
	c.take(text)
	return nil
}

// admit looks whether a message may come, by its first frame.
func (c *conn) admit(h ws.Header) {
	switch {
	case c.isOver():
	case !c.inbound.Allow():
		c.tooFast()
	case h.OpCode == ws.OpBinary:
		c.stop(errBinary)
	}
}

// inChunk is how much of a message is made room for at once: more only once that much came.
const inChunk = 4 << 10

// read adds the payload of a frame.
func (m *inMessage) read(in io.Reader, h ws.Header) error {
	for done := 0; done < int(h.Length); {
		at, n := len(m.text), min(inChunk, int(h.Length)-done)
		m.text = append(m.text, make([]byte, n)...)
		if _, err := io.ReadFull(in, m.text[at:]); err != nil {
			return err
		}
		ws.Cipher(m.text[at:], h.Mask, done)
		done += n
	}
	return nil
}

// readControl reads a control frame.
func (c *conn) readControl(in *bufio.Reader, h ws.Header) error {
	payload := make([]byte, h.Length)
	if _, err := io.ReadFull(in, payload); err != nil {
		return err
	}
	ws.Cipher(payload, h.Mask, 0)
	switch {
	case h.OpCode == ws.OpClose:
		if !isFarewell(payload) {
			return errFrame
		}
		farewell := payload[:min(2, len(payload))]
		c.farewell.Store(&farewell)
		return io.EOF
	case c.isOver():
	case h.OpCode == ws.OpPing:
		c.pinged(payload)
	case c.asked.Swap(0) != 0: // a pong: it lives
	case !c.inbound.Allow(): // nobody asked for it
		c.tooFast()
	}
	return nil
}

// isFarewell says whether a close frame's payload is one that there can be: RFC 6455, section 7.4, and the codes that were
// registered since.
func isFarewell(payload []byte) bool {
	if len(payload) < 2 {
		return len(payload) == 0
	}
	code := binary.BigEndian.Uint16(payload)
	known := code >= 1000 && code <= 1014 && (code < 1004 || code > 1006) || code >= 3000 && code <= 4999
	return known && utf8.Valid(payload[2:])
}

var flateReaders = sync.Pool{New: func() any { return flate.NewReader(nil) }}

// inflate is a deflated message, of which it gives one byte more than most where there is more.
func inflate(deflated []byte, most int) ([]byte, error) {
	r := flateReaders.Get().(io.ReadCloser)
	defer flateReaders.Put(r)
	// Behind what was cut off comes an empty block that is the last.
	whole := io.MultiReader(bytes.NewReader(deflated), strings.NewReader(flushed+"\x01\x00\x00\xff\xff"))
	if err := r.(flate.Resetter).Reset(whole, nil); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, int64(most)+1))
}
