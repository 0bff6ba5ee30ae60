// Package erase takes the requests to delete runs and threads: docs/contract.md, section 6.
package erase

import (
	"context"
	"errors"
	"net/http"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

// Eraser deletes for good (backfill.Service).
type Eraser interface {
	transport.Reacher
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
			err = s.run(r, run)
		}
		s.answer(w, err)
	})
	mux.HandleFunc("DELETE /v1/threads/{"+transport.PathThread+"}", func(w http.ResponseWriter, r *http.Request) {
		thread, err := transport.ThreadID(r)
		if err == nil {
			_, err = transport.Allow(r, transport.Ask{Scope: auth.Admin, Thread: thread})
		}
		if err == nil {
			err = s.eraser.DeleteThread(r.Context(), thread)
		}
		s.answer(w, err)
	})
}

// run deletes a run, if whoever asks may. One that is another thread's is as unknown as one that was deleted before.
func (s *Server) run(r *http.Request, run stream.RunID) error {
	ask := transport.Ask{Scope: auth.Admin, Run: run}
	caller, err := transport.Allow(r, ask)
	if err != nil {
		return err
	}
	if err := caller.Reach(r.Context(), s.eraser, ask); err != nil {
		if errors.Is(err, backfill.ErrUnknownRun) {
			return nil
		}
		return err
	}
	return s.eraser.Delete(r.Context(), run)
}

func (s *Server) answer(w http.ResponseWriter, err error) {
	if err != nil {
		transport.WriteProblem(w, s.logger, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}
