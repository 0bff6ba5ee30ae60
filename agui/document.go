package agui

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// maxDocument bounds in bytes of JSON what a patch may make of a document, since `copy` of the root into itself doubles
// it with every operation. It bounds as well what one patch may copy or walk in all. A document that is larger from the
// beginning stays patchable as long as nothing grows.
const maxDocument = 32 << 20

// Why a patch does not apply; document.apply wraps them with the number of the operation.
var (
	errNoPath    = errors.New("no such place")
	errIndex     = errors.New("not an index of the array")
	errPrototype = errors.New("prototypes are out of bounds")
	errInherited = errors.New("the value would be a function of JavaScript")
	errCircular  = errors.New("the document moved into itself")
	errLength    = errors.New("the length of an array can't be set")
	errTest      = errors.New("test is false")
	errOperation = errors.New("not an operation")
	errTooLarge  = fmt.Errorf("the document or the work on it exceeds %d MiB", maxDocument>>20)
)

// document is a JSON value that JSON Patches are applied to. It begins as raw bytes and is parsed at the first patch,
// level by level and only along the paths that patches name; what they don't reach stays the bytes it was. So numbers
// keep their spelling and lone surrogates their escapes, and of members with one name the last counts.
// Not for use by several goroutines at once: raw and clone fill a cache.
type document struct {
	root    value
	text    []byte // the value as JSON, nil while only the tree has it
	journal []change
	spent   int // bytes that the running patch has copied or walked
}

// newDocument is the document of raw, a checked JSON value that must not change afterwards; it isn't copied. From nil
// comes a document without a value, as a patch can leave one behind: see missing.
func newDocument(raw []byte) *document {
	return &document{root: value{raw: bytes.Trim(raw, " \t\r\n")}, text: raw}
}

// apply applies patch, a checked JSON array of operations that passed admission's rules, as a whole or, with an error, not at
// all. An operation of an unknown op is ignored alone. It fails as well, other than the client, where the result would
// nest deeper than MaxDepth or exceed maxDocument. patch isn't kept.
func (d *document) apply(patch []byte) error {
	if !isArray(patch[skipSpace(patch, 0):]) {
		return errOperation
	}
	d.spent = 0
	if d.missing() {
		d.setRoot(value{raw: []byte("null")})
	}
	var err error
	n := -1
	eachElement(patch, func(raw []byte) bool {
		n++
		err = d.operate(raw)
		return err == nil
	})
	if err != nil {
		d.rollback()
		return fmt.Errorf("patch operation %d: %w", n, err)
	}
	d.commit()
	return nil
}

// raw is the value as JSON: the bytes it began with while no patch changed it, else made once and kept until the next
// patch. The bytes are immutable and shared.
func (d *document) raw() []byte {
	if d.text == nil && !d.missing() {
		d.text = d.root.appendTo(make([]byte, 0, d.root.size()))
	}
	return slices.Clip(d.text)
}

// clone is an independent copy. It shares the bytes of raw and is parsed anew when it is patched.
func (d *document) clone() *document {
	c := newDocument(d.raw())
	if d.missing() {
		c.root = value{}
	}
	return c
}

// missing says whether the last patch left JavaScript's undefined: a copy or move to the root from a place that isn't
// there. The client shows a state as it was before, which is what raw returns, and an activity without content; the
// next patch finds null.
func (d *document) missing() bool { return d.root.undefined() }

func (d *document) commit() {
	if len(d.journal) == 0 {
		return
	}
	if d.missing() {
		d.rollback()
		d.raw()
		d.root = value{}
		return
	}
	for i := range d.journal {
		if c := d.journal[i].c; c != nil {
			c.compact()
		}
	}
	d.text = nil
	d.forget()
}

// changeKind says what a change did to a container, or to the root.
type changeKind uint8

const (
	changeRoot changeKind = iota
	changeSet
	changeInsert
	changeCut
)

// change is an entry of the undo journal.
type change struct {
	c    *container // nil for the root
	i    int
	kind changeKind
	old  value
}

// rollback undoes all that the journal holds.
func (d *document) rollback() {
	for _, ch := range slices.Backward(d.journal) {
		switch ch.kind {
		case changeRoot:
			d.root = ch.old
		case changeSet:
			ch.c.set(ch.i, ch.old)
		case changeInsert:
			ch.c.cut(ch.i)
		case changeCut:
			ch.c.insert(ch.i, "", ch.old)
		}
	}
	d.forget()
}

// forget empties the journal and lets go of the values in it.
func (d *document) forget() {
	const keep = 64 // entries worth keeping memory for: patches are short
	if cap(d.journal) > keep {
		d.journal = nil
	}
	clear(d.journal)
	d.journal = d.journal[:0]
}

func (d *document) setRoot(v value) {
	d.journal = append(d.journal, change{kind: changeRoot, old: d.root})
	d.root = v
}

func (d *document) set(c *container, i int, v value) {
	d.journal = append(d.journal, change{c: c, i: i, kind: changeSet, old: c.set(i, v)})
}

func (d *document) insert(c *container, i int, key string, v value) {
	c.insert(i, key, v)
	d.journal = append(d.journal, change{c: c, i: i, kind: changeInsert})
}

func (d *document) cut(c *container, i int) value {
	old := c.cut(i)
	d.journal = append(d.journal, change{c: c, i: i, kind: changeCut, old: old})
	return old
}

// spend counts n bytes of copying or walking against the running patch.
func (d *document) spend(n int) error {
	d.spent += n
	if d.spent > maxDocument {
		return errTooLarge
	}
	return nil
}

// value is a JSON value: its bytes, or a container once a patch went through it. The zero value is undefined.
type value struct {
	raw []byte
	c   *container
}

func (v *value) undefined() bool { return v.raw == nil && v.c == nil }

// size is about how many bytes of JSON the value makes, never less.
func (v *value) size() int {
	if v.c != nil {
		return v.c.size
	}
	return len(v.raw)
}

// open makes a container of v, which stands in parent (nil for the root). It returns nil for a scalar.
func (v *value) open(parent *container) *container {
	if v.c == nil && (isObject(v.raw) || isArray(v.raw)) {
		c := newContainer(v.raw)
		c.parent = parent
		parent.grow(c.size - len(v.raw))
		*v = value{c: c}
	}
	return v.c
}

// height is how many containers nest in v, at most limit+1 of which are counted.
func (v *value) height(limit int) int {
	if v.c == nil {
		return heightOf(v.raw, limit)
	}
	most := 0
	for i := range v.c.items {
		if most >= limit {
			break
		}
		most = max(most, v.c.items[i].height(limit-1))
	}
	return most + 1
}

func heightOf(raw []byte, limit int) int {
	if len(raw)/2 <= limit { // too short to be any deeper
		return len(raw) / 2
	}
	depth, most := 0, 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = skipString(raw, i) - 1
		case '{', '[':
			depth++
			most = max(most, depth)
		case '}', ']':
			depth--
		}
	}
	return most
}

func (v *value) appendTo(dst []byte) []byte {
	if v.c == nil {
		return append(dst, v.raw...)
	}
	return v.c.appendTo(dst)
}

// container is an array or object whose elements are known one by one.
type container struct {
	parent *container // nil at the root; stale while detached
	size   int        // see value.size; kept true through all ancestors
	object bool
	items  []value        // of an object, undefined where a member was removed
	keys   []string       // of an object, decoded, one for each item
	index  map[string]int // of an object with many members
	dead   int            // removed members
}

// newContainer reads one level of raw, a checked array or object.
func newContainer(raw []byte) *container {
	c := &container{object: isObject(raw), size: len("[]")}
	if !c.object {
		eachElement(raw, func(v []byte) bool {
			c.items = append(c.items, value{raw: v})
			c.size += len(v) + len(",")
			return true
		})
		return c
	}
	eachMember(raw, func(key, v []byte) bool {
		k := decode(key)
		if i := c.slot(k); i >= 0 {
			c.set(i, value{raw: v})
		} else {
			c.insert(len(c.items), k, value{raw: v})
		}
		return true
	})
	return c
}

// slot is where key stands or stood in an object, or -1.
func (c *container) slot(key string) int {
	if c.index == nil {
		return slices.Index(c.keys, key)
	}
	if i, ok := c.index[key]; ok {
		return i
	}
	return -1
}

// member is the value of key in an object, or nil.
func (c *container) member(key string) *value {
	if i := c.slot(key); i >= 0 && !c.items[i].undefined() {
		return &c.items[i]
	}
	return nil
}

// set puts v at i and returns what was there. Undefined removes the member of an object and leaves its slot.
func (c *container) set(i int, v value) value {
	old := c.items[i]
	c.grow(c.cost(i, v) - c.cost(i, old))
	if v.undefined() {
		c.dead++
	}
	if old.undefined() {
		c.dead--
	}
	c.adopt(v)
	c.items[i] = v
	return old
}

// insert puts v before i; into an object only at the end.
func (c *container) insert(i int, key string, v value) {
	const small = 16 // members up to which looking at each beats a map
	c.items = slices.Insert(c.items, i, v)
	if c.object {
		c.keys = append(c.keys, key)
		if c.index != nil {
			c.index[key] = i
		} else if len(c.keys) > small {
			c.reindex()
		}
	}
	c.adopt(v)
	c.grow(c.cost(i, v))
}

// cut takes out what stands at i; of an object only the last member.
func (c *container) cut(i int) value {
	old := c.items[i]
	c.grow(-c.cost(i, old))
	c.items = slices.Delete(c.items, i, i+1)
	if c.object {
		delete(c.index, c.keys[i])
		c.keys = slices.Delete(c.keys, i, i+1)
	}
	return old
}

// cost is what v at i adds to the size.
func (c *container) cost(i int, v value) int {
	switch {
	case v.undefined():
		return 0
	case c.object:
		return literalSize(c.keys[i]) + len(":,") + v.size()
	}
	return v.size() + len(",")
}

func (c *container) adopt(v value) {
	if v.c != nil {
		v.c.parent = c
	}
}

// grow adds n to the sizes of c and all that holds it; c may be nil.
func (c *container) grow(n int) {
	for ; c != nil; c = c.parent {
		c.size += n
	}
}

// compact drops the slots of removed members once they are the most. It must not run while a journal names slots.
func (c *container) compact() {
	if c.dead*2 <= len(c.items) {
		return
	}
	n := 0
	for i, v := range c.items {
		if !v.undefined() {
			c.items[n], c.keys[n] = v, c.keys[i]
			n++
		}
	}
	c.items, c.keys, c.dead = slices.Clone(c.items[:n]), slices.Clone(c.keys[:n]), 0
	if c.index != nil {
		c.reindex()
	}
}

func (c *container) reindex() {
	c.index = make(map[string]int, len(c.keys))
	for i, key := range c.keys {
		c.index[key] = i
	}
}

func (c *container) appendTo(dst []byte) []byte {
	brackets := "[]"
	if c.object {
		brackets = "{}"
	}
	dst = append(dst, brackets[0])
	first := true
	for i := range c.items {
		if c.items[i].undefined() {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if c.object {
			dst = append(appendString(dst, c.keys[i]), ':')
		}
		dst = c.items[i].appendTo(dst)
	}
	return append(dst, brackets[1])
}

// literalSize is how many bytes appendString makes of s, or a few more.
func literalSize(s string) int {
	n := len(s) + len(`""`)
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20:
			n += len(`\u0000`) - 1
		case c == '"' || c == '\\':
			n++
		case c == 0xED: // may begin a lone surrogate of three bytes
			n += len(`\ud800`) - 3
		}
	}
	return n
}
