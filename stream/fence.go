package stream

import (
	"errors"
	"fmt"
	"time"
)

// Beside a run's stream stands who writes it: a hash `producer` with the epoch, so that a writer whom another one has
// replaced is refused; the dense sequence number of the next event, so that an append whose answer was lost can be
// repeated; and a string `lease` that lapses unless its holder renews it. Each method that changes them is one script
// over keys of one slot.

// fenceVersion marks the hash. One of another version is left alone by readers and replaced by whoever claims the run.
const fenceVersion = "1"

// How long the keys beside a run are kept, in [Redis] and for whoever looks at the run again.
const (
	// auxKeep is for how long after the last renewal: docs/contract.md, "Retention", --abandoned-after.
	auxKeep = 7 * 24 * time.Hour
	// auxKeepEnded is for how long after the end: --retention.
	auxKeepEnded = 24 * time.Hour
	// maxControl bounds a run's control stream, in entries.
	maxControl = 64
)

var (
	// ErrFenced says that another producer has claimed the run since, or a hub has ended it: this one is refused.
	ErrFenced = errors.New("stream: the run has another producer")
	// ErrRunEnded says that the run's terminal event was appended.
	ErrRunEnded = errors.New("stream: the run has ended")
	// ErrRunExists says that the run has entries, and was to be a new one.
	ErrRunExists = errors.New("stream: the run exists")
	// ErrNoRun says that the run has no stream.
	ErrNoRun = errors.New("stream: no such run")
)

// GapError says that a sequence number is ahead of what the log has: an event before it never came, or Redis lost it.
type GapError struct {
	Next uint64 // the number that is expected
}

// Error implements error.
func (e *GapError) Error() string {
	return fmt.Sprintf("stream: gap in the sequence: event %d is expected", e.Next)
}

// Fence is one producer of a run: who writes it, in which epoch. A later epoch fences off the earlier ones.
type Fence struct {
	Producer string
	Epoch    uint64 // from 1 on
}

// Claim asks to write a run.
type Claim struct {
	Producer string
	// Epoch is the producer's own count; 0 takes the next one. With its own, claiming again is no takeover: the
	// sequence goes on.
	Epoch uint64
	// Peek changes nothing: it fails with ErrRunEnded unless the fence holds the run already.
	Peek bool
	// Fresh fails with ErrRunExists where the run has entries.
	Fresh bool
	// TTL is how long the lease holds without a renewal.
	TTL time.Duration
	// Input is kept until the producer's first entry, for whoever has to end the run before there is one.
	Input []byte
}

// Claimed is what a claim got.
type Claimed struct {
	Fence
	Next uint64 // sequence number of the next event, from 0 on
	Last ID     // entry of the newest event of this fence, zero if there is none
	Head ID     // the stream's newest entry, whoever wrote it; zero if there is none
}

// FencedAppend says where records belong.
type FencedAppend struct {
	Fence
	// Seq is the sequence number of the first record; the others follow densely.
	Seq uint64
	// Floor is the lowest number that may be expected, where some before Seq were left out on purpose. Seq where none
	// was; 0 never means that.
	Floor uint64
	// End says that the last record ends the run: what comes afterwards must be Late.
	End, Late bool
	// TTL is the lease's.
	TTL time.Duration
}

// Appended is what became of a fenced append.
type Appended struct {
	Already int  // records that were in the log already, the first ones
	IDs     []ID // of the others
	Last    ID   // entry of the newest event of this fence
	Foreign bool // somebody else appended to the stream, or trimmed it, since the fence's last append
}

// Hold is a run that a producer looks after.
type Hold struct {
	Run RunID
	Fence
	Renew bool // the lease too
	// After is the newest entry of the control stream that is known.
	After ID
	TTL   time.Duration
}

// Kept is how a held run does.
type Kept struct {
	Lost    bool // fenced off, or gone with all its keys; only found out with Renew
	Signals []Signal
}

// Signal is an entry of a run's control stream.
type Signal struct {
	ID      ID
	Control []byte // as JSON; untrusted
}

// Lease is how the lease of a run stands.
type Lease struct {
	Held     bool
	Known    bool   // a lease was seen since the run began
	Epoch    uint64 // 0 for the lease of a plain agent, and where none is known
	Ended    bool   // the end was written by a producer that is known here
	LapsedMs int64  // when the lapse was noticed, by the clock of Redis in milliseconds; 0 if it wasn't
	// Left is for how long it holds without a renewal, where it is held and lapses at all.
	Left time.Duration
}

// Reap is the end that a hub gives to a run whose producer is lost.
type Reap struct {
	By    string // who does it
	Epoch uint64 // that was seen; the run gets the next one
	Head  ID     // the stream's newest entry that was seen; zero where there was none
	// Grace is for how long the lease must have been noticed to be lapsed, if Idle is zero. Where the clock of Redis was set
	// back behind that moment it can't tell, and isn't asked.
	Grace time.Duration
	// Idle ends a run that has had no lease and no entry for so long.
	Idle time.Duration
}
