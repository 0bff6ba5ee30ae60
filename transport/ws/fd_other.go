//go:build !unix

package ws

// readable leaves the waiting to who reads.
func readable(uintptr) bool { return true }

// writeFD leaves all to those who wait for the network.
func writeFD(uintptr, []byte) (int, error) { return 0, nil }
