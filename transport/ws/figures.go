package ws

import (
	"sync/atomic"

	"github.com/aguihub/aguihub/metrics"
	"github.com/aguihub/aguihub/transport"
)

// stats are the server's running figures; read them with Figures.
type stats struct {
	open                                                          atomic.Int64 // now
	accepted, left, messages, deliveries, bytes, skipped, ignored atomic.Int64 // since start
	writes, deflations, saved                                     atomic.Int64 // since start
	age                                                           *metrics.Histogram
	closes                                                        [transport.CloseKinds]atomic.Int64
}

// Figures is a reading of a server's figures.
type Figures struct {
	Open       int64                         // connections now
	Accepted   int64                         // connections since start
	Closes     map[transport.CloseCode]int64 // connections that the hub closed, by code
	Left       int64                         // connections that the peer closed or that broke
	Messages   int64                         // sent
	Writes     int64                         // of what was queued, each in few system calls
	Deliveries int64                         // live entries handed to connections, withheld ones too
	Bytes      int64                         // sent, frames and all
	Deflations int64                         // events that were deflated, each for all who were sent it
	Saved      int64                         // bytes that weren't sent since they were
	Skipped    int64                         // of the deliveries, those of which the peer was told that something is wrong
	Ignored    int64                         // messages and lines of peers that had no effect
	Age        *metrics.Histogram            // from the XADD of the oldest live entry of a write to its end
}

// Figures reads the server's figures.
func (s *Server) Figures() Figures {
	f := Figures{
		Open: s.stats.open.Load(), Accepted: s.stats.accepted.Load(), Closes: map[transport.CloseCode]int64{},
		Left: s.stats.left.Load(), Messages: s.stats.messages.Load(), Deliveries: s.stats.deliveries.Load(),
		Bytes: s.stats.bytes.Load(), Skipped: s.stats.skipped.Load(), Ignored: s.stats.ignored.Load(),
		Writes: s.stats.writes.Load(), Age: s.stats.age, Deflations: s.stats.deflations.Load(), Saved: s.stats.saved.Load(),
	}
	for i, code := range transport.CloseCodes() {
		f.Closes[code] = s.stats.closes[i].Load()
	}
	return f
}
