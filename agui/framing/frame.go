package framing

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Frame is one event of an answer.
type Frame struct {
	Data []byte // JSON, as far as the framing knows; it belongs to whoever gets the frame
	Name string // of the event, in an event stream; "" where it has none
	Err  error  // why Data isn't the event: agui.ErrTooLarge (Data is its beginning), or what Protobuf couldn't read
}

// Decoder cuts a body into frames. It takes the body in pieces of any size, and what it finds doesn't depend on them.
type Decoder interface {
	// Feed takes the next piece, which it doesn't keep, and calls emit with each frame that is complete. It returns what
	// emit returns, or ErrSyntax; then it must not be used any more.
	Feed(piece []byte, emit func(Frame) error) error
	// Finish says that the body has ended. ErrTruncated means that a frame hasn't.
	Finish(emit func(Frame) error) error
}

var (
	// ErrTruncated says that a body ended within a frame.
	ErrTruncated = errors.New("framing: the body ended within an event")
	// ErrSyntax says that what follows in a body can't be found any more.
	ErrSyntax = errors.New("framing: the body isn't in its format")
)

// BOM is the byte order mark that some editors put before a text.
const BOM = "\ufeff"

// Cut says whether b is the beginning of a JSON value and not the whole.
func Cut(b []byte) bool {
	err := json.NewDecoder(bytes.NewReader(b)).Decode(new(json.RawMessage))
	return errors.Is(err, io.ErrUnexpectedEOF)
}
