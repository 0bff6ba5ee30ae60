package oracle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

var errNotJSON = errors.New("oracle: not JSON")

// Canonical is the one text form of a JSON value as JavaScript sees it, byte for byte what the worker gives: members sorted by their
// UTF-16 units, the last of equal names kept, numbers as a double prints, lone surrogates as \uXXXX, no spaces. Two documents are the same
// to the official client exactly if their canonical forms are.
func Canonical(raw []byte) (string, error) {
	if !json.Valid(raw) { // what follows may then be lenient
		return "", errNotJSON
	}
	c := canon{in: raw}
	return c.value()
}

// Digest is the SHA-256 in hex of the canonical form, as Job.Hash gives it.
func Digest(raw []byte) (string, error) {
	text, err := Canonical(raw)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:]), nil
}

type canon struct {
	in []byte
	at int
}

func (c *canon) fail(wanted string) error {
	return fmt.Errorf("%w: %s expected at byte %d", errNotJSON, wanted, c.at)
}

func (c *canon) space() {
	for c.at < len(c.in) && strings.IndexByte(" \t\r\n", c.in[c.at]) >= 0 {
		c.at++
	}
}

func (c *canon) take(b byte) bool {
	c.space()
	if c.at < len(c.in) && c.in[c.at] == b {
		c.at++
		return true
	}
	return false
}

func (c *canon) value() (string, error) {
	c.space()
	if c.at >= len(c.in) {
		return "", c.fail("a value")
	}
	switch c.in[c.at] {
	case '{':
		return c.object()
	case '[':
		return c.array()
	case '"':
		units, err := c.units()
		return quote(units), err
	}
	for _, word := range []string{"true", "false", "null"} {
		if strings.HasPrefix(string(c.in[c.at:min(len(c.in), c.at+len(word))]), word) {
			c.at += len(word)
			return word, nil
		}
	}
	return c.number()
}

func (c *canon) array() (string, error) {
	c.at++
	if c.take(']') {
		return "[]", nil
	}
	var parts []string
	for {
		v, err := c.value()
		if err != nil {
			return "", err
		}
		parts = append(parts, v)
		if c.take(']') {
			return "[" + strings.Join(parts, ",") + "]", nil
		}
		if !c.take(',') {
			return "", c.fail("',' or ']'")
		}
	}
}

type member struct {
	key   []uint16
	value string
}

func (c *canon) object() (string, error) {
	c.at++
	var members []member
	for first := true; !c.take('}'); first = false {
		if !first && !c.take(',') {
			return "", c.fail("',' or '}'")
		}
		c.space()
		key, err := c.units()
		if err != nil {
			return "", err
		}
		if !c.take(':') {
			return "", c.fail("':'")
		}
		v, err := c.value()
		if err != nil {
			return "", err
		}
		members = append(members, member{key, v})
	}
	slices.SortStableFunc(members, func(a, b member) int { return slices.Compare(a.key, b.key) })
	var b strings.Builder
	b.WriteByte('{')
	for i, m := range members {
		if i+1 < len(members) && slices.Equal(m.key, members[i+1].key) {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(quote(m.key) + ":" + m.value)
	}
	b.WriteByte('}')
	return b.String(), nil
}

func (c *canon) number() (string, error) {
	from := c.at
	for c.at < len(c.in) && strings.IndexByte("+-.0123456789eE", c.in[c.at]) >= 0 {
		c.at++
	}
	f, err := strconv.ParseFloat(string(c.in[from:c.at]), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return "", c.fail("a number")
	}
	return Number(f), nil
}

// Number prints a double as JSON.stringify does: 1.0 is 1, −0 is 0, what isn't finite is null.
func Number(f float64) string {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return "null"
	}
	if f == 0 {
		return "0"
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	return mantissa + "e" + exponent[:1] + strings.TrimLeft(exponent[1:], "0")
}

// units reads a string as UTF-16 units.
func (c *canon) units() ([]uint16, error) {
	if c.at >= len(c.in) || c.in[c.at] != '"' {
		return nil, c.fail("a string")
	}
	out := []uint16{}
	for c.at++; c.at < len(c.in); {
		switch b := c.in[c.at]; {
		case b == '"':
			c.at++
			return out, nil
		case b < 0x20:
			return nil, c.fail("no control character")
		case b == '\\':
			u, n := unescape(c.in[c.at:])
			if n == 0 {
				return nil, c.fail("an escape")
			}
			out = append(out, u)
			c.at += n
		default:
			r, n := utf8.DecodeRune(c.in[c.at:])
			if r == utf8.RuneError && n == 1 {
				return nil, c.fail("UTF-8")
			}
			out = appendRune(out, r)
			c.at += n
		}
	}
	return nil, c.fail("the string's end")
}

// unescape reads the escape at the start of in and tells its length; 0 if it is none.
func unescape(in []byte) (unit uint16, length int) {
	if len(in) < 2 {
		return 0, 0
	}
	if i := strings.IndexByte(`"\/bfnrt`, in[1]); i >= 0 {
		return uint16("\"\\/\b\f\n\r\t"[i]), 2
	}
	if in[1] != 'u' || len(in) < 6 {
		return 0, 0
	}
	u, err := strconv.ParseUint(string(in[2:6]), 16, 16)
	if err != nil {
		return 0, 0
	}
	return uint16(u), 6 //nolint:gosec // parsed as 16 bits
}

func appendRune(out []uint16, r rune) []uint16 {
	if r < 0x10000 {
		return append(out, uint16(r)) //nolint:gosec // below 2^16
	}
	r -= 0x10000
	return append(out, uint16(0xd800+r>>10), uint16(0xdc00+r&0x3ff)) //nolint:gosec // halves of 20 bits
}

func isHigh(u uint16) bool { return u>>10 == 0xd800>>10 }
func isLow(u uint16) bool  { return u>>10 == 0xdc00>>10 }

// quote writes units as JSON.stringify does: raw UTF-8, short escapes, lone surrogates escaped.
func quote(units []uint16) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(units); i++ {
		switch u := units[i]; {
		case u == '"' || u == '\\':
			b.WriteByte('\\')
			b.WriteByte(byte(u))
		case u < 0x20:
			if j := strings.IndexByte("\b\f\n\r\t", byte(u)); j >= 0 {
				b.WriteString([]string{`\b`, `\f`, `\n`, `\r`, `\t`}[j])
			} else {
				fmt.Fprintf(&b, `\u%04x`, u)
			}
		case isHigh(u) && i+1 < len(units) && isLow(units[i+1]):
			b.WriteRune(0x10000 + rune(u&0x3ff)<<10 + rune(units[i+1]&0x3ff))
			i++
		case isHigh(u) || isLow(u):
			fmt.Fprintf(&b, `\u%04x`, u)
		default:
			b.WriteRune(rune(u))
		}
	}
	b.WriteByte('"')
	return b.String()
}
