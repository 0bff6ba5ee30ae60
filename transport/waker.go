package transport

import (
	"context"
	"sync"
)

// Waker interrupts a wait for the next items of a session, so that the goroutine that serves a connection can write
// something else. The zero Waker is ready. Wake may be called by anyone at any time.
type Waker struct {
	mu     sync.Mutex
	cancel context.CancelFunc
}

// Arm returns a context for the next wait, which the next Wake ends. The one returned before is ended.
func (w *Waker) Arm(parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(parent)
	w.mu.Lock()
	before := w.cancel
	w.cancel = cancel
	w.mu.Unlock()
	if before != nil {
		before()
	}
	return ctx
}

// Wake ends the context that Arm returned last.
func (w *Waker) Wake() {
	w.mu.Lock()
	cancel := w.cancel
	w.cancel = nil
	w.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}
