package stream

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ErrBadID is wrapped by the error of [ParseID].
var ErrBadID = errors.New("stream: bad entry id")

// ID is the id of an entry: the milliseconds at which Redis took it and a sequence number within them. IDs of
// one stream strictly increase. The zero ID is before every entry: Redis never gives it away.
type ID struct {
	Ms  uint64 // milliseconds since 1970 by the clock of the Redis server
	Seq uint64 // 0 for the first entry of a millisecond
}

// MaxID is the greatest ID there can be.
var MaxID = ID{Ms: math.MaxUint64, Seq: math.MaxUint64}

// ParseID reads the form that [ID.String] writes, "<ms>-<seq>" in decimal without signs or leading zeros,
// and nothing else: the short form "<ms>" of Redis commands is refused.
func ParseID(s string) (ID, error) {
	ms, seq, found := strings.Cut(s, "-")
	if !found {
		return ID{}, fmt.Errorf("%w: no dash", ErrBadID)
	}
	var id ID
	var ok bool
	if id.Ms, ok = parseDecimal(ms); !ok {
		return ID{}, fmt.Errorf("%w: milliseconds", ErrBadID)
	}
	if id.Seq, ok = parseDecimal(seq); !ok {
		return ID{}, fmt.Errorf("%w: sequence number", ErrBadID)
	}
	return id, nil
}

// parseDecimal reads a canonical decimal, so that every ID has exactly one text.
func parseDecimal(s string) (uint64, bool) {
	if s == "" || len(s) > 1 && s[0] == '0' || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

// String returns "<ms>-<seq>".
func (id ID) String() string {
	var buf [41]byte // two 20-digit numbers and a dash
	b := strconv.AppendUint(buf[:0], id.Ms, 10)
	b = append(b, '-')
	return string(strconv.AppendUint(b, id.Seq, 10))
}

// IsZero reports whether id is before every entry.
func (id ID) IsZero() bool { return id == ID{} }

// Compare returns -1 if id is before other, 0 if they are equal and +1 if it is after.
func (id ID) Compare(other ID) int {
	if c := cmp.Compare(id.Ms, other.Ms); c != 0 {
		return c
	}
	return cmp.Compare(id.Seq, other.Seq)
}

// Less reports whether id is before other.
func (id ID) Less(other ID) bool { return id.Compare(other) < 0 }

// Prev returns the greatest ID that is less than id; that of zero is zero.
func (id ID) Prev() ID {
	switch {
	case id.Seq > 0:
		return ID{Ms: id.Ms, Seq: id.Seq - 1}
	case id.Ms > 0:
		return ID{Ms: id.Ms - 1, Seq: math.MaxUint64}
	default:
		return ID{}
	}
}

// Next returns the smallest ID that is greater than id; [MaxID] is its own next.
func (id ID) Next() ID {
	switch {
	case id.Seq != math.MaxUint64:
		return ID{Ms: id.Ms, Seq: id.Seq + 1}
	case id.Ms != math.MaxUint64:
		return ID{Ms: id.Ms + 1}
	default:
		return MaxID
	}
}
