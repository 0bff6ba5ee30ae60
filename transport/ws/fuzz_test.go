package ws

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/transport"
)

// FuzzFrames: whatever bytes a peer sends, and in whichever pieces they come, the hub answers with frames that there can be,
// ends with the same code, and keeps nothing.
func FuzzFrames(f *testing.F) {
	ping, control := masked(final|opPing, []byte("p")), []byte(`{"control":"ping"}`)
	deflate := payloadOf(deflatedFrame(bytes.Repeat(control, 20)))
	farewell := masked(final|opClose, []byte{0x03, 0xe8})
	for _, b := range [][]byte{
		masked(final|opText, control), ping, farewell, masked(final|opPong, nil), masked(final|0x2, []byte{1}),
		join(masked(opText, control[:5]), ping, masked(0, nil), masked(final, control[5:])),                           // a control frame in between
		join(masked(opText, control[:5]), masked(final|opText, control)),                                              // a message in another
		join(masked(opText|rsv1, deflate[:3]), ping, masked(final, deflate[3:])),                                      // deflated, in two
		join(masked(opText|rsv1, deflate[:3]), masked(final|rsv1, deflate[3:])),                                       // marked twice
		masked(final|opText|rsv1, nil), masked(final|opText|rsv1, []byte{0}), masked(final|opText|rsv1, []byte("no")), // hardly anything
		masked(final|opText|rsv1, []byte{0x01, 0, 0, 0xff, 0xff, 0}),                                                // a last block
		masked(final|opPing|rsv1, nil), masked(final|opText|0x20, nil), masked(opPing, nil), masked(final|0xb, nil), // that there aren't
		masked(final|opPing, make([]byte, 126)), masked(final|opPing, make([]byte, 125)), // too long, and just not
		{final | opText, 0xfe, 0, 1, 0, 0, 0, 0, 'x'},
		{final | opText, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 'x'}, // longer heads than it takes
		{final | opText, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		{final | opText, 0xff, 0x7f, 0xff, 0xff, 0xff}, // lengths that there aren't
		{final | opText, 0x7f, 0, 0, 0, 0, 0, 1, 0, 1},
		{final | opText, 2, '{', '}'},                                                                                     // without a mask
		join(masked(opText, []byte("\xc3")), masked(final, []byte("\xa9"))), masked(final|opText, []byte("\xed\xa0\xbd")), // a rune in two, and half of one
		join(masked(opText, make([]byte, 40<<10)), masked(final, make([]byte, 40<<10))), masked(final|opText, make([]byte, 65537)),
		join(ping, bytes.Repeat(masked(final|opPong, nil), 100), ping), join(masked(opText, nil), bytes.Repeat(masked(0, nil), 100)),
		join(farewell, ping, farewell), join(masked(final|0x3, nil), farewell),
		{final},
		{0x01, 0x85, 0, 0},
	} {
		f.Add(b, uint8(3))
	}
	fix := start(f, backfill.Config{}, transport.Config{MaxInboundRate: 1 << 20})
	fix.Begin(f, "r1", "t1")
	f.Fuzz(func(t *testing.T, sent []byte, piece uint8) {
		whole := fix.answer(t, sent, len(sent)+1)
		pieces := fix.answer(t, sent, 1+int(piece)+len(sent)/100)
		if whole != pieces && whole != cutOff && pieces != cutOff {
			t.Errorf("%x closes with %d at once, with %d in pieces", sent, whole, pieces)
		}
	})
}

// cutOff is the code of a connection that was closed while the peer sent on: then what the hub said last may be lost.
const cutOff = -1

// answer sends bytes in pieces and nothing behind them, and returns the code that the hub closes with, 0 for none.
func (f *fixture) answer(t *testing.T, sent []byte, piece int) (code int) {
	t.Helper()
	r := f.dialDeflating(t, "/v1/runs/r1/ws", linesName)
	defer func() { _ = r.Close() }()
	_ = r.SetDeadline(time.Now().Add(time.Minute))
	for b := sent; len(b) > 0; b = b[min(piece, len(b)):] {
		if _, err := r.Write(b[:min(piece, len(b))]); err != nil {
			code = cutOff
			break
		}
	}
	_ = r.Conn.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(r)
	switch {
	case errors.Is(err, syscall.ECONNRESET):
		code = cutOff
	case err != nil:
		t.Fatalf("%x: %v", sent, err)
	}
	for in := bytes.NewReader(got); in.Len() > 0; {
		if closes, ok := legal(in); !ok && code != cutOff {
			t.Fatalf("%x is answered with %q", sent, got)
		} else if closes != 0 && code != cutOff {
			code = closes
		}
	}
	for f.server.Figures().Open > 0 {
		time.Sleep(100 * time.Microsecond)
	}
	return code
}

// legal takes a frame of a hub and says whether there can be such, at its place; closes is the code of a close frame, 1005 without.
func legal(in *bytes.Reader) (closes int, ok bool) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(in, head); err != nil {
		return 0, false
	}
	size, extended := uint64(head[1]), 0
	switch head[1] {
	case 126:
		extended = 2
	case 127:
		extended = 8
	}
	long := make([]byte, 8)
	if _, err := io.ReadFull(in, long[8-extended:]); err != nil {
		return 0, false
	}
	if extended > 0 {
		size = binary.BigEndian.Uint64(long)
	}
	if size > uint64(in.Len()) {
		return 0, false
	}
	payload := make([]byte, size)
	_, _ = in.Read(payload)
	switch head[0] {
	case final | opText, final | opText | rsv1:
		return 0, true
	case final | opPing, final | opPong:
		return 0, size <= 125
	case final | opClose:
		if size == 0 {
			return 1005, in.Len() == 0
		}
		return int(binary.BigEndian.Uint16(payload)), in.Len() == 0 && size <= 125 && isFarewell(payload)
	}
	return 0, false
}
