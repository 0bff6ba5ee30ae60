package framing

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/aguihub/aguihub/agui"
)

// Protobuf takes messages of AG-UI's protobuf binding, each behind its length as four bytes, the highest first, and gives
// the JSON of their events: the one that the official decoder's event would be.
type Protobuf struct {
	limit int
	head  Buffer
	body  Buffer
	want  int // bytes of the message that is being read; −1 before its length is known
}

// lengthBytes is the size of a message's length.
const lengthBytes = 4

// NewProtobuf returns a decoder for messages of up to limit bytes.
func NewProtobuf(limit int) *Protobuf {
	return &Protobuf{limit: limit, head: Buffer{Limit: lengthBytes}, want: -1}
}

// Feed implements Decoder.
func (d *Protobuf) Feed(piece []byte, emit func(Frame) error) error {
	for len(piece) > 0 {
		if d.want < 0 {
			n := min(lengthBytes-len(d.head.Bytes), len(piece))
			d.head.Add(piece[:n])
			piece = piece[n:]
			if len(d.head.Bytes) < lengthBytes {
				return nil
			}
			head, _ := d.head.Take()
			d.want = int(binary.BigEndian.Uint32(head))
			d.body = Buffer{Limit: min(d.limit, d.want)}
		} else {
			n := min(d.want, len(piece))
			d.body.Add(piece[:n])
			piece = piece[n:]
			d.want -= n
		}
		if d.want == 0 {
			d.want = -1
			if err := emit(d.frame()); err != nil {
				return err
			}
		}
	}
	return nil
}

// frame decodes the message that is complete.
func (d *Protobuf) frame() Frame {
	message, over := d.body.Take()
	if over {
		return Frame{Data: message, Err: agui.ErrTooLarge}
	}
	event, err := decodeEvent(message)
	if err != nil {
		return Frame{Err: fmt.Errorf("protobuf: %w", err)}
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(event); err != nil {
		return Frame{Err: fmt.Errorf("protobuf: %w", err)}
	}
	return Frame{Data: bytes.TrimSuffix(text.Bytes(), []byte("\n"))}
}

// Finish implements Decoder.
func (d *Protobuf) Finish(func(Frame) error) error {
	if d.want >= 0 || len(d.head.Bytes) > 0 {
		return ErrTruncated
	}
	return nil
}

var (
	errWire    = errors.New("not the wire format")
	errDeep    = errors.New("nested too deep")
	errText    = errors.New("a text isn't UTF-8")
	errUnknown = errors.New("an event that this hub doesn't know")
	errEvent   = errors.New("not exactly one event")
	errType    = errors.New("the event's type isn't that of its fields")
	errContent = errors.New("content in two forms at once")
)
