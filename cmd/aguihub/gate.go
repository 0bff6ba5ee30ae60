package main

import (
	"net/http"
	"sync/atomic"
)

// gate is the hub's handler. Until it is opened, which is when Redis has answered, requests are told to come again.
type gate struct {
	handler atomic.Pointer[http.Handler]
}

// open lets requests through to h from now on.
func (g *gate) open(h http.Handler) { g.handler.Store(&h) }

// isOpen says whether requests are let through.
func (g *gate) isOpen() bool { return g.handler.Load() != nil }

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := g.handler.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(`{"type":"about:blank","title":"Service Unavailable","status":503,"code":"starting","detail":"this hub has not reached Redis yet"}` + "\n"))
}
