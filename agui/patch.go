package agui

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// This file is RFC 6902 as fast-json-patch 3.1.1 has it, the library of the official client, called with validation
// and without mutation of the original. That library checks paths as JavaScript properties, converts array indices
// late and calls itself without checks for the halves of move and copy; hence the two ways to walk a path: checked and
// loose (patchpath.go). Some operations fail here at once though the client goes on, since they harm the client itself:
// the document moved into itself (a cycle, at which its next patch ends the run), a function that JavaScript objects
// inherit copied into the document (which ends the run) or on the way of a path, and an assignment to an array's length.
// A client whose harm a later operation of the same patch removes has then applied what fails here. And numbers beyond
// float64 count as null inside a document at once, in the client from the next patch on.

// operation is one operation of a patch, decoded.
type operation struct {
	op         string
	path, from []string
	value      []byte
}

// operate applies one operation, given as JSON.
func (d *document) operate(raw []byte) error {
	var op, path, from []byte
	var o operation
	if !isObject(raw) {
		return errOperation
	}
	eachMember(raw, func(key, value []byte) bool {
		switch {
		case keyIs(key, "op"):
			op = value
		case keyIs(key, "path"):
			path = value
		case keyIs(key, "from"):
			from = value
		case keyIs(key, "value"):
			o.value = value
		}
		return true
	})
	if !isString(op) {
		return nil
	}
	o.op = decode(op)
	var err error
	switch o.op {
	case "add", "replace", "test":
		if o.value == nil {
			return errOperation
		}
	case "move", "copy":
		if o.from, err = pointer(from); err != nil {
			return err
		}
	case "remove":
	default:
		return nil
	}
	if o.path, err = pointer(path); err != nil {
		return err
	}
	if len(o.path) == 0 {
		return d.operateRoot(&o)
	}
	return d.operateAt(&o)
}

// pointer splits a JSON pointer, given as a JSON string, into keys. None means the whole document.
func pointer(raw []byte) ([]string, error) {
	if !isString(raw) {
		return nil, errOperation
	}
	s := decode(raw)
	if s == "" {
		return nil, nil
	}
	if s[0] != '/' {
		return nil, errOperation
	}
	keys := strings.Split(s[1:], "/")
	for i, key := range keys {
		if strings.IndexByte(key, '~') >= 0 {
			keys[i] = strings.ReplaceAll(strings.ReplaceAll(key, "~1", "/"), "~0", "~")
		}
		if keys[i] == "__proto__" || (keys[i] == "prototype" && i > 0 && keys[i-1] == "constructor") {
			return nil, errPrototype
		}
	}
	return keys, nil
}

// operateRoot applies an operation whose path is "". The client checks nothing here: a copy from nowhere leaves
// undefined.
func (d *document) operateRoot(o *operation) error {
	v := value{raw: []byte("null")}
	switch o.op {
	case "test":
		return d.test(&d.root, nil, o.value, false)
	case "add", "replace":
		v.raw = bytes.Clone(o.value)
	case "move", "copy":
		if len(o.from) == 0 {
			return nil
		}
		from, err := d.get(o.from)
		if err != nil {
			return err
		}
		if v, err = d.copyOf(from); err != nil {
			return err
		}
	}
	before := d.root.size()
	d.setRoot(v)
	return d.fits(&v, 0, before)
}

// operateAt applies an operation to a place within the document.
func (d *document) operateAt(o *operation) error {
	p, err := d.resolve(o)
	if err != nil {
		return err
	}
	switch o.op {
	case "test":
		return d.test(p.property(), p.c, o.value, true)
	case "remove":
		d.take(p)
		return nil
	case "move":
		return d.move(o)
	case "copy":
		return d.copy(o, p)
	}
	before := d.root.size()
	v := value{raw: bytes.Clone(o.value)}
	if n, _ := p.index(); p.array() && o.op == "replace" {
		d.set(p.c, n, v)
	} else if p.array() && n > len(p.c.items) {
		return errIndex
	} else if err := d.put(p, v); err != nil {
		return err
	}
	return d.fits(&v, len(o.path), before)
}

// copy puts a copy of what stands at o.from into p.
func (d *document) copy(o *operation, p place) error {
	if err := d.checkFrom(o.from); err != nil {
		return err
	}
	if p.c == nil { // it would be lost
		_, err := d.locate(o.from)
		return err
	}
	from, err := d.get(o.from)
	if err != nil {
		return err
	}
	v, err := d.copyOf(from)
	if err != nil {
		return err
	}
	if v.undefined() {
		v.raw = []byte("null")
	}
	before := d.root.size()
	if err := d.put(p, v); err != nil {
		return err
	}
	return d.fits(&v, len(o.path), before)
}

// move takes the value out, then looks for the path anew in what is left.
func (d *document) move(o *operation) error {
	if err := d.checkFrom(o.from); err != nil {
		return err
	}
	if len(o.from) == 0 {
		if d.root.c != nil {
			return errCircular
		}
		return nil
	}
	from, err := d.locate(o.from)
	if err != nil {
		return err
	}
	if d.root.c != nil && !from.array() && from.property() == inherited {
		return errInherited
	}
	before := d.root.size()
	v := d.take(from)
	p, err := d.locate(o.path)
	if err != nil {
		return err
	}
	if err := d.put(p, v); err != nil {
		return err
	}
	if len(o.path) <= len(o.from) || v.undefined() { // no deeper than it was
		v = value{raw: []byte("null")}
	} else if err := d.spend(v.size()); err != nil {
		return err
	}
	return d.fits(&v, len(o.path), before)
}

// get is the value at path, nil for undefined.
func (d *document) get(path []string) (*value, error) {
	if len(path) == 0 {
		return &d.root, nil
	}
	p, err := d.locate(path)
	if err != nil {
		return nil, err
	}
	v := p.property()
	if v == inherited {
		return nil, errInherited
	}
	return v, nil
}

// copyOf is an independent copy of v.
func (d *document) copyOf(v *value) (value, error) {
	if v == nil || v.undefined() {
		return value{}, nil
	}
	if err := d.spend(v.size()); err != nil {
		return value{}, err
	}
	if v.c == nil {
		return *v, nil
	}
	return value{raw: v.appendTo(make([]byte, 0, v.size()))}, nil
}

// take removes p and returns what was there. For a key of an array that is no index, splice takes 0.
func (d *document) take(p place) value {
	if p.array() {
		if n, _ := p.index(); n >= 0 && n < len(p.c.items) {
			return d.cut(p.c, n)
		}
		return value{}
	}
	if p.c == nil || p.c.member(p.key) == nil {
		return value{}
	}
	i := p.c.slot(p.key)
	old := p.c.items[i]
	d.set(p.c, i, value{})
	return old
}

// put sets p to v, or inserts v there into an array. What JavaScript sets on scalars, and on arrays under other names
// than indices, is lost without a word; undefined shows as no member, and as null in an array.
func (d *document) put(p place, v value) error {
	if p.c == nil {
		return nil
	}
	if p.c.object {
		switch i := p.c.slot(p.key); {
		case i >= 0:
			d.set(p.c, i, v)
		case !v.undefined():
			d.insert(p.c, len(p.c.items), p.key, v)
		}
		return nil
	}
	n, ok := p.index()
	if !ok {
		if p.key == "length" {
			return errLength
		}
		return nil
	}
	if v.undefined() {
		v.raw = []byte("null")
	}
	if n < 0 {
		n = max(0, n+len(p.c.items))
	}
	d.insert(p.c, min(n, len(p.c.items)), "", v)
	return nil
}

// fits checks the bounds of a document that was before bytes long when v came in, depth keys down from the root.
func (d *document) fits(v *value, depth, before int) error {
	if depth+v.height(MaxDepth-depth) > MaxDepth {
		return ErrTooDeep
	}
	if size := d.root.size(); size > before && size > maxDocument {
		return errTooLarge
	}
	return nil
}

// test compares a value of the document, which stands in parent, with one of the patch.
func (d *document) test(a *value, parent *container, b []byte, inside bool) error {
	if a != nil && a != inherited && d.equal(a, parent, &value{raw: b}, inside) {
		return nil
	}
	return errTest
}

// equal compares as the library does: numbers by value, strings decoded, members in any order. inside says that a
// stands in a container.
func (d *document) equal(a *value, parent *container, b *value, inside bool) bool {
	ac, bc := a.open(parent), b.open(nil)
	if ac == nil || bc == nil {
		return ac == nil && bc == nil && d.sameScalar(a.raw, b.raw, inside)
	}
	if ac.object != bc.object || len(ac.items)-ac.dead != len(bc.items) {
		return false
	}
	for i := range bc.items {
		var item *value
		if !ac.object {
			item = &ac.items[i]
		} else if key := bc.keys[i]; key != "hasOwnProperty" { // which the library calls, and so throws where it is a member
			item = ac.member(key)
		}
		if item == nil || !d.equal(item, ac, &bc.items[i], true) {
			return false
		}
	}
	return true
}

func (d *document) sameScalar(a, b []byte, inside bool) bool {
	switch {
	case len(a) == 0 || d.spend(len(a)) != nil:
		return false
	case isNumber(a):
		x, _ := strconv.ParseFloat(string(a), 64)
		if inside && math.IsInf(x, 0) {
			return isNull(b)
		}
		y, _ := strconv.ParseFloat(string(b), 64)
		return isNumber(b) && x == y
	case isString(a):
		return isString(b) && (bytes.Equal(a, b) || decode(a) == decode(b))
	}
	return bytes.Equal(a, b)
}
