package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/pprof"
	"slices"
	"time"

	"github.com/aguihub/aguihub/metrics"
)

const (
	// stalledAfter is when a tail that reads at least every two seconds counts as stalled.
	stalledAfter = 10 * time.Second
	// pingTimeout bounds the question whether Redis is to blame.
	pingTimeout = time.Second
)

// opsHandler serves /metrics, /livez and /readyz.
func (p *process) opsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics.Handler(builtFrom(), p.readers()))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if why := p.notReady(r.Context()); why != "" {
			plain(w, http.StatusServiceUnavailable, why)
			return
		}
		plain(w, http.StatusOK, "ok")
	})
	return mux
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, text)
}

// notReady says why the hub can't serve now; "" when it can. That Redis is away later on is no reason: taking hubs out
// of service wouldn't bring it back.
func (p *process) notReady(ctx context.Context) string {
	switch {
	case p.stopping.Load():
		return "stopping"
	case !p.gate.isOpen():
		return "waiting for Redis"
	}
	stalled := slices.IndexFunc(p.stacks, func(s *stack) bool {
		h := s.tail.Health()
		return h.Keys > 0 && time.Since(h.OldestRead) >= stalledAfter
	})
	if stalled < 0 {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if p.stacks[stalled].redis.Ping(ctx) != nil {
		return ""
	}
	return "the tail has stalled although Redis answers"
}

// debugHandler serves pprof.
func debugHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
