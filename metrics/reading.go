package metrics

import "time"

// Reading is the figures of one process at one moment. Numbers of things that happened count from the start of the
// process and never fall. A nil part is not running, and its series are left out.
type Reading struct {
	Ready     bool // whether /readyz answers 200
	Hub       *Hub
	Tail      *Tail
	WebSocket *Wire
	SSE       *Wire
	Ingest    *Ingest
	Bridge    *Bridge
	Reaper    *Reaper
	Keep      *Keep
	Lookups   uint64 // requests
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
	Withheld    map[string]uint64 // of the entries, by reason
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

// Wire is what a transport to subscribers does.
type Wire struct {
	Open       int64             // connections
	Accepted   uint64            // connections
	Left       uint64            // connections that the peer ended, or that broke
	Closed     map[string]uint64 // connections that the hub ended, by why
	Deliveries uint64            // entries
	Bytes      uint64
	Skipped    uint64 // deliveries of which the subscriber was told that something is wrong
	Ignored    uint64 // messages of subscribers that had no effect
}

// Ingest is what agents post.
type Ingest struct {
	Open     int64 // requests
	Requests uint64
	Accepted uint64 // events
	Rejected uint64 // events
	Bytes    uint64
	Problems map[string]uint64 // requests that were answered with a problem, by its code
}

// Reaper is what becomes of runs whose producers are lost.
type Reaper struct {
	Active  int64  // runs that are looked at
	Stalled int64  // of them, those whose lease has lapsed
	Lost    uint64 // runs that this process has ended for that
	Idle    uint64 // runs that it has ended since nothing came
}

// Keep is what is kept of runs beside their streams.
type Keep struct {
	Written uint64 // checkpoints
	Read    uint64 // checkpoints
	Damaged uint64 // checkpoints that couldn't be read
	Failed  uint64 // attempts to keep something that failed
	Expired uint64 // runs whose expiry this process has set
}

// Bridge is the runs of agents that are called.
type Bridge struct {
	Active   int64             // runs
	Started  uint64            // runs
	Refused  uint64            // inputs that didn't become a run
	Events   uint64            // that agents sent
	Rejected uint64            // events that clients would reject
	Bytes    uint64            // of agents' answers
	Ends     map[string]uint64 // runs, by what ended them
}
