// Package erase takes the requests to delete runs and threads: docs/contract.md, section 6.
package erase

import (
	"context"
	"net/http"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

// Eraser deletes for good (backfill.Service).
type Eraser interface {
	Delete(ctx context.Context, run stream.RunID) error
	DeleteThread(ctx context.Context, thread stream.ThreadID) error
}

// Server answers the requests. Its methods may be called by anyone at once.
type Server struct {
	eraser Eraser
	logger *zap.Logger
}

// New returns a server.
func New(eraser Eraser, logger *zap.Logger) *Server { return &Server{eraser: eraser, logger: logger} }

// Mount adds the server's paths to mux.
func (s *Server) Mount(mux *http.ServeMux) {
	mux.HandleFunc("DELETE /v1/runs/{"+transport.PathRun+"}", func(w http.ResponseWriter, r *http.Request) {
		run, err := transport.RunID(r)
		if err == nil {
			err = s.eraser.Delete(r.Context(), run)
		}
		s.answer(w, err)
	})
	mux.HandleFunc("DELETE /v1/threads/{"+transport.PathThread+"}", func(w http.ResponseWriter, r *http.Request) {
		thread, err := transport.ThreadID(r)
		if err == nil {
			err = s.eraser.DeleteThread(r.Context(), thread)
		}
		s.answer(w, err)
	})
}

func (s *Server) answer(w http.ResponseWriter, err error) {
	if err != nil {
		transport.WriteProblem(w, s.logger, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}
