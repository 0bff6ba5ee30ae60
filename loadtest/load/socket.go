package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gobwas/ws"
)

// socket is a WebSocket read with as little work as can be, since readers share the machine with what they measure.
type socket struct {
	conn   net.Conn
	r      *bufio.Reader
	buf    []byte
	rest   []byte // what stands behind the place up to which find has read
	ping   []byte // message that is a ping; nil for none
	answer []byte // frame that answers it
}

// dialPatience bounds a handshake and what comes up to the live tail.
const dialPatience = 30 * time.Second

func dialSocket(ctx context.Context, url string, protocols ...string) (*socket, error) {
	d := ws.Dialer{Protocols: protocols, Timeout: dialPatience, ReadBufferSize: 4 << 10, WriteBufferSize: 512}
	conn, r, _, err := d.Dial(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	if r == nil {
		r = bufio.NewReaderSize(conn, 4<<10)
	}
	return &socket{conn: conn, r: r}, nil
}

// Close implements Stream.
func (s *socket) Close() error { return s.conn.Close() }

// Next implements Stream.
func (s *socket) Next() ([]byte, error) {
	if rest := s.rest; len(rest) > 0 {
		s.rest = nil
		return rest, nil
	}
	for {
		h, err := ws.ReadHeader(s.r)
		if err != nil {
			return nil, err
		}
		if n := int(h.Length); n > cap(s.buf) {
			s.buf = make([]byte, n)
		}
		s.buf = s.buf[:h.Length]
		if _, err := io.ReadFull(s.r, s.buf); err != nil {
			return nil, err
		}
		switch h.OpCode {
		case ws.OpPing:
			if err := s.write(ws.NewPongFrame(bytes.Clone(s.buf))); err != nil {
				return nil, err
			}
		case ws.OpClose:
			code, reason := ws.ParseCloseFrameData(s.buf)
			if code == ws.StatusNormalClosure {
				return nil, io.EOF
			}
			return nil, fmt.Errorf("closed with %d, %s", code, reason)
		case ws.OpText, ws.OpBinary:
			if !h.Fin {
				return nil, errors.New("a fragmented message, which no party sends")
			}
			if s.ping != nil && bytes.Equal(s.buf, s.ping) {
				if _, err := s.conn.Write(s.answer); err != nil {
					return nil, err
				}
				continue
			}
			return s.buf, nil
		case ws.OpPong:
		default:
			return nil, fmt.Errorf("frame of kind %d", h.OpCode)
		}
	}
}

func (s *socket) write(f ws.Frame) error {
	return ws.WriteFrame(s.conn, ws.MaskFrame(f))
}

// text sends a text message.
func (s *socket) text(message string) error {
	return s.write(ws.NewTextFrame([]byte(message)))
}

// find reads up to a mark, and returns the message that holds it. What stands behind it is what Next returns first.
func (s *socket) find(mark string) (string, error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(dialPatience)); err != nil {
		return "", err
	}
	for {
		b, err := s.Next()
		if err != nil {
			return "", fmt.Errorf("waiting for %s: %w", mark, err)
		}
		if _, rest, ok := bytes.Cut(b, []byte(mark)); ok {
			s.rest = rest
			return string(b), s.conn.SetReadDeadline(time.Time{})
		}
	}
}
