package agui

import (
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// This file is how fast-json-patch finds the places that paths name: as properties of JavaScript values.

// place is a property of a value: obj[key] in JavaScript.
type place struct {
	obj *value
	c   *container // of obj, nil for a scalar
	key string
}

func (d *document) start() place { return place{obj: &d.root, c: d.root.open(nil)} }

func (p place) array() bool { return p.c != nil && !p.c.object }

// none says whether obj is null or undefined, where JavaScript throws at any property.
func (p place) none() bool { return p.obj.undefined() || isNull(p.obj.raw) }

// index is the key as the library takes it for an array: digits, none of them meaning 0, wrapped to 32 bits; or "-".
func (p place) index() (n int, ok bool) {
	if p.key == "-" && p.array() {
		return len(p.c.items), true
	}
	for i := range len(p.key) {
		if p.key[i] < '0' || p.key[i] > '9' {
			return 0, false
		}
	}
	if len(p.key) < 10 {
		n, _ = strconv.Atoi(p.key)
		return n, true
	}
	f, _ := strconv.ParseFloat(p.key, 64)
	if math.IsInf(f, 0) {
		return 0, true
	}
	return int(int32(uint32(math.Mod(f, 1<<32)))), true
}

// property is obj[key] with the key as index takes it: nil for undefined, inherited for what objects inherit.
func (p place) property() *value {
	switch {
	case p.c == nil:
		return scalarProperty(p.obj.raw, p.key)
	case p.c.object:
		if v := p.c.member(p.key); v != nil {
			return v
		}
		if objectHas(p.key) {
			return inherited
		}
		return nil
	}
	if n, ok := p.index(); ok {
		if n >= 0 && n < len(p.c.items) {
			return &p.c.items[n]
		}
		return nil
	}
	if p.key == "length" {
		return number(len(p.c.items))
	}
	if arrayHas(p.key) {
		return inherited
	}
	return nil
}

// exact is obj[key] with the key as it is written: arrays have no elements "", "01" or "-".
func (p place) exact() *value {
	if _, ok := p.index(); p.array() && ok {
		if p.key == "" || p.key == "-" || (p.key[0] == '0' && p.key != "0") || len(p.key) > 9 {
			return nil
		}
	}
	return p.property()
}

// step goes on to next, which is a property of p.
func (p place) step(next *value) place { return place{obj: next, c: next.open(p.c)} }

// resolve walks the operation's path with the client's checks.
func (d *document) resolve(o *operation) (place, error) {
	p := d.start()
	if p.c == nil {
		if err := d.spend(len(d.root.raw)); err != nil {
			return p, err
		}
	}
	checked := p.c != nil || !falsy(d.root.raw)
	for i, key := range o.path {
		p.key = key
		last := i == len(o.path)-1
		if p.none() {
			return p, errNoPath
		}
		mustExist := o.op == "replace" || o.op == "remove" || (o.op == "add" && !last)
		if checked && mustExist && p.exact() == nil {
			return p, errNoPath
		}
		if _, ok := p.index(); p.array() && !ok {
			return p, errIndex
		}
		if last {
			break
		}
		next := p.property()
		if next == nil {
			return p, errNoPath
		}
		if p = p.step(next); p.c == nil {
			return p, errNoPath
		}
	}
	return p, nil
}

// checkFrom is the client's check that there is something to move or copy. At a key of an array that is no index the
// client's check ends with an error that the client doesn't look at.
func (d *document) checkFrom(from []string) error {
	p := d.start()
	if p.c == nil && falsy(d.root.raw) {
		return nil
	}
	for i, key := range from {
		p.key = key
		next := p.exact()
		if next == nil {
			return errNoPath
		}
		if _, ok := p.index(); (p.array() && !ok) || i == len(from)-1 {
			return nil
		}
		if p = p.step(next); p.c == nil {
			return errNoPath
		}
	}
	return nil
}

// locate walks path without checks, as far as JavaScript lets it.
func (d *document) locate(path []string) (place, error) {
	p := d.start()
	for i, key := range path {
		p.key = key
		if p.none() {
			return p, errNoPath
		}
		if i == len(path)-1 {
			break
		}
		next := p.property()
		if next == nil {
			return p, errNoPath
		}
		if next == inherited {
			return p, errInherited
		}
		p = p.step(next)
	}
	return p, nil
}

// falsy says whether JavaScript takes the scalar raw for false.
func falsy(raw []byte) bool {
	if isNumber(raw) {
		f, _ := strconv.ParseFloat(string(raw), 64)
		return f == 0
	}
	return len(raw) == 0 || isNull(raw) || string(raw) == "false" || string(raw) == `""`
}

// inherited stands for any function that JavaScript values inherit. It is never part of a document.
var inherited = &value{}

func number(n int) *value { return &value{raw: strconv.AppendInt(nil, int64(n), 10)} }

// scalarProperty is a property of a string, number or boolean.
func scalarProperty(raw []byte, key string) *value {
	if isString(raw) {
		if key == "length" {
			return number(len(units(raw)))
		}
		if n, err := strconv.Atoi(key); err == nil && strconv.Itoa(n) == key {
			if u := units(raw); n >= 0 && n < len(u) {
				return &value{raw: appendString(nil, string(appendWTF8(nil, rune(u[n]))))}
			}
			return nil
		}
	}
	if objectHas(key) || (isString(raw) && stringHas(key)) || (isNumber(raw) && numberHas(key)) {
		return inherited
	}
	return nil
}

// units is the string raw as JavaScript counts it, in UTF-16.
func units(raw []byte) []uint16 {
	var u []uint16
	for s := decode(raw); s != ""; {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 { // a lone surrogate
			r, n = rune(s[0]&0x0F)<<12|rune(s[1]&0x3F)<<6|rune(s[2]&0x3F), 3
			u = append(u, uint16(r))
		} else {
			u = utf16.AppendRune(u, r)
		}
		s = s[n:]
	}
	return u
}

// What the prototypes hold in ECMAScript 2024 with its annex B, beside __proto__, which no path may name.

func objectHas(key string) bool {
	switch key {
	case "constructor", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__", "hasOwnProperty",
		"isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf":
		return true
	}
	return false
}

func arrayHas(key string) bool {
	switch key {
	case "at", "concat", "copyWithin", "entries", "every", "fill", "filter", "find", "findIndex", "findLast",
		"findLastIndex", "flat", "flatMap", "forEach", "includes", "indexOf", "join", "keys", "lastIndexOf", "map", "pop",
		"push", "reduce", "reduceRight", "reverse", "shift", "slice", "some", "sort", "splice", "toReversed", "toSorted",
		"toSpliced", "unshift", "values", "with":
		return true
	}
	return objectHas(key)
}

func numberHas(key string) bool {
	return key == "toExponential" || key == "toFixed" || key == "toPrecision"
}

func stringHas(key string) bool {
	switch key {
	case "anchor", "at", "big", "blink", "bold", "charAt", "charCodeAt", "codePointAt", "concat", "endsWith", "fixed",
		"fontcolor", "fontsize", "includes", "indexOf", "isWellFormed", "italics", "lastIndexOf", "link", "localeCompare",
		"match", "matchAll", "normalize", "padEnd", "padStart", "repeat", "replace", "replaceAll", "search", "slice",
		"small", "split", "startsWith", "strike", "sub", "substr", "substring", "sup", "toLocaleLowerCase",
		"toLocaleUpperCase", "toLowerCase", "toUpperCase", "toWellFormed", "trim", "trimEnd", "trimLeft", "trimRight",
		"trimStart":
		return true
	}
	return false
}
