//go:build unix

package ws

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// readable says whether one can read without waiting, be it an error or an end.
func readable(fd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // descriptors are small
	n, err := unix.Poll(poll, 0)
	return n > 0 || err != nil
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
