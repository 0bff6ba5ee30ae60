package lookup

import (
	"errors"
	"net/http"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

// Limits of a listing of events. Without a limit in the query it goes up to the run's newest entry.
const (
	maxEvents = 1_000_000
	// chunk is how much is gathered for one write, in bytes.
	chunk = 32 << 10
)

// errEnough ends a listing that has as many entries as were asked for.
var errEnough = errors.New("lookup: enough")

// events lists a run's entries as lines, those that subscribers don't get as well: a line says so, and why.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	run, err := transport.RunID(r)
	if err != nil {
		return err
	}
	caller, err := s.reach(r, run)
	if err != nil {
		return err
	}
	left, err := limit(r, 0, maxEvents)
	if err != nil {
		return err
	}
	var after stream.Cursor
	if text := r.URL.Query().Get("after"); text != "" {
		if after, err = stream.ParseCursor(text); err != nil {
			return err
		}
		if after.HasRun && after.Run != stream.HashRun(run) {
			return backfill.ErrGone
		}
	}
	out := listing{w: w, body: transport.NewWriter(w, s.config.WriteTimeout)}
	err = s.service.Events(r.Context(), run, after, caller.Grant, func(it backfill.Item) error {
		if err := out.add(&it); err != nil {
			return err
		}
		if left--; left == 0 {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	if err != nil && !out.started {
		return err
	}
	if err == nil {
		err = errors.Join(out.flush(), out.body.Done())
	}
	return s.done(err)
}

// listing is an answer of lines.
type listing struct {
	w       http.ResponseWriter
	body    *transport.Writer
	buf     []byte
	started bool
}

func (l *listing) add(it *backfill.Item) error {
	before := len(l.buf)
	l.buf = transport.AppendLines(l.buf, it.Delivery, it.Cursor, true)
	if len(l.buf) > before {
		l.buf = append(l.buf, '\n')
	}
	if len(l.buf) < chunk {
		return nil
	}
	return l.flush()
}

// flush writes what is gathered, behind the header.
func (l *listing) flush() error {
	if !l.started {
		l.started = true
		h := l.w.Header()
		h.Set("Content-Type", "application/jsonl; charset=utf-8")
		h.Set("Cache-Control", "no-store")
		l.w.WriteHeader(http.StatusOK)
	}
	_, err := l.body.Write(l.buf)
	l.buf = l.buf[:0]
	return err
}
