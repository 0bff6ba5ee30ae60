package ingest

import (
	"bytes"

	"github.com/aguihub/aguihub/agui/framing"
)

// ndjsonDecoder takes one object a line. Empty lines are nothing; CR belongs to the line's end.
type ndjsonDecoder struct {
	line    framing.Buffer
	started bool // the first line is over
}

func newNDJSONDecoder(limit int) *ndjsonDecoder {
	return &ndjsonDecoder{line: framing.Buffer{Limit: limit + len(bom) + 1}}
}

func (d *ndjsonDecoder) feed(piece []byte, emit func(item) error) error {
	for {
		end := bytes.IndexByte(piece, '\n')
		if end < 0 {
			d.line.Add(piece)
			return nil
		}
		d.line.Add(piece[:end])
		piece = piece[end+1:]
		if err := d.dispatch(emit); err != nil {
			return err
		}
	}
}

func (d *ndjsonDecoder) within() bool { return len(d.line.Bytes) > 0 || d.line.Over }

func (d *ndjsonDecoder) dispatch(emit func(item) error) error {
	it := itemOf(&d.line)
	if !d.started {
		it.data = bytes.TrimPrefix(it.data, bom)
		d.started = true
	}
	it.data = bytes.Trim(it.data, " \t\r")
	if len(it.data) == 0 && it.err == nil {
		return nil
	}
	return emit(it)
}

// finish takes a last line that no line end follows, where it is whole: the end of the body ends it too.
func (d *ndjsonDecoder) finish(emit func(item) error) error {
	if !d.line.Over && framing.Cut(bytes.TrimPrefix(d.line.Bytes, bom)) {
		return errTruncated
	}
	return d.dispatch(emit)
}

// sseDecoder takes an event stream.
type sseDecoder struct{ stream *framing.EventStream }

func newSSEDecoder(limit int) sseDecoder { return sseDecoder{framing.NewEventStream(limit)} }

func (d sseDecoder) feed(piece []byte, emit func(item) error) error {
	return d.stream.Feed(piece, func(f framing.Frame) error { return emit(itemOfFrame(f)) })
}

func (d sseDecoder) within() bool { return d.stream.Within() }

func (d sseDecoder) finish(emit func(item) error) error {
	return d.stream.Finish(func(f framing.Frame) error { return emit(itemOfFrame(f)) })
}

func itemOfFrame(f framing.Frame) item {
	return item{data: f.Data, named: f.Name == "input", err: f.Err}
}
