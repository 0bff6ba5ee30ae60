//go:build unix

package oracle

import (
	"fmt"
	"os"
	"syscall"
)

// lockFile takes an exclusive lock on path, blocking until it has it; the kernel drops it if this process dies.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("flock: %w", err)
	}
	return func() { _ = f.Close() }, nil
}
