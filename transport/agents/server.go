// Package agents lets clients call agents through the hub: docs/contract.md, section 6. A stock HttpAgent posts here
// instead of to the agent.
package agents

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/bridge"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

// Bridge starts runs: *bridge.Bridge.
type Bridge interface {
	Agents() []string
	Start(ctx context.Context, rq bridge.Request) (*bridge.Run, error)
}

// Watcher answers with a run's events: *sse.Server.
type Watcher interface {
	Watch(w http.ResponseWriter, r *http.Request, run stream.RunID, begun <-chan struct{}) error
}

// Server is the handler of the paths below /v1/agents. Its methods may be called by any number of goroutines at once.
type Server struct {
	bridge  Bridge
	watcher Watcher
	config  transport.Config
	logger  *zap.Logger
}

// New returns a server. It fails if config is invalid.
func New(b Bridge, watcher Watcher, config transport.Config, logger *zap.Logger) (*Server, error) {
	config, err := config.WithDefaults()
	if err != nil {
		return nil, err
	}
	return &Server{bridge: b, watcher: watcher, config: config, logger: logger}, nil
}

// pathAgent is the agent's name in patterns of paths.
const pathAgent = "agent"

// Mount adds the server's paths to mux.
func (s *Server) Mount(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/agents", s.list)
	mux.HandleFunc("POST /v1/agents/{"+pathAgent+"}", func(w http.ResponseWriter, r *http.Request) {
		if err := s.call(w, r); err != nil {
			transport.WriteProblem(w, s.logger, err)
		}
	})
}

// list tells the agents' names, and nothing else of them.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	if _, err := transport.Allow(r, transport.Ask{Scope: auth.Publish}); err != nil {
		transport.WriteProblem(w, s.logger, err)
		return
	}
	type agent struct {
		Name string `json:"name"`
	}
	answer := struct {
		Agents []agent `json:"agents"`
	}{[]agent{}}
	for _, name := range s.bridge.Agents() {
		answer.Agents = append(answer.Agents, agent{name})
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_ = transport.WriteJSON(w, answer) // a client that has left is no matter of ours
}

// call starts a run and answers with it. An error is one that nothing was written for.
func (s *Server) call(w http.ResponseWriter, r *http.Request) error {
	rq := bridge.Request{Agent: r.PathValue(pathAgent), Header: r.Header}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return transport.BadRequest("bad_query", "the query can't be read")
	}
	switch query.Get("concurrent") {
	case "":
	case "supersede":
		rq.Supersede = true
	default:
		return transport.BadRequest("bad_query", "concurrent must be supersede")
	}
	if _, err := transport.Allow(r, transport.Ask{Scope: auth.Publish}); err != nil {
		return err // before the body is read
	}
	if rq.Input, err = s.readInput(w, r); err != nil {
		return err
	}
	asked, err := agui.ParseInput(rq.Input)
	if err == nil { // else Start says what is wrong
		ask := transport.Ask{Scope: auth.Publish, Run: stream.RunID(asked.RunID), Thread: stream.ThreadID(asked.ThreadID)}
		caller, err := transport.Allow(r, ask)
		if err == nil && rq.Supersede {
			err = caller.Allow(transport.Ask{Scope: auth.Cancel, Thread: ask.Thread})
		}
		if err != nil {
			return err
		}
		rq.Names = caller.Grant.NamesThread
	}
	run, err := s.bridge.Start(r.Context(), rq)
	if err != nil {
		return problemOf(err)
	}
	return s.watcher.Watch(w, r, run.Writer().ID(), run.Begun())
}

// bodyTimeout is how long the body of a POST may take.
const bodyTimeout = 30 * time.Second

// readInput reads the RunAgentInput.
func (s *Server) readInput(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, &transport.Error{
			Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type",
			Message: "the body must be a RunAgentInput as application/json",
		}
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // where it isn't supported the server has its own
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(s.config.MaxBody)))
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			return nil, tooLargeInput()
		}
		return nil, transport.BadRequest("bad_body", "the body can't be read")
	}
	_ = control.SetReadDeadline(time.Time{})
	return body, nil
}
