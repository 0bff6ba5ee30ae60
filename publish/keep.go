package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aguihub/aguihub/stream"
)

// keeper renews the leases of a publisher's runs and hears of cancels. Its goroutine is there while there is a run.
type keeper struct {
	// static
	log       Log
	ttl, poll time.Duration

	// guarded by mu
	mu   sync.Mutex
	runs map[*Run]*held
	end  func() // ends the goroutine and waits for it; nil while there is none
}

// held is a run that is looked after.
type held struct {
	fence stream.Fence

	renewAt time.Time // guarded by keeper.mu

	// owned by the keeper's goroutine
	control stream.ID // the newest entry of the control stream that is known
}

// add looks after a run from now on. Its lease has just been set.
func (k *keeper) add(ctx context.Context, r *Run, f stream.Fence) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.runs == nil {
		k.runs = map[*Run]*held{}
	}
	k.runs[r] = &held{fence: f, renewAt: time.Now().Add(k.ttl / renewals)}
	if k.end != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	k.end = func() { cancel(); <-done }
	go func() {
		defer close(done)
		k.keep(ctx)
	}()
}

// remove forgets a run. It waits for the goroutine where the run was the last one.
func (k *keeper) remove(r *Run) {
	k.mu.Lock()
	delete(k.runs, r)
	var end func()
	if len(k.runs) == 0 {
		end, k.end = k.end, nil
	}
	k.mu.Unlock()
	if end != nil {
		end()
	}
}

// due says whether a run's lease was set longer than d ago.
func (k *keeper) due(r *Run, d time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.runs[r]
	return h != nil && time.Until(h.renewAt) < k.ttl/renewals-d
}

// keep looks after the runs until ctx ends.
func (k *keeper) keep(ctx context.Context) {
	ticker := time.NewTicker(min(k.poll, k.ttl/renewals))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		k.round(ctx)
	}
}

// round asks once about all runs. What can't be asked now is asked in the next round: a lease outlives some of them.
func (k *keeper) round(ctx context.Context) {
	now := time.Now()
	k.mu.Lock()
	runs := make([]*Run, 0, len(k.runs))
	helds := make([]*held, 0, len(k.runs))
	holds := make([]stream.Hold, 0, len(k.runs))
	for r, h := range k.runs {
		runs, helds = append(runs, r), append(helds, h)
		holds = append(holds, stream.Hold{Run: r.ID(), Fence: h.fence, Renew: !now.Before(h.renewAt), After: h.control, TTL: k.ttl})
	}
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, k.ttl/renewals)
	defer cancel()
	kept, err := k.log.Keep(ctx, holds)
	if err != nil {
		return
	}
	k.mu.Lock()
	for i := range kept {
		if holds[i].Renew {
			helds[i].renewAt = now.Add(k.ttl / renewals)
		}
	}
	k.mu.Unlock()
	for i, kp := range kept {
		if kp.Lost {
			_ = runs[i].breakOff(0, 0, fmt.Errorf("renew: %w", ErrFenced)) // whoever comes next hears of it
			continue
		}
		for _, s := range kp.Signals {
			helds[i].control = s.ID
			if c, is := cancelOf(s.Control); is {
				runs[i].cancel(&c)
			}
		}
	}
}

// maxReason bounds what a CancelledError says, in bytes.
const maxReason = 1000

// cancelOf reads an entry of a control stream; false where it isn't a cancel.
func cancelOf(control []byte) (CancelledError, bool) {
	var c struct{ Type, Reason, By string }
	if json.Unmarshal(control, &c) != nil || c.Type != "cancel" {
		return CancelledError{}, false
	}
	return CancelledError{Reason: clip(c.Reason), By: clip(c.By)}, true
}

func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxReason)], "")
}

// Asked says whether somebody has asked the run to end, as of now: what [Run.Context] tells after a while, for those who
// haven't the run open for that long. An error is the log's.
func (r *Run) Asked(ctx context.Context) (*CancelledError, error) {
	if c, ok := errors.AsType[*CancelledError](context.Cause(r.context())); ok { //nolint:contextcheck // the run's own
		return c, nil
	}
	kept, err := r.pub.log.Keep(ctx, []stream.Hold{{Run: r.ID()}})
	if err != nil {
		return nil, err
	}
	for _, s := range kept[0].Signals {
		if c, is := cancelOf(s.Control); is {
			return &c, nil
		}
	}
	return nil, nil
}
