package stream

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestParseID(t *testing.T) {
	for _, s := range []string{"0-0", "0-1", "1700000000000-0", "18446744073709551615-18446744073709551615"} {
		id, err := ParseID(s)
		if err != nil || id.String() != s {
			t.Errorf("%q: %v, %v", s, id, err)
		}
	}
	for _, s := range []string{"", "-", "1", "1-", "-1", "01-0", "1-00", "+1-0", "1--1", "1-1-1", " 1-0", "1-0 ", "1-0x", "1_0-0", "18446744073709551616-0", "1-18446744073709551616", "１-0"} {
		if id, err := ParseID(s); !errors.Is(err, ErrBadID) {
			t.Errorf("%q is taken as %v (%v)", s, id, err)
		}
	}
}

func TestIDOrder(t *testing.T) {
	ordered := []ID{{}, {0, 1}, {0, math.MaxUint64}, {1, 0}, {1, 1}, {2, 0}, {math.MaxUint64, 0}, MaxID}
	for i, a := range ordered {
		for j, b := range ordered {
			if want := i < j; a.Less(b) != want {
				t.Errorf("%v < %v is %v", a, b, !want)
			}
		}
		if next := a.Next(); a != MaxID && !a.Less(next) || a == MaxID && next != MaxID {
			t.Errorf("%v is followed by %v", a, next)
		}
	}
	if next := (ID{0, math.MaxUint64}).Next(); next != (ID{1, 0}) {
		t.Errorf("the sequence number overflows to %v", next)
	}
}

func TestParseCursor(t *testing.T) {
	for _, s := range []string{"1-0.00000000", "1700000000000-12.deadbeef", "1-2.0123abcd.ffffffff"} {
		c, err := ParseCursor(s)
		if err != nil || c.String() != s {
			t.Errorf("%q: %+v, %v", s, c, err)
		}
	}
	for _, s := range []string{
		"", ".", "1-0", "1-0.", "0-0.00000000", "1-0.0000000", "1-0.000000000", "1-0.DEADBEEF", "1-0.deadbeeg", "1.deadbeef",
		"1-0.deadbeef.", "1-0.deadbeef.1", "1-0.deadbeef.00000000.00000000", "1-0.v2-deadbeef", "1-0." + strings.Repeat("0", 300),
	} {
		if c, err := ParseCursor(s); !errors.Is(err, ErrBadCursor) {
			t.Errorf("%q is taken as %+v (%v)", s, c, err)
		}
	}
	if longest := (Cursor{Entry: MaxID, HasRun: true}).String(); len(longest) != 59 {
		t.Errorf("the longest cursor has %d bytes", len(longest))
	}
	if got := Checksum([]byte("123456789")); got != 0xe3069283 { // the check value of CRC-32C
		t.Errorf("checksum %08x", got)
	}
}

func FuzzParseCursor(f *testing.F) {
	f.Add("1700000000000-12.deadbeef.00c0ffee")
	f.Add("1-0.00000000")
	f.Add("0-0..")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseID(s); err == nil && id.String() != s {
			t.Errorf("%q is read as %v", s, id)
		}
		c, err := ParseCursor(s)
		if err != nil {
			if !errors.Is(err, ErrBadCursor) || strings.Contains(err.Error(), s) && len(s) > 30 {
				t.Errorf("%q: %v", s, err)
			}
			return
		}
		if c.String() != s || len(s) > maxCursorBytes || c.Entry.IsZero() {
			t.Errorf("%q is read as %+v", s, c)
		}
		if strings.Trim(s, "0123456789abcdef.-") != "" {
			t.Errorf("%q has bytes that no cursor has", s)
		}
	})
}

func TestParseRunID(t *testing.T) {
	for _, s := range []string{"r1", "a b", "...", "ünïcode-✓", "日本", "a:b", strings.Repeat("x", 256), `"quoted"`, "*"} {
		if id, err := ParseRunID(s); err != nil || string(id) != s {
			t.Errorf("%q: %v", s, err)
		}
		if id, err := ParseThreadID(s); err != nil || string(id) != s {
			t.Errorf("thread %q: %v", s, err)
		}
	}
	for s, reason := range map[string]string{
		"":                       "empty",
		".":                      "reserved",
		"..":                     "reserved",
		strings.Repeat("x", 257): "257 bytes",
		"a/b":                    "'/'",
		`a\b`:                    `'\\'`,
		"{a":                     "'{'",
		"a}":                     "'}'",
		"a\x00":                  "U+0000",
		"a\n":                    "U+000A",
		"a\x7f":                  "U+007F",
		"a\u0085":                "U+0085",
		"a\u200b":                "U+200B",
		"a\u202e":                "U+202E",
		"\xff":                   "UTF-8",
		"\xed\xa0\xbd":           "UTF-8",
	} {
		if _, err := ParseRunID(s); !errors.Is(err, ErrBadRunID) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: %v, want %s", s, err, reason)
		}
		if _, err := ParseThreadID(s); !errors.Is(err, ErrBadThreadID) {
			t.Errorf("thread %q: %v", s, err)
		}
	}
}

func TestKeys(t *testing.T) {
	keys, err := NewKeys("")
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		keys.Run("r1"):                       "agui:run:r1",
		keys.Aux("r1", "lease"):              "{agui:run:r1}:lease",
		keys.Thread("t1"):                    "agui:thread:t1",
		keys.ThreadAux("t1", "conversation"): "{agui:thread:t1}:conversation",
		keys.Runs():                          "agui:runs",
		keys.Wake():                          "agui:wake",
		keys.tailControl("ab", 3):            "{agui:tail:ab}:3",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, prefix := range []string{"A", "a:b", "a b", "ü", strings.Repeat("a", 65), "a{b"} {
		if _, err := NewKeys(prefix); err == nil {
			t.Errorf("prefix %q is taken", prefix)
		}
	}
	if keys, err := NewKeys("my-2nd"); err != nil || keys.Runs() != "my-2nd:runs" {
		t.Errorf("%v, %v", keys, err)
	}
}
