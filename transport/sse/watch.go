package sse

import (
	"context"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

// Watch answers a POST that started a run with the run's own events from its first entry on, as they were published, up
// to its terminal event. begun is closed once the log holds something of the run; until then there are comments only. An
// error is one that nothing was written for.
func (s *Server) Watch(w http.ResponseWriter, r *http.Request, run stream.RunID, begun <-chan struct{}) error {
	caller := transport.CallerOf(r.Context())
	if caller == nil || caller.Grant == nil {
		return transport.Unasked()
	}
	group, leave, ok := s.group.Enter()
	if !ok {
		return transport.Draining()
	}
	defer leave()
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(group, func() { cancel(transport.Draining()) })() //nolint:contextcheck // it ends with the server, not with the request

	s.stats.accepted.Add(1)
	s.stats.open.Add(1)
	defer s.stats.open.Add(-1)
	a := newAnswer(s, w, r, ask{post: true, request: backfill.Request{Run: run, Grant: caller.Grant}})
	err := a.await(ctx, begun)
	if err == nil {
		err = a.watch(ctx)
	}
	if !a.started {
		return err
	}
	if err == nil {
		err = a.body.Done()
	}
	if err != nil {
		s.stats.broken.Add(1)
		s.logger.Debug("stream ended", zap.Error(err))
	}
	return nil
}

// await waits for the run's first entry, with a comment where that takes long: what stands between the hub and the
// client shall not take the connection for dead.
func (a *answer) await(ctx context.Context, begun <-chan struct{}) error {
	silence := time.NewTicker(a.server.config.Silence)
	defer silence.Stop()
	for {
		select {
		case <-begun:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-silence.C:
			if !a.started {
				a.started = true
				setHeaders(a.w.Header(), a.r)
				a.w.WriteHeader(http.StatusOK)
			}
			a.buf = append(a.buf[:0], ": \n\n"...)
			if err := a.flush(); err != nil {
				return err
			}
		}
	}
}

// watch writes what the session gives.
func (a *answer) watch(ctx context.Context) error {
	session := a.server.service.Watch(a.ask.request.Run, a.ask.request.Grant)
	defer session.Close()
	return a.run(ctx, session)
}
