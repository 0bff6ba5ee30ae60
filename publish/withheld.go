package publish

import (
	"context"
	"errors"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/stream"
)

// AppendWithheld writes an event that Append refused with bad, so that those who look for the fault find it in the run:
// hubs withhold it and tell why. It must be called before the next event is given to Append. What would change the run
// (a start, an end), what comes before the run's start or behind its end, and what is larger than an event may be is not
// written; then it returns false. raw must not change afterwards.
func (r *Run) AppendWithheld(ctx context.Context, raw []byte, bad *InvalidError) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return false, err
	}
	if bad.Terminal || errors.Is(bad, ErrEnded) || len(raw) > r.pub.cfg.MaxEvent || !r.adm.Started() || r.adm.Ended() {
		return false, nil
	}
	if err := r.event.Parse(raw); err == nil && (r.event.Type.Terminal() || r.event.Type == agui.RunStarted) {
		return false, nil
	}
	r.push(item{rec: stream.Record{Event: raw}})
	r.setTimer(ctx)
	return true, nil
}
