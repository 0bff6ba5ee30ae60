package backfill

import (
	"container/list"
	"sync"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/stream"
)

// past is a run that has ended, as the next run of its thread needs it. It is immutable.
type past struct {
	run          stream.RunID
	thread       stream.ThreadID
	start, end   stream.ID
	at           stream.Cursor // of the newest entry
	conversation *agui.Conversation
}

// cache keeps pasts, the newest used first, bounded in bytes.
type cache struct {
	max int

	mu    sync.Mutex
	bytes int
	order *list.List // of *past, most recently used in front
	byRun map[stream.RunID]*list.Element
}

func newCache(maxBytes int) *cache {
	return &cache{max: maxBytes, order: list.New(), byRun: map[stream.RunID]*list.Element{}}
}

func (c *cache) get(run stream.RunID) *past {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byRun[run]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*past)
}

func (c *cache) put(p *past) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byRun[p.run]; e != nil {
		c.remove(e)
	}
	c.byRun[p.run] = c.order.PushFront(p)
	c.bytes += p.conversation.Size()
	for c.bytes > c.max && c.order.Len() > 1 {
		c.remove(c.order.Back())
	}
}

func (c *cache) drop(run stream.RunID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byRun[run]; e != nil {
		c.remove(e)
	}
}

func (c *cache) remove(e *list.Element) {
	p := e.Value.(*past)
	c.order.Remove(e)
	delete(c.byRun, p.run)
	c.bytes -= p.conversation.Size()
}
