// Package lookup answers what runs and threads there are and what is in them: docs/contract.md, section 4.
package lookup

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

// Server answers look-ups. Its methods may be called by anyone at once.
type Server struct {
	service  *backfill.Service
	registry backfill.Lister
	config   transport.Config
	logger   *zap.Logger
	requests atomic.Int64
}

// New returns a server.
func New(service *backfill.Service, registry backfill.Lister, config transport.Config, logger *zap.Logger) (*Server, error) {
	config, err := config.WithDefaults()
	if err != nil {
		return nil, err
	}
	return &Server{service: service, registry: registry, config: config, logger: logger}, nil
}

// Mount adds the server's paths to mux. A pattern for GET answers HEAD, too.
func (s *Server) Mount(mux *http.ServeMux) {
	run, thread := "GET /v1/runs/{"+transport.PathRun+"}", "GET /v1/threads/{"+transport.PathThread+"}"
	mux.Handle("GET /v1/runs", s.handler(s.runs))
	mux.Handle(run, s.handler(s.run))
	mux.Handle(run+"/events", s.handler(s.events))
	mux.Handle(thread, s.handler(s.thread))
	mux.Handle(thread+"/messages", s.handler(s.messages))
}

// Figures is a reading of a server's figures.
type Figures struct {
	Requests int64 // since start
}

// Figures reads the server's figures.
func (s *Server) Figures() Figures { return Figures{Requests: s.requests.Load()} }

// handler answers with the error that f returns; f has written nothing then.
func (s *Server) handler(f func(w http.ResponseWriter, r *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		_, err := url.ParseQuery(r.URL.RawQuery) // parts that can't be read would be as good as not sent
		if err != nil {
			err = transport.BadRequest("bad_query", "the query can't be read")
		} else {
			err = f(w, r)
		}
		if err != nil {
			transport.WriteProblem(w, s.logger, err)
		}
	})
}

// answer writes v.
func (s *Server) answer(w http.ResponseWriter, v any) error {
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	out := transport.NewWriter(w, s.config.WriteTimeout)
	return s.done(errors.Join(transport.WriteJSON(out, v), out.Done()))
}

// done ends an answer whose first byte was written. What was sent of one that failed must not pass for the whole.
func (s *Server) done(err error) error {
	if err != nil {
		s.logger.Debug("answer was cut", zap.Error(err))
		panic(http.ErrAbortHandler)
	}
	return nil
}

// Limits of a page of a list.
const (
	defaultLimit = 50
	maxLimit     = 500
	// maxRounds bounds the pages of the registry that are read for one of runs: it also holds the ends of runs.
	maxRounds = 4
)

// limit reads the query's limit.
func limit(r *http.Request, otherwise, most int) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, transport.BadRequest("bad_query", "limit must be a number from 1 to "+strconv.Itoa(most))
	}
	return n, nil
}

// runList is the answer to GET /v1/runs and GET /v1/threads/{threadId}. Cursor is what to ask with for more, null where
// there is no more.
type runList struct {
	Thread stream.ThreadID    `json:"thread,omitempty"`
	Runs   []backfill.Summary `json:"runs"`
	Cursor *string            `json:"cursor"`
}

// seen leaves out the runs that whoever asks may not see, and where nothing but the run is named, its parent.
func seen(runs []backfill.Summary, g *auth.Grant) []backfill.Summary {
	out := slices.DeleteFunc(runs, func(sum backfill.Summary) bool { return !g.Sees(string(sum.Run), string(sum.Thread)) })
	for i := range out {
		hideParent(&out[i], g)
	}
	return out
}

func hideParent(sum *backfill.Summary, g *auth.Grant) {
	if !g.NamesThread(string(sum.Thread)) {
		sum.Parent = ""
	}
}

func (s *Server) runs(w http.ResponseWriter, r *http.Request) error {
	caller, err := transport.Allow(r, transport.Ask{Scope: auth.Read})
	if err != nil {
		return err
	}
	n, err := limit(r, defaultLimit, maxLimit)
	if err != nil {
		return err
	}
	var before stream.ID
	if text := r.URL.Query().Get("cursor"); text != "" {
		if before, err = stream.ParseID(text); err != nil {
			return errCursor
		}
	}
	list := runList{Runs: []backfill.Summary{}}
	for range maxRounds {
		page, next, err := s.service.Runs(r.Context(), s.registry, before, n-len(list.Runs))
		if err != nil {
			return err
		}
		list.Runs = append(list.Runs, seen(page, caller.Grant)...)
		before = next
		if next.IsZero() || len(list.Runs) == n {
			break
		}
	}
	if !before.IsZero() {
		text := before.String()
		list.Cursor = &text
	}
	return s.answer(w, list)
}

// reach says whether whoever asks may look a run up.
func (s *Server) reach(r *http.Request, run stream.RunID) (*transport.Caller, error) {
	ask := transport.Ask{Scope: auth.Read, Run: run}
	caller, err := transport.Allow(r, ask)
	if err != nil {
		return nil, err
	}
	err = caller.Reach(r.Context(), s.service, ask)
	return caller, err
}

var errCursor = transport.BadRequest("bad_cursor", "the cursor can't be read")

func (s *Server) run(w http.ResponseWriter, r *http.Request) error {
	run, err := transport.RunID(r)
	if err != nil {
		return err
	}
	caller, err := s.reach(r, run)
	if err != nil {
		return err
	}
	detail, err := s.service.Run(r.Context(), run, caller.Grant)
	if err != nil {
		return err
	}
	hideParent(&detail.Summary, caller.Grant)
	return s.answer(w, detail)
}
