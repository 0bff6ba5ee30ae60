package sse

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/transport"
)

// parse reads the path and the query.
func (s *Server) parse(r *http.Request, thread bool) (ask, error) {
	q := ask{post: r.Method == http.MethodPost}
	var err error
	if thread {
		q.request.Thread, err = transport.ThreadID(r)
	} else {
		q.request.Run, err = transport.RunID(r)
	}
	if err != nil {
		return q, err
	}
	attach, err := transport.ParseAttach(r, thread)
	if err != nil {
		return q, err
	}
	if r.URL.Query().Has("catchup") {
		return q, transport.BadRequest("bad_query", "catchup is for WebSockets: here a resume is by events")
	}
	q.request.Head, q.request.FromStart, q.request.Raw = attach.Head, attach.FromStart, attach.Raw
	after := r.Header.Get("Last-Event-ID") // of the two the browser's own is the newer one
	if after == "" {
		after = attach.After
	}
	q.request.After, q.request.Catchup = after, backfill.CatchupOnly
	return q, nil
}

// bodyTimeout is how long the body of a POST may take.
const bodyTimeout = 30 * time.Second

// readInput reads the RunAgentInput that a stock HttpAgent posts, and returns the ids of its messages.
func (s *Server) readInput(w http.ResponseWriter, r *http.Request) ([]string, error) {
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
			return nil, &transport.Error{
				Status: http.StatusRequestEntityTooLarge, Code: "body_too_large", Message: "the body is too large",
			}
		}
		return nil, transport.BadRequest("bad_body", "the body can't be read")
	}
	_ = control.SetReadDeadline(time.Time{})
	var input *struct {
		Messages []struct {
			ID *string `json:"id"`
		} `json:"messages"`
	}
	if json.Unmarshal(body, &input) != nil || input == nil {
		return nil, transport.BadRequest("bad_json", "the body must be a RunAgentInput, a JSON object")
	}
	ids := make([]string, len(input.Messages))
	for i, m := range input.Messages {
		if m.ID == nil {
			return nil, transport.BadRequest("bad_json", "a message of the RunAgentInput has no id")
		}
		ids[i] = *m.ID
	}
	return ids, nil
}
