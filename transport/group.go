package transport

import (
	"context"
	"sync"
)

// Group is the goroutines of a wire, or its requests, which share a context and end together.
type Group struct {
	shared func() context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

// NewGroup returns a group whose context ends with ctx or with Stop.
func NewGroup(ctx context.Context) *Group {
	ctx, cancel := context.WithCancel(ctx)
	return &Group{
		shared: func() context.Context { return ctx },
		cancel: cancel,
	}
}

// Enter counts the caller in until it calls leave, once. ctx is the group's, and ends with it. ok is false once the group is stopped.
func (g *Group) Enter() (ctx context.Context, leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil, false
	}
	g.wg.Add(1)
	return g.shared(), g.wg.Done, true
}

// Join counts a request in until it calls leave. The context that it goes on with ends with its own, and as Draining with
// the group. ok is false once the group is stopped.
func (g *Group) Join(ctx context.Context) (joined context.Context, leave func(), ok bool) {
	group, out, ok := g.Enter()
	if !ok {
		return nil, nil, false
	}
	joined, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(group, func() { cancel(Draining()) })
	return joined, func() { stop(); cancel(nil); out() }, true
}

// Go runs f in a goroutine; false where the group is stopped.
func (g *Group) Go(f func(ctx context.Context)) bool {
	ctx, leave, ok := g.Enter()
	if ok {
		go func() {
			defer leave()
			f(ctx)
		}()
	}
	return ok
}

// Stop lets nobody in any more and ends the context. It doesn't wait.
func (g *Group) Stop() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.cancel()
}

// Wait stops the group and waits until all have left; false where ctx ended before.
func (g *Group) Wait(ctx context.Context) bool {
	g.Stop()
	return g.left(ctx)
}

// left waits until all have left; false where ctx ended before.
func (g *Group) left(ctx context.Context) bool {
	left := make(chan struct{})
	go func() {
		g.wg.Wait()
		close(left)
	}()
	select {
	case <-left:
		return true
	case <-ctx.Done():
		return false
	}
}
