package ingest

import (
	"encoding/json"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/agui/framing"
)

// bom is the byte order mark that some editors put before a text.
var bom = []byte(framing.BOM)

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
	// within says whether an item has begun and not ended.
	within() bool
}

// errTruncated says that a body ended within an item.
var errTruncated = framing.ErrTruncated

// syntaxError says that a body isn't in its format, between items.
type syntaxError struct{ want string }

func (e *syntaxError) Error() string { return "expected " + e.want }

// itemOf is the item that a buffer holds, which it forgets.
func itemOf(b *framing.Buffer) item {
	data, over := b.Take()
	it := item{data: data}
	if over {
		it.err = agui.ErrTooLarge
	}
	return it
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
