package lookup

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

var errUnknownThread = &transport.Error{
	Status: http.StatusNotFound, Code: "unknown_thread", Message: "the thread is unknown",
}

func (s *Server) thread(w http.ResponseWriter, r *http.Request) error {
	thread, err := transport.ThreadID(r)
	if err != nil {
		return err
	}
	caller, err := transport.Allow(r, transport.Ask{Scope: auth.Read, Thread: thread})
	if err != nil {
		return err
	}
	n, err := limit(r, defaultLimit, maxLimit)
	if err != nil {
		return err
	}
	var after backfill.ThreadPlace
	if text := r.URL.Query().Get("cursor"); text != "" {
		if after, err = parsePlace(text); err != nil {
			return err
		}
	}
	runs, next, err := s.service.Thread(r.Context(), thread, after, n)
	if err != nil {
		return err
	}
	list := runList{Thread: thread, Runs: append([]backfill.Summary{}, seen(runs, caller.Grant)...)}
	if next != (backfill.ThreadPlace{}) {
		text := formatPlace(next)
		list.Cursor = &text
	} else if len(runs) == 0 && after == (backfill.ThreadPlace{}) {
		return errUnknownThread
	}
	return s.answer(w, list)
}

// formatPlace is a place in a thread's list as a cursor: any run id fits into a query that way.
func formatPlace(p backfill.ThreadPlace) string {
	return strconv.FormatInt(p.StartMs, 10) + "." + base64.RawURLEncoding.EncodeToString([]byte(p.Run))
}

func parsePlace(text string) (p backfill.ThreadPlace, err error) {
	ms, name, found := strings.Cut(text, ".")
	if !found {
		return p, errCursor
	}
	if p.StartMs, err = strconv.ParseInt(ms, 10, 64); err != nil {
		return p, errCursor
	}
	run, err := base64.RawURLEncoding.DecodeString(name)
	if err != nil {
		return p, errCursor
	}
	if p.Run, err = stream.ParseRunID(string(run)); err != nil {
		return p, errCursor
	}
	return p, nil
}

func (s *Server) messages(w http.ResponseWriter, r *http.Request) error {
	thread, err := transport.ThreadID(r)
	if err != nil {
		return err
	}
	caller, err := transport.Allow(r, transport.Ask{Scope: auth.Read, Thread: thread})
	if err != nil {
		return err
	}
	conversation, err := s.service.Messages(r.Context(), thread, caller.Grant)
	if errors.Is(err, backfill.ErrUnknownRun) {
		return errUnknownThread
	}
	if err != nil {
		return err
	}
	return s.answer(w, conversation)
}
