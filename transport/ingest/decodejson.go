package ingest

import "github.com/aguihub/aguihub/agui/framing"

// jsonDecoder takes one object, or an array of them. It finds where items end; whether they are JSON is for others.
type jsonDecoder struct {
	state   jsonState
	array   bool
	mark    int // bytes of a byte order mark so far
	current framing.Buffer

	// Of the item that is being read.
	depth   int
	scalar  bool // it isn't an object or array: it ends at a delimiter
	text    bool // within a string
	escaped bool // behind a backslash
}

type jsonState uint8

const (
	jsonStart  jsonState = iota // nothing but space so far
	jsonFirst                   // behind the opening bracket
	jsonNext                    // behind a comma
	jsonWithin                  // within an item
	jsonBehind                  // behind an item of the array
	jsonDone                    // behind everything
)

func newJSONDecoder(limit int) *jsonDecoder {
	return &jsonDecoder{current: framing.Buffer{Limit: limit}}
}

func (d *jsonDecoder) feed(piece []byte, emit func(item) error) error {
	for i := 0; i < len(piece); {
		if d.state == jsonWithin {
			n, whole := d.scan(piece[i:])
			d.current.Add(piece[i : i+n])
			i += n
			if whole {
				d.close()
				if err := emit(itemOf(&d.current)); err != nil {
					return err
				}
			}
			continue
		}
		taken, err := d.between(piece[i])
		if err != nil {
			return err
		}
		if taken {
			i++
		}
	}
	return nil
}

// between takes a byte outside of items. taken is false where an item begins with it.
func (d *jsonDecoder) between(c byte) (taken bool, err error) {
	if d.state == jsonStart && d.mark < len(bom) && c == bom[d.mark] {
		d.mark++
		return true, nil
	}
	if d.mark > 0 && d.mark < len(bom) {
		return false, &syntaxError{"an object or an array"}
	}
	d.mark = len(bom) // none may come any more
	switch {
	case c == ' ' || c == '\t' || c == '\n' || c == '\r':
		return true, nil
	case d.state == jsonDone:
		return false, &syntaxError{"nothing behind the end"}
	case d.state == jsonStart && c == '[':
		d.array, d.state = true, jsonFirst
		return true, nil
	case (d.state == jsonFirst || d.state == jsonBehind) && c == ']':
		d.state = jsonDone
		return true, nil
	case d.state == jsonBehind && c == ',':
		d.state = jsonNext
		return true, nil
	case d.state == jsonBehind:
		return false, &syntaxError{"a comma or the end of the array"}
	case c == ',' || c == ']' || c == '}' || c == ':':
		return false, &syntaxError{"a value"}
	}
	d.state, d.depth, d.scalar, d.text = jsonWithin, 0, c != '{' && c != '[', false
	return false, nil
}

// scan returns how much of piece belongs to the item, and whether that is the whole of it.
func (d *jsonDecoder) scan(piece []byte) (n int, whole bool) {
	for i, c := range piece {
		switch {
		case d.escaped:
			d.escaped = false
		case d.text:
			switch c {
			case '\\':
				d.escaped = true
			case '"':
				if d.text = false; d.scalar {
					return i + 1, true
				}
			}
		case c == '"':
			d.text = true
		case d.scalar:
			switch c {
			case ',', ']', '}', ' ', '\t', '\n', '\r':
				return i, true
			}
		case c == '{' || c == '[':
			d.depth++
		case c == '}' || c == ']':
			if d.depth--; d.depth == 0 {
				return i + 1, true
			}
		}
	}
	return len(piece), false
}

// close ends an item.
func (d *jsonDecoder) close() {
	if d.state = jsonDone; d.array {
		d.state = jsonBehind
	}
}

func (d *jsonDecoder) within() bool { return d.state == jsonWithin }

func (d *jsonDecoder) finish(emit func(item) error) error {
	switch {
	case d.state == jsonDone:
		return nil
	case d.state == jsonWithin && d.scalar && !d.text && !d.array: // nothing but the end delimits it
		d.close()
		return emit(itemOf(&d.current))
	default:
		return errTruncated
	}
}
