package ws

import (
	"bytes"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/flate"

	"github.com/aguihub/aguihub/backfill"
)

// Large events of preambles and catch-ups go deflated where the client offers it: docs/contract.md, section 3. All who
// are brought to the same entry share one compression, and no connection keeps a window, since none is taken over
// (RFC 7692, section 7.1.1).

// deflateLevel is where more effort stops to pay: of a MiB of conversation or of prose level 6 leaves 0.28 to 0.35 in 6 to
// 11 ms; level 5 a hundredth more in a fifth less, level 7 a hundredth less in up to twice as long. The standard library
// takes two to three times as long for the same (docs/profiles.md).
const deflateLevel = 6

// worthwhile is which part of an event may be left for its deflated form to be worth the client's work.
const worthwhile = 0.9

// rsv1 marks a message as deflated: RFC 7692, section 6.
const rsv1 = 0x40

// flushed is what ends a flush, and is cut off: RFC 7692, section 7.2.1.
const flushed = "\x00\x00\xff\xff"

var flateWriters = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, deflateLevel)
	if err != nil {
		panic("ws: deflate: " + err.Error()) // the level is one that there is
	}
	return w
}}

// deflating is how many events are being deflated in this process.
var deflating atomic.Int64

// deflated is the whole frame of a restated event; nil where it goes plain.
func (c *conn) deflated(it *backfill.Item) []byte {
	if !c.deflates || it.Restated == nil {
		return nil
	}
	frame := it.Restated.Form(int(c.protocol), c.server.deflater(c.protocol))
	if frame != nil {
		c.server.stats.saved.Add(int64(len(it.Event) - len(frame)))
	}
	return frame
}

// deflater makes deflated frames of one subprotocol. At most half of the cores deflate: where these do already, it puts
// off what it is asked for, which so goes plain, as it would without all this, and the live tails go on.
func (s *Server) deflater(p protocol) func(event []byte) ([]byte, bool) {
	return func(event []byte) ([]byte, bool) {
		defer deflating.Add(-1)
		if deflating.Add(1) > int64(runtime.GOMAXPROCS(0)+1)/2 {
			return nil, false
		}
		s.stats.deflations.Add(1)
		if p == lines {
			return deflatedFrame(lineHead, event, lineTail), true
		}
		return deflatedFrame(event), true
	}
}

// What stands around the event in its line: transport.AppendLine of an event without a cursor.
var (
	lineHead = []byte(`{"event":`)
	lineTail = []byte(`}`)
)

// deflatedFrame is a text frame of one deflated message, given in parts; nil where that doesn't pay.
func deflatedFrame(parts ...[]byte) []byte {
	var out bytes.Buffer
	w := flateWriters.Get().(*flate.Writer)
	defer func() {
		w.Reset(io.Discard) // it would keep what it wrote to
		flateWriters.Put(w)
	}()
	w.Reset(&out)
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	out.Grow(size * 2 / 5) // more than what mostly comes of it
	for _, p := range parts {
		if _, err := w.Write(p); err != nil {
			return nil // the buffer takes everything
		}
	}
	if w.Flush() != nil {
		return nil
	}
	payload := bytes.TrimSuffix(out.Bytes(), []byte(flushed))
	if float64(len(payload)) >= worthwhile*float64(size) {
		return nil
	}
	frame := appendHeader(make([]byte, 0, maxHeader+len(payload)), len(payload))
	frame[0] |= rsv1
	return append(frame, payload...)
}
