package agui

import (
	"bytes"
	"errors"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how deep an event's JSON may nest (docs/contract.md, section 1).
const MaxDepth = 512

// Errors of Parse. They say why an entry isn't an event at all, whatever the state of its run.
var (
	ErrNotUTF8   = errors.New("agui: not valid UTF-8")
	ErrNotJSON   = errors.New("agui: not valid JSON")
	ErrNotObject = errors.New("agui: not a JSON object")
	ErrTooDeep   = errors.New("agui: nested deeper than 512")
	ErrNoType    = errors.New("agui: no string field type")
)

// scanner walks one JSON text from left to right and checks it. It holds no memory of its own.
type scanner struct {
	b []byte
	i int
}

// space moves past insignificant white space.
func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// value moves past one value that starts at s.i and checks it.
func (s *scanner) value(depth int) error {
	if s.i >= len(s.b) {
		return ErrNotJSON
	}
	switch c := s.b[s.i]; {
	case c == '"':
		return s.str()
	case c == '{':
		return s.object(depth, nil)
	case c == '[':
		return s.array(depth)
	case c == '-' || (c >= '0' && c <= '9'):
		return s.number()
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	}
	return ErrNotJSON
}

// object moves past an object; visit, where given, gets each member's key with its quotes and its value.
func (s *scanner) object(depth int, visit func(key, value []byte)) error {
	if depth >= MaxDepth {
		return ErrTooDeep
	}
	s.i++
	s.space()
	if s.i < len(s.b) && s.b[s.i] == '}' {
		s.i++
		return nil
	}
	for {
		s.space()
		if s.i >= len(s.b) || s.b[s.i] != '"' {
			return ErrNotJSON
		}
		keyAt := s.i
		if err := s.str(); err != nil {
			return err
		}
		key := s.b[keyAt:s.i]
		s.space()
		if s.i >= len(s.b) || s.b[s.i] != ':' {
			return ErrNotJSON
		}
		s.i++
		s.space()
		valueAt := s.i
		if err := s.value(depth + 1); err != nil {
			return err
		}
		if visit != nil {
			visit(key, s.b[valueAt:s.i])
		}
		more, err := s.next('}')
		if err != nil || !more {
			return err
		}
	}
}

// array moves past an array.
func (s *scanner) array(depth int) error {
	if depth >= MaxDepth {
		return ErrTooDeep
	}
	s.i++
	s.space()
	if s.i < len(s.b) && s.b[s.i] == ']' {
		s.i++
		return nil
	}
	for {
		s.space()
		if err := s.value(depth + 1); err != nil {
			return err
		}
		more, err := s.next(']')
		if err != nil || !more {
			return err
		}
	}
}

// next moves past a comma (true) or the closing bracket (false).
func (s *scanner) next(end byte) (bool, error) {
	s.space()
	if s.i >= len(s.b) {
		return false, ErrNotJSON
	}
	c := s.b[s.i]
	s.i++
	switch c {
	case ',':
		return true, nil
	case end:
		return false, nil
	}
	return false, ErrNotJSON
}

// str moves past a string with its quotes.
func (s *scanner) str() error {
	s.i++
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return nil
		case c < 0x20:
			return ErrNotJSON
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		default:
			s.i++
		}
	}
	return ErrNotJSON
}

// escape moves past one escape sequence.
func (s *scanner) escape() error {
	s.i++
	if s.i >= len(s.b) {
		return ErrNotJSON
	}
	switch s.b[s.i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i++
		return nil
	case 'u':
		if s.i+4 >= len(s.b) {
			return ErrNotJSON
		}
		for _, c := range s.b[s.i+1 : s.i+5] {
			if hexValue(c) < 0 {
				return ErrNotJSON
			}
		}
		s.i += 5
		return nil
	}
	return ErrNotJSON
}

// number moves past a number.
func (s *scanner) number() error {
	if s.b[s.i] == '-' {
		s.i++
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else if s.digits() == 0 {
		return ErrNotJSON
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if s.digits() == 0 {
			return ErrNotJSON
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if s.digits() == 0 {
			return ErrNotJSON
		}
	}
	return nil
}

func (s *scanner) digits() int {
	from := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i - from
}

func (s *scanner) word(w string) error {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		return ErrNotJSON
	}
	s.i += len(w)
	return nil
}

// checkValue says whether raw is exactly one JSON value, valid UTF-8 and not too deep.
func checkValue(raw []byte) error {
	if !utf8.Valid(raw) {
		return ErrNotUTF8
	}
	s := scanner{b: raw}
	s.space()
	if err := s.value(0); err != nil {
		return err
	}
	s.space()
	if s.i != len(s.b) {
		return ErrNotJSON
	}
	return nil
}

// skipValue returns the index after the value at b[i]; b was checked before.
func skipValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		depth := 0
		for ; i < len(b); i++ {
			switch b[i] {
			case '"':
				i = skipString(b, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				depth--
				if depth == 0 {
					return i + 1
				}
			}
		}
		return i
	}
	for i < len(b) {
		switch b[i] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return i
		}
		i++
	}
	return i
}

func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return i
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// eachMember calls visit for every member of the checked object raw, in order, until it returns false. Keys come with
// their quotes.
func eachMember(raw []byte, visit func(key, value []byte) bool) {
	i := skipSpace(raw, 0)
	for i = skipSpace(raw, i+1); i < len(raw) && raw[i] == '"'; {
		keyEnd := skipString(raw, i)
		at := skipSpace(raw, skipSpace(raw, keyEnd)+1)
		end := skipValue(raw, at)
		if !visit(raw[i:keyEnd], raw[at:end]) {
			return
		}
		i = skipSpace(raw, end)
		if i < len(raw) && raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
}

// eachElement calls visit for every element of the checked array raw, in order, until it returns false.
func eachElement(raw []byte, visit func(value []byte) bool) {
	i := skipSpace(raw, skipSpace(raw, 0)+1)
	for i < len(raw) && raw[i] != ']' {
		end := skipValue(raw, i)
		if !visit(raw[i:end]) {
			return
		}
		i = skipSpace(raw, end)
		if i < len(raw) && raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
}

// member returns the last member of the checked object raw whose name is name (JavaScript keeps the last), or nil.
func member(raw []byte, name string) []byte {
	var found []byte
	eachMember(raw, func(key, value []byte) bool {
		if keyIs(key, name) {
			found = value
		}
		return true
	})
	return found
}

// keyIs compares a key with its quotes, escaped as it may be, with a plain ASCII name.
func keyIs(key []byte, name string) bool {
	if body := key[1 : len(key)-1]; bytes.IndexByte(body, '\\') < 0 {
		return string(body) == name
	}
	return decode(key) == name
}

// body is what stands between the quotes of the string v, still escaped.
func body(v []byte) []byte { return v[1 : len(v)-1] }

// Kinds of a JSON value, by its first byte.
func isString(v []byte) bool { return len(v) > 0 && v[0] == '"' }
func isObject(v []byte) bool { return len(v) > 0 && v[0] == '{' }
func isArray(v []byte) bool  { return len(v) > 0 && v[0] == '[' }
func isNull(v []byte) bool   { return len(v) > 0 && v[0] == 'n' }
func isBool(v []byte) bool   { return len(v) > 0 && (v[0] == 't' || v[0] == 'f') }
func isNumber(v []byte) bool {
	return len(v) > 0 && (v[0] == '-' || (v[0] >= '0' && v[0] <= '9'))
}

// decode turns the string v, with its quotes, into a Go string that is equal for equal JavaScript strings and only for
// those: a lone surrogate becomes its three bytes (as in WTF-8), which encode turns back into its escape.
func decode(v []byte) string {
	b := body(v)
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b)
	}
	return string(appendDecoded(make([]byte, 0, len(b)), b))
}

func appendDecoded(dst, b []byte) []byte {
	for i := 0; i < len(b); {
		if b[i] != '\\' {
			dst = append(dst, b[i])
			i++
			continue
		}
		switch c := b[i+1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, n := unescape(b[i:])
			dst = appendWTF8(dst, r)
			i += n
			continue
		default:
			dst = append(dst, c)
		}
		i += 2
	}
	return dst
}

// unescape reads the \uXXXX at the start of b, with the second half of a surrogate pair where one follows.
func unescape(b []byte) (r rune, n int) {
	r = hex4(b[2:6])
	if utf16.IsSurrogate(r) && len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
		if pair := utf16.DecodeRune(r, hex4(b[8:12])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return r, 6
}

func appendWTF8(dst []byte, r rune) []byte {
	if utf16.IsSurrogate(r) {
		return append(dst, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
	}
	return utf8.AppendRune(dst, r)
}

// appendString appends s, as decode made it, as a JSON string with its quotes.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c == 0xED && i+2 < len(s) && s[i+1] >= 0xA0: // a lone surrogate
			r := rune(c&0x0F)<<12 | rune(s[i+1]&0x3F)<<6 | rune(s[i+2]&0x3F)
			dst = append(dst, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
			i += 2
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

func hex4(b []byte) rune {
	var r rune
	for _, c := range b {
		r = r<<4 | rune(hexValue(c))
	}
	return r
}

func hexValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
