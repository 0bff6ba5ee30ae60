package process

import (
	"io"
	"sync"
)

// tail keeps the newest of what is written to it, and hands all of it on.
type tail struct {
	copy io.Writer // nil for nobody

	mu  sync.Mutex
	buf []byte
}

// tailBytes is how much is kept: a banner, or the end of a stack.
const tailBytes = 8 << 10

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	if t.copy != nil {
		return t.copy.Write(p)
	}
	return len(p), nil
}

// String is what is kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
