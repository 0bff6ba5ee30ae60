package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/aguihub/aguihub/agui"
)

// item is one thing that a body holds: an event, or the run's input.
type item struct {
	data  []byte // belongs to whoever gets the item
	named bool   // the event stream named it "input"
	err   error  // agui.ErrTooLarge: data is only its beginning
}

// decoder cuts a body into items. It takes the body in pieces of any size, and what it finds doesn't depend on them.
type decoder interface {
	// feed takes the next piece, which it doesn't keep, and calls emit with each item that is complete. It returns what
	// emit returns, or a *syntaxError; then it must not be used any more.
	feed(piece []byte, emit func(item) error) error
	// finish says that the body has ended as it should. errTruncated means that an item hasn't.
	finish(emit func(item) error) error
}

// errTruncated says that a body ended within an item.
var errTruncated = errors.New("ingest: the body ended within an event")

// syntaxError says that a body isn't in its format, between items.
type syntaxError struct{ want string }

func (e *syntaxError) Error() string { return "expected " + e.want }

// bom is the byte order mark that some editors put before a text.
var bom = []byte("\ufeff")

// bounded is a buffer that holds at most limit bytes. What doesn't fit is dropped, and over says so.
type bounded struct {
	limit int
	buf   []byte
	over  bool
}

func (b *bounded) add(p []byte) {
	if room := b.limit - len(b.buf); len(p) > room {
		p, b.over = p[:room], true
	}
	b.buf = append(b.buf, p...)
}

// take returns what is held and forgets it.
func (b *bounded) take() (data []byte, over bool) {
	data, over = b.buf, b.over
	b.buf, b.over = nil, false
	return data, over
}

// itemOf is the item that a buffer holds.
func (b *bounded) itemOf() item {
	data, over := b.take()
	it := item{data: data}
	if over {
		it.err = agui.ErrTooLarge
	}
	return it
}

// cut says whether b is the beginning of a JSON value and not the whole.
func cut(b []byte) bool {
	err := json.NewDecoder(bytes.NewReader(b)).Decode(new(json.RawMessage))
	return errors.Is(err, io.ErrUnexpectedEOF)
}

// inputOf returns the run's input where an item is {"input":{…}}.
func inputOf(data []byte) (input []byte, found bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil {
		return nil, false
	}
	_, typed := members["type"]
	input, found = members["input"]
	return input, found && !typed
}
