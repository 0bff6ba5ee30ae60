package streamtest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// skewSource is a library that a server is started with, so that its clock can be set. libfaketime can't be had for this: it
// allocates while it tells the time, and the allocator of Redis asks for the time.
//
//go:embed testdata/skew.c
var skewSource []byte

// Clock is the wall clock of a server that was started by StartSkewed.
type Clock struct{ file *os.File }

// Set has the clock be ahead of the machine's from now on; behind it where ahead is negative.
func (c *Clock) Set(tb testing.TB, ahead time.Duration) {
	tb.Helper()
	var us [8]byte
	binary.NativeEndian.PutUint64(us[:], uint64(ahead.Microseconds()))
	if _, err := c.file.WriteAt(us[:], 0); err != nil {
		tb.Fatal(err)
	}
}

// StartSkewed is StartRedis with a clock that can be set. It needs a C compiler, and Linux.
func StartSkewed(tb testing.TB, ahead time.Duration) (*Server, *Clock) {
	tb.Helper()
	dir := tb.TempDir()
	source, library := filepath.Join(dir, "skew.c"), filepath.Join(dir, "skew.so")
	if err := os.WriteFile(source, skewSource, 0o600); err != nil {
		tb.Fatal(err)
	}
	if out, err := exec.CommandContext(tb.Context(), "cc", "-shared", "-fPIC", "-O1", "-o", library, source).CombinedOutput(); err != nil {
		tb.Fatalf("cc: %v\n%s", err, out)
	}
	file, err := os.Create(filepath.Join(dir, "ahead"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = file.Close() })
	clock := &Clock{file}
	clock.Set(tb, ahead)
	return startRedis(tb, []string{"LD_PRELOAD=" + library, "SKEW_FILE=" + file.Name()}), clock
}
