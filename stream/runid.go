package stream

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// maxNameBytes bounds a run's and a thread's id (contract, section 1).
const maxNameBytes = 256

// ErrBadRunID is wrapped by the error of [ParseRunID]; the text says what is wrong.
var ErrBadRunID = errors.New("stream: bad run id")

// ErrBadThreadID is wrapped by the error of [ParseThreadID]; the text says what is wrong.
var ErrBadThreadID = errors.New("stream: bad thread id")

// RunID names a run. Only values that came from [ParseRunID] may be handed to this package's other
// functions: they build Redis keys of it and don't check again. The zero value names no run.
type RunID string

// ParseRunID checks s against the contract: 1–256 bytes of printable UTF-8 (letters, marks, numbers,
// punctuation, symbols and the ASCII space) without { } / \ and neither "." nor "..".
func ParseRunID(s string) (RunID, error) {
	if reason := badName(s); reason != "" {
		return "", fmt.Errorf("%w: %s", ErrBadRunID, reason)
	}
	return RunID(s), nil
}

// ThreadID names a thread, under the same rules as a [RunID]. The zero value names no thread.
type ThreadID string

// ParseThreadID checks s by the rules of [ParseRunID].
func ParseThreadID(s string) (ThreadID, error) {
	if reason := badName(s); reason != "" {
		return "", fmt.Errorf("%w: %s", ErrBadThreadID, reason)
	}
	return ThreadID(s), nil
}

// badName returns what is wrong with s as a run's or thread's id, or "". The text never repeats s, which may
// be long or hostile.
func badName(s string) string {
	switch {
	case s == "":
		return "it is empty"
	case len(s) > maxNameBytes:
		return fmt.Sprintf("it has %d bytes, at most %d are allowed", len(s), maxNameBytes)
	case s == "." || s == "..":
		return `"." and ".." are reserved`
	case !utf8.ValidString(s):
		return "it is not valid UTF-8"
	}
	for i, r := range s {
		switch {
		case r == '{' || r == '}' || r == '/' || r == '\\':
			return fmt.Sprintf("%q at byte %d is not allowed", r, i)
		case !unicode.IsPrint(r):
			return fmt.Sprintf("%U at byte %d is not printable", r, i)
		}
	}
	return ""
}
