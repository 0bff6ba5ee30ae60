//go:build unix

package ws

import (
	"errors"
	"syscall"
)

// readFD reads what is there. It is later where there is nothing yet; else nothing means an end, or an error.
func readFD(fd uintptr, p []byte) (n int, later bool) {
	for {
		n, err := syscall.Read(int(fd), p)
		switch {
		case err == nil:
			return n, false
		case errors.Is(err, syscall.EAGAIN):
			return 0, true
		case !errors.Is(err, syscall.EINTR):
			return 0, false
		}
	}
}

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
