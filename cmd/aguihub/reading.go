package main

import (
	"github.com/aguihub/aguihub/metrics"
	"github.com/aguihub/aguihub/transport"
)

// readers fill in the series of each tenant from what its parts count.
func (p *process) readers() map[string]metrics.Reader {
	readers := map[string]metrics.Reader{}
	for _, s := range p.stacks {
		readers[s.tenant] = func() metrics.Reading { return p.reading(s) }
	}
	return readers
}

func (p *process) reading(st *stack) metrics.Reading {
	r := metrics.Reading{Ready: p.gate.isOpen() && !p.stopping.Load()}
	if st == p.stacks[0] { // what isn't a tenant's is told once
		r.Problems, r.Rejects = transport.Problems(), transport.Rejects()
		seats := p.access.Seats()
		r.Seats = &seats
	}
	redis := st.redis.Figures()
	r.Redis = &redis
	if s := st.serving.Load(); s != nil {
		s.readFanOut(&r)
		s.readWires(&r)
		s.readProducers(&r)
	}
	return r
}

func (s *serving) readFanOut(r *metrics.Reading) {
	h, t, attach := s.service.Figures(), s.tail.Health(), s.service.AttachFigures()
	pasts := int64(s.service.CachedBytes())
	r.Hub = &metrics.Hub{
		Feeds: int64(h.Feeds), Waiting: h.Waiting, Subscribers: h.Subscribers, Entries: uint64(h.Entries), Withheld: h.Withheld,
		Deliveries: uint64(h.Deliveries), Lagged: uint64(h.Lagged), Folding: h.Folding, TailAge: h.TailAge,
		Held: metrics.Held{
			Folds: int64(h.Held.Folds), Rings: int64(h.Held.Rings), Queues: int64(h.Held.Queues), Pasts: pasts, Limit: s.memory,
		},
	}
	r.Attach = &attach
	r.Tail = &metrics.Tail{
		Keys: int64(t.Keys), Shards: int64(t.Shards), Failing: t.Err != nil, LastRead: t.OldestRead, Skipped: s.registry.Skipped(),
		Woken: map[string]int{"keyspace": 0, "publish": 0}, WakeUps: t.Wakes.Woken, Lost: t.Wakes.Lost, Changes: t.Wakes.Changes,
	}
	if t.Wakes.By != "" {
		r.Tail.Woken[t.Wakes.By] = t.Wakes.Keys
	}
	k := s.service.KeepFigures()
	r.Keep = &metrics.Keep{
		Written: uint64(k.Written), Bytes: uint64(k.Bytes), Read: uint64(k.Read), Damaged: uint64(k.Damaged), Failed: uint64(k.Failed),
		Expired: uint64(k.Expired), Trimmed: uint64(k.Trimmed), Headless: uint64(k.Headless),
	}
}

func (s *serving) readWires(r *metrics.Reading) {
	w := s.ws.Figures()
	r.WebSocket = &metrics.Wire{
		Open: w.Open, Accepted: uint64(w.Accepted), Left: uint64(w.Left), Closed: map[string]uint64{}, Deliveries: uint64(w.Deliveries),
		Messages: uint64(w.Messages), Writes: uint64(w.Writes), Bytes: uint64(w.Bytes), Skipped: uint64(w.Skipped),
		Ignored: uint64(w.Ignored), Age: w.Age, Deflations: uint64(w.Deflations), Saved: uint64(w.Saved),
	}
	for code, n := range w.Closes {
		r.WebSocket.Closed[code.String()] += uint64(n)
	}
	e := s.sse.Figures()
	r.SSE = &metrics.Wire{
		Open: e.Open, Accepted: uint64(e.Accepted), Left: uint64(e.Broken), Deliveries: uint64(e.Deliveries), Messages: uint64(e.Events),
		Writes: uint64(e.Writes), Bytes: uint64(e.Bytes), Skipped: uint64(e.Skipped), Age: e.Age,
	}
	r.Lookups = uint64(s.lookup.Figures().Requests)
}

func (s *serving) readProducers(r *metrics.Reading) {
	b := s.bridge.Figures()
	r.Bridge = &metrics.Bridge{
		Active: b.Active, Started: b.Started, Refused: b.Refused, Events: b.Events, Rejected: b.Rejected, Bytes: b.Bytes, Ends: b.Ends,
	}
	p := s.reaper.Figures()
	r.Reaper = &metrics.Reaper{Active: int64(p.Active), Stalled: int64(p.Stalled), Lost: p.Lost, Idle: p.Idle}
	i := s.ingest.Figures()
	r.Ingest = &metrics.Ingest{
		Open: int64(i.Active), Requests: i.Requests, Accepted: i.Accepted, Rejected: i.Rejected, Bytes: i.Bytes, Problems: i.Problems,
	}
}
