package ingest

import "bytes"

// ndjsonDecoder takes one object a line. Empty lines are nothing; CR belongs to the line's end.
type ndjsonDecoder struct {
	line    bounded
	started bool // the first line is over
}

func newNDJSONDecoder(limit int) *ndjsonDecoder {
	return &ndjsonDecoder{line: bounded{limit: limit + len(bom) + 1}}
}

func (d *ndjsonDecoder) feed(piece []byte, emit func(item) error) error {
	for {
		end := bytes.IndexByte(piece, '\n')
		if end < 0 {
			d.line.add(piece)
			return nil
		}
		d.line.add(piece[:end])
		piece = piece[end+1:]
		if err := d.dispatch(emit); err != nil {
			return err
		}
	}
}

func (d *ndjsonDecoder) dispatch(emit func(item) error) error {
	it := d.line.itemOf()
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
	if !d.line.over && cut(bytes.TrimPrefix(d.line.buf, bom)) {
		return errTruncated
	}
	return d.dispatch(emit)
}

// sseDecoder takes an event stream as the HTML standard has it: lines end with LF, CR or both, data lines are joined by
// LF, comments, ids and retries are nothing to us. As the official AG-UI client does it takes a last event that no empty
// line follows.
type sseDecoder struct {
	line      bounded
	started   bool // the first line is over
	behindCR  bool // an LF now belongs to the line's end that was taken
	data      bounded
	hasData   bool
	eventName string
}

// maxField bounds what a line has before its data, in bytes.
const maxField = 64

func newSSEDecoder(limit int) *sseDecoder {
	return &sseDecoder{line: bounded{limit: limit + maxField}, data: bounded{limit: limit}}
}

func (d *sseDecoder) feed(piece []byte, emit func(item) error) error {
	for len(piece) > 0 {
		if d.behindCR && piece[0] == '\n' {
			piece = piece[1:]
		}
		d.behindCR = false
		end := bytes.IndexAny(piece, "\r\n")
		if end < 0 {
			d.line.add(piece)
			return nil
		}
		d.line.add(piece[:end])
		d.behindCR = piece[end] == '\r'
		piece = piece[end+1:]
		if err := d.endLine(emit); err != nil {
			return err
		}
	}
	return nil
}

// endLine takes the line that has ended.
func (d *sseDecoder) endLine(emit func(item) error) error {
	line, over := d.line.take()
	if !d.started {
		line = bytes.TrimPrefix(line, bom)
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
			d.data.add([]byte("\n"))
		}
		d.data.add(value)
		d.data.over = d.data.over || over
		d.hasData = true
	case "event":
		d.eventName = string(value[:min(len(value), maxField)])
	}
	return nil
}

// dispatch takes the event that an empty line has ended.
func (d *sseDecoder) dispatch(emit func(item) error) error {
	it := d.data.itemOf()
	it.named = d.eventName == "input"
	d.hasData, d.eventName = false, ""
	if len(it.data) == 0 && it.err == nil {
		return nil
	}
	return emit(it)
}

func (d *sseDecoder) finish(emit func(item) error) error {
	if len(d.line.buf) > 0 {
		if err := d.endLine(emit); err != nil {
			return err
		}
	}
	if !d.data.over && cut(d.data.buf) {
		return errTruncated
	}
	return d.dispatch(emit)
}
