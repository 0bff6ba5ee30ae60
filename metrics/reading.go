package metrics

import "time"

// Reading is the figures of one process at one moment. Numbers of things that happened count from the start of the
// process and never fall. A nil part is not running, and its series are left out.
type Reading struct {
	Ready     bool // whether /readyz answers 200
	Hub       *Hub
	Tail      *Tail
	WebSocket *WebSocket
	SSE       *SSE
	Ingest    *Ingest
}

// Reader takes a reading. It is called by any number of goroutines at once and must not block.
type Reader func() Reading

// Hub is what the fan-out does.
type Hub struct {
	Feeds       int64 // runs that are followed
	Waiting     int64 // of them, runs without an entry yet
	Subscribers int64
	HeldBytes   int64 // by feeds
	Entries     uint64
	Withheld    uint64
	Deliveries  uint64
	Lagged      uint64
}

// Tail is how the process reads Redis.
type Tail struct {
	Keys     int64
	Shards   int64
	Failing  bool
	LastRead time.Time // of the shard that is furthest behind; zero while nothing is followed
	Skipped  uint64    // registry entries that broke the contract
}

// WebSocket is what the WebSocket transport does.
type WebSocket struct {
	Connections    int64
	Accepted       uint64
	Refused        uint64 // handshakes
	Closes         map[int]uint64
	Events         uint64
	Bytes          uint64
	InboundIgnored uint64
}

// SSE is what the event stream transport does.
type SSE struct {
	Connections int64
	Accepted    uint64
	Events      uint64
	Bytes       uint64
}

// Ingest is what agents post.
type Ingest struct {
	Open     int64 // requests
	Requests uint64
	Accepted uint64 // events
	Rejected uint64 // events
}
