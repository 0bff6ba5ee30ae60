package bridge

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/aguihub/aguihub/publish"
)

// Ends of a run in Figures, beside the Code constants.
const (
	EndAgent     = "agent" // the agent's own terminal event
	EndCancelled = "cancelled"
)

// counts are the bridge's running figures; read them with Figures.
type counts struct {
	active, started, refused atomic.Int64
	events, rejected, bytes  atomic.Int64

	mu   sync.Mutex
	ends map[string]uint64
}

// Figures is a reading of a bridge's figures.
type Figures struct {
	Active   int64             // runs under way
	Started  uint64            // runs since start
	Refused  uint64            // inputs that didn't become a run
	Events   uint64            // of agents, that were published
	Rejected uint64            // of agents, that were not, or only for those who look for faults
	Bytes    uint64            // of agents' answers
	Ends     map[string]uint64 // runs that ended, by EndAgent, EndCancelled or a Code
}

// Figures reads the bridge's figures.
func (b *Bridge) Figures() Figures {
	c := &b.counts
	f := Figures{
		Active: c.active.Load(), Started: uint64(c.started.Load()), Refused: uint64(c.refused.Load()),
		Events: uint64(c.events.Load()), Rejected: uint64(c.rejected.Load()), Bytes: uint64(c.bytes.Load()),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f.Ends = maps.Clone(c.ends)
	return f
}

func (c *counts) start(err error) {
	if err != nil {
		c.refused.Add(1)
		return
	}
	c.started.Add(1)
	c.active.Add(1)
}

func (c *counts) end(how string) {
	c.active.Add(-1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ends == nil {
		c.ends = map[string]uint64{}
	}
	c.ends[how]++
}

// asWriteError finds out whether the log failed.
func asWriteError(err error) bool {
	_, ok := errors.AsType[*publish.WriteError](err)
	return ok
}
