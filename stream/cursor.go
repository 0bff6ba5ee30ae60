package stream

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

// maxCursorBytes bounds a cursor's text (contract, section 3).
const maxCursorBytes = 200

// ErrBadCursor is wrapped by the error of [ParseCursor].
var ErrBadCursor = errors.New("stream: bad cursor")

// castagnoli is the polynomial of CRC-32C, which the processors that we run on compute in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Cursor is the last entry that a reader has. Its text is "<entryID>.<sum>", on a thread
// "<entryID>.<sum>.<run>", with 8 lower-case hex digits each. For clients all behind the first dot is opaque.
type Cursor struct {
	Entry  ID     // never zero in a parsed cursor
	Sum    uint32 // [Checksum] of that entry's event: tells a recreated stream from the one that was read
	Run    uint32 // [HashRun] of the entry's run, where HasRun
	HasRun bool   // whether the cursor belongs to a thread's attach
}

// ParseCursor reads what [Cursor.String] writes and nothing else, so that a form of a later version is a bad
// cursor (answered with a reset) and never a wrong position.
func ParseCursor(s string) (Cursor, error) {
	if len(s) > maxCursorBytes {
		return Cursor{}, fmt.Errorf("%w: over %d bytes", ErrBadCursor, maxCursorBytes)
	}
	entry, tail, found := strings.Cut(s, ".")
	if !found {
		return Cursor{}, fmt.Errorf("%w: no dot", ErrBadCursor)
	}
	var c Cursor
	var err error
	if c.Entry, err = ParseID(entry); err != nil {
		return Cursor{}, fmt.Errorf("%w: %w", ErrBadCursor, err)
	}
	if c.Entry.IsZero() {
		return Cursor{}, fmt.Errorf("%w: no entry has the id 0-0", ErrBadCursor)
	}
	sum, run, hasRun := strings.Cut(tail, ".")
	var ok bool
	if c.Sum, ok = parseHex8(sum); !ok {
		return Cursor{}, fmt.Errorf("%w: checksum", ErrBadCursor)
	}
	if c.HasRun = hasRun; hasRun {
		if c.Run, ok = parseHex8(run); !ok {
			return Cursor{}, fmt.Errorf("%w: run", ErrBadCursor)
		}
	}
	return c, nil
}

// parseHex8 reads exactly eight lower-case hex digits.
func parseHex8(s string) (uint32, bool) {
	if len(s) != 8 {
		return 0, false
	}
	var n uint32
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			n = n<<4 | uint32(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | uint32(c-'a'+10)
		default:
			return 0, false
		}
	}
	return n, true
}

// String returns the cursor's text: ASCII, at most 59 bytes.
func (c Cursor) String() string {
	b := make([]byte, 0, 64)
	b = append(b, c.Entry.String()...)
	b = appendHex8(b, c.Sum)
	if c.HasRun {
		b = appendHex8(b, c.Run)
	}
	return string(b)
}

// appendHex8 appends a dot and n as eight lower-case hex digits.
func appendHex8(b []byte, n uint32) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '.')
	for shift := 28; shift >= 0; shift -= 4 {
		b = append(b, digits[n>>shift&0xf])
	}
	return b
}

// Checksum returns the CRC-32C of the bytes of an entry's field event; of an entry without one, that of nothing.
func Checksum(event []byte) uint32 { return crc32.Checksum(event, castagnoli) }

// HashRun returns the hash that stands for run in a thread's cursor. It is no secret and no proof: two runs of
// a thread may share it once in four billion pairs, so that a reader also compares the checksum.
func HashRun(run RunID) uint32 { return crc32.Checksum([]byte(run), castagnoli) }
