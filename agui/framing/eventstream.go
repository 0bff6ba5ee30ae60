package framing

import (
	"bytes"

	"github.com/aguihub/aguihub/agui"
)

// EventStream takes an event stream as the HTML standard has it: lines end with LF, CR or both, data lines are joined by
// LF, comments, ids and retries are nothing to us. As the official AG-UI client does it takes a last event that no empty
// line follows.
type EventStream struct {
	line     Buffer
	started  bool // the first line is over
	behindCR bool // an LF now belongs to the line's end that was taken
	data     Buffer
	hasData  bool
	name     string
}

// maxField bounds what a line has before its data, in bytes, and an event's name.
const maxField = 64

// NewEventStream returns a decoder for events of up to limit bytes.
func NewEventStream(limit int) *EventStream {
	return &EventStream{line: Buffer{Limit: limit + maxField}, data: Buffer{Limit: limit}}
}

// Feed implements Decoder.
func (d *EventStream) Feed(piece []byte, emit func(Frame) error) error {
	for len(piece) > 0 {
		if d.behindCR && piece[0] == '\n' {
			piece = piece[1:]
		}
		d.behindCR = false
		end := bytes.IndexAny(piece, "\r\n")
		if end < 0 {
			d.line.Add(piece)
			return nil
		}
		d.line.Add(piece[:end])
		d.behindCR = piece[end] == '\r'
		piece = piece[end+1:]
		if err := d.endLine(emit); err != nil {
			return err
		}
	}
	return nil
}

// Within says whether an event, or a line, has begun and not ended.
func (d *EventStream) Within() bool { return d.hasData || len(d.line.Bytes) > 0 || d.line.Over }

// endLine takes the line that has ended.
func (d *EventStream) endLine(emit func(Frame) error) error {
	line, over := d.line.Take()
	if !d.started {
		line = bytes.TrimPrefix(line, []byte(BOM))
		d.started = true
	}
	if len(line) == 0 {
		return d.dispatch(emit)
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if d.hasData {
			d.data.Add([]byte("\n"))
		}
		d.data.Add(value)
		d.data.Over = d.data.Over || over
		d.hasData = true
	case "event":
		d.name = string(value[:min(len(value), maxField)])
	}
	return nil
}

// dispatch takes the event that an empty line has ended.
func (d *EventStream) dispatch(emit func(Frame) error) error {
	data, over := d.data.Take()
	f := Frame{Data: data, Name: d.name}
	if over {
		f.Err = agui.ErrTooLarge
	}
	d.hasData, d.name = false, ""
	if len(f.Data) == 0 && f.Err == nil {
		return nil
	}
	return emit(f)
}

// Finish implements Decoder.
func (d *EventStream) Finish(emit func(Frame) error) error {
	if len(d.line.Bytes) > 0 {
		if err := d.endLine(emit); err != nil {
			return err
		}
	}
	if !d.data.Over && Cut(d.data.Bytes) {
		return ErrTruncated
	}
	return d.dispatch(emit)
}
