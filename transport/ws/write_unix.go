//go:build unix

package ws

import (
	"errors"
	"syscall"
)

// writeFD writes what the network takes without waiting, which may be nothing.
func writeFD(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Write(int(fd), p)
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return 0, nil
		default:
			return 0, err
		}
	}
}
