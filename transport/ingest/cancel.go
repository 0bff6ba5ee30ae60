package ingest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/transport"
)

// headerCancel with the value answer has a request answered as soon as somebody asks to cancel the run. Without it a sender
// hears of that with the answer to its body, whenever that ends.
const headerCancel = "Aguihub-Cancel"

// cancelOf reads it.
func cancelOf(h http.Header) (answer bool, err error) {
	switch all := h.Values(headerCancel); {
	case len(all) == 0:
		return false, nil
	case len(all) == 1 && all[0] == "answer":
		return true, nil
	default:
		return false, transport.BadRequest("bad_header", headerCancel+" can only be: answer")
	}
}

// cancelRequest is who asked the run to end, and why, in an answer.
type cancelRequest struct {
	Reason string `json:"reason"`
	By     string `json:"by"`
}

// askTimeout bounds the question whether a run is to end: its answer is worth no wait.
const askTimeout = time.Second

// asked notes in the answer that somebody wants the run to end, where it hasn't.
func (b *body) asked(ctx context.Context) {
	if b.ended || b.run.Ended() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if c, err := b.run.Asked(ctx); err == nil && c != nil { // else the next answer says it
		b.ans.Cancel = &cancelRequest{Reason: c.Reason, By: c.By}
	}
}

// heedCancel ends the reading of the body once somebody asks to cancel the run.
func (b *body) heedCancel() (stop func() bool) {
	ctx := b.run.Context()
	return context.AfterFunc(ctx, func() {
		if b.toBeCancelled() {
			b.clock.interrupt()
		}
	})
}

func (b *body) toBeCancelled() bool {
	return errors.Is(context.Cause(b.run.Context()), publish.ErrCancelled)
}

func cancelRequested() error {
	return &transport.Error{
		Status: http.StatusConflict, Code: "cancel_requested",
		Message: "somebody asks to cancel the run; what had come complete is appended: send the run's end now",
	}
}
