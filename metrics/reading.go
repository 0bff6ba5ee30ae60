package metrics

import "time"

// Reading is the figures of one process at one moment. Numbers of things that happened count from the start of the
// process and never fall. A nil part is not running, and its series are left out.
type Reading struct {
	Ready     bool // whether /readyz answers 200
	Hub       *Hub
	Attach    *Attach
	Tail      *Tail
	Redis     *Redis
	WebSocket *Wire
	SSE       *Wire
	Ingest    *Ingest
	Bridge    *Bridge
	Reaper    *Reaper
	Keep      *Keep
	Lookups   uint64 // requests
	Seats     *Seats
	Rejects   map[string]uint64 // by the limit that refused
	Problems  map[string]uint64 // requests that were answered with a problem document, by its code
}

// Seats is who is attached against what is allowed; a limit of 0 is none.
type Seats struct{ Taken, Limit map[string]int } // in all, of the subject and of the address that has most

// Reader takes a reading. It is called by any number of goroutines at once and must not block.
type Reader func() Reading

// Hub is what the fan-out does.
type Hub struct {
	Feeds       int64 // runs that are followed
	Waiting     int64 // of them, runs without an entry yet
	Subscribers int64
	Held        Held
	Entries     uint64
	Withheld    map[string]uint64 // of the entries, by reason
	Deliveries  uint64
	Lagged      uint64
	Folding     time.Duration // spent on admitting and folding entries
	TailAge     *Histogram    // from an entry's XADD to its feed
}

// Held is the memory that runs take, in bytes, as of the last look: every seven seconds or so.
type Held struct {
	Folds  int64 // what runs have come to
	Rings  int64 // their newest entries
	Queues int64 // entries that subscribers haven't taken yet; they are shared, and counted once for each
	Pasts  int64 // conversations of ended runs
	Limit  int64 // of all but the queues
}

// Attach is how subscribers are brought up to the present.
type Attach struct {
	Seconds  map[string]*Histogram // from the attach, or from when the run was there, to the end of the first bracket, by mode
	Failures map[string]uint64     // attaches that ended before that, by reason
	Brackets map[string]uint64     // preambles and catch-ups in all, those after lag and for next runs too, by mode
	Resets   map[string]uint64     // by reason
	Runs     map[string]uint64     // what the registry told of runs, by state
}

// Tail is how the process reads Redis.
type Tail struct {
	Keys     int64
	Shards   int64
	Failing  bool
	LastRead time.Time      // of the shard that is furthest behind; zero while nothing is followed
	Skipped  uint64         // registry entries that broke the contract
	Woken    map[string]int // streams that are read by wake-ups, by the driver
	WakeUps  uint64         // for followed runs
	Lost     uint64         // that a sweep had to make up for
	Changes  uint64         // times that a driver came into use or fell away
}

// Redis is how Redis does, as this process sees it.
type Redis struct {
	Clients map[string]RedisClient // by what they are for
	Server  *RedisServer           // nil until it has told
}

// RedisClient is one client with its pool of connections.
type RedisClient struct {
	Calls   uint64
	Errors  map[string]uint64 // by kind
	Dialled uint64            // connections
	Open    int64             // connections
	Idle    int64             // of them
	Seconds *Histogram        // of calls; nil where they block
}

// RedisServer is what INFO tells; of several servers the one whose memory is fullest.
type RedisServer struct {
	Used, Limit int64 // memory in bytes; a limit of 0 is none
	Policy      string
	Evicted     uint64        // keys, of all servers
	ClockAhead  time.Duration // of this machine's
	Told        time.Time
}

// Wire is what a transport to subscribers does.
type Wire struct {
	Open       int64             // connections
	Accepted   uint64            // connections
	Left       uint64            // connections that the peer ended, or that broke
	Closed     map[string]uint64 // connections that the hub ended, by why
	Deliveries uint64            // entries
	Messages   uint64            // WebSocket messages, SSE events
	Writes     uint64            // to sockets: what was queued goes out together
	Bytes      uint64
	Deflations uint64     // of a WebSocket's
	Saved      uint64     // bytes, by these
	Skipped    uint64     // deliveries of which the subscriber was told that something is wrong
	Ignored    uint64     // messages of subscribers that had no effect
	Age        *Histogram // from the XADD of the oldest entry of a live write to its end
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
	Bytes   uint64 // of them
	Read    uint64 // checkpoints
	Damaged uint64 // checkpoints that couldn't be read
	Failed  uint64 // attempts to keep something that failed
	Expired uint64 // runs whose expiry this process has set
	Trimmed uint64 // entries that this process has trimmed
	// Headless is how many runs are shown from the first entry that is left, since nothing stands for those before it.
	Headless uint64
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
