package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// size is a number of bytes on the command line: 8388608, 8MiB or 8m.
type size int

// UnmarshalText reads a size; kong calls it.
func (s *size) UnmarshalText(text []byte) error {
	t := strings.ToLower(strings.TrimSpace(string(text)))
	digits := strings.TrimRight(t, "kmgib")
	var shift uint
	switch t[len(digits):] {
	case "", "b":
	case "k", "kb", "kib":
		shift = 10
	case "m", "mb", "mib":
		shift = 20
	case "g", "gb", "gib":
		shift = 30
	default:
		return fmt.Errorf("%q is no size: write bytes, or a number with KiB, MiB or GiB", text)
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n == 0 || n > math.MaxInt64>>shift {
		return fmt.Errorf("%q is no size: write bytes, or a number with KiB, MiB or GiB", text)
	}
	*s = size(n << shift)
	return nil
}
