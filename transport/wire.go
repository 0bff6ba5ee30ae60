package transport

import (
	"encoding/json"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
)

// Forms of a hub.Delivery, each made once whatever the number of its readers. Those of a run and of a thread differ in
// the cursor.
const (
	formFrames = iota
	formLines
	formThreadLines
	formBlocks
	formThreadBlocks
)

// Form is a kind of bytes that is made of a delivery.
type Form int

// The forms that wires ask for.
const (
	FormFrames Form = formFrames // ws: bare events
	FormLines  Form = formLines  // ws: event and control lines
	FormBlocks Form = formBlocks // sse
)

// Encoded returns a live entry in a form; encode makes it where nobody has yet. The item must have a Delivery.
func Encoded(it *backfill.Item, form Form, encode func(d *hub.Delivery, cursor stream.Cursor) []byte) []byte {
	n := int(form)
	if it.Cursor.HasRun && form != FormFrames {
		n++
	}
	return it.Delivery.Wire(n, func(d *hub.Delivery) []byte { return encode(d, it.Cursor) })
}

// AppendLine appends an event line, without the newline. A zero cursor says that one can't resume here.
func AppendLine(dst, event []byte, cursor stream.Cursor) []byte {
	if cursor.Entry.IsZero() {
		dst = append(dst, `{"event":`...)
	} else {
		dst = append(dst, `{"id":"`...)
		dst = append(dst, cursor.String()...)
		dst = append(dst, `","event":`...)
	}
	dst = append(dst, event...)
	return append(dst, '}')
}

// AppendLines appends the lines of a live entry, with newlines between them and none behind: one for each event, of which
// only the last has the cursor, and where something is wrong a line that says so. detail adds the reason in words.
func AppendLines(dst []byte, d *hub.Delivery, cursor stream.Cursor, detail bool) []byte {
	for i, event := range d.Events {
		if i > 0 {
			dst = append(dst, '\n')
		}
		if i < len(d.Events)-1 {
			dst = AppendLine(dst, event, stream.Cursor{})
		} else {
			dst = AppendLine(dst, event, cursor)
		}
	}
	if d.Reason == "" {
		return dst
	}
	if len(d.Events) > 0 {
		dst = append(dst, '\n')
	}
	skipped := controlSkipped{Control: backfill.ControlSkipped, ID: cursor.String(), Reason: d.Reason}
	if detail {
		skipped.Detail = d.Detail
	}
	line, err := json.Marshal(skipped)
	if err != nil {
		panic("transport: control line: " + err.Error()) // a struct of strings always encodes
	}
	return append(dst, line...)
}

// controlSkipped stands behind the events of its entry, so that a client that takes its id has them.
type controlSkipped struct {
	Control string `json:"control"`
	ID      string `json:"id"`
	Reason  string `json:"reason"`
	Detail  string `json:"detail,omitempty"`
}

// LinesSize is a bound of what AppendLines appends without detail, in bytes.
func LinesSize(d *hub.Delivery) int {
	n := 256
	for _, e := range d.Events {
		n += len(e) + 96
	}
	return n
}

// AppendBlock appends an SSE block with a bare event. A zero cursor says that one can't resume here.
func AppendBlock(dst, event []byte, cursor stream.Cursor) []byte {
	dst = appendID(dst, cursor)
	dst = append(dst, "data: "...)
	dst = append(dst, event...)
	return append(dst, '\n', '\n')
}

// AppendIDBlock appends an SSE block that only moves the place from which a client resumes; nothing for a zero cursor.
func AppendIDBlock(dst []byte, cursor stream.Cursor) []byte {
	if cursor.Entry.IsZero() {
		return dst
	}
	return append(appendID(dst, cursor), '\n')
}

func appendID(dst []byte, cursor stream.Cursor) []byte {
	if cursor.Entry.IsZero() {
		return dst
	}
	dst = append(dst, "id: "...)
	dst = append(dst, cursor.String()...)
	return append(dst, '\n')
}
