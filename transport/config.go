package transport

import (
	"context"
	"errors"
	"time"

	"github.com/aguihub/aguihub/stream"
)

// Canceller asks runs to end (backfill.Service).
type Canceller interface {
	Cancel(ctx context.Context, run stream.RunID, reason, by string) error
}

// MaxReason bounds the reason of a cancel, in bytes. It is for people.
const MaxReason = 1000

// Anonymous is on whose behalf a run is cancelled where nobody is asked who they are.
const Anonymous = "anonymous"

// CheckReason says whether a cancel may have a reason; the error is an *Error.
func CheckReason(reason string) error {
	if len(reason) > MaxReason {
		return BadRequest("bad_reason", "a reason may have 1,000 bytes")
	}
	return nil
}

// Config bounds what wires take and how long they wait. Nothing may change while they run.
type Config struct {
	// WriteTimeout is for how long a socket may take no byte before it is closed; 0 is 10 s (docs/contract.md,
	// section 2).
	WriteTimeout time.Duration
	// PingEvery is the time between two pings of a WebSocket, jittered by a tenth; 0 is 25 s. PongWait is how long the
	// peer has to answer one; 0 is 10 s. Section 3.
	PingEvery, PongWait time.Duration
	// Silence is after how long without an event an SSE stream gets a comment; 0 is 15 s. Section 4.
	Silence time.Duration
	// MaxMessage bounds a message of several lines, in bytes; 0 is 256 KiB. One event always fits. Section 3.
	MaxMessage int
	// MaxInbound bounds a WebSocket message of a client, in bytes; 0 is 64 KiB. Section 3.
	MaxInbound int
	// MaxInboundRate is how many messages, pings, and pongs that nobody asked for, a client of a WebSocket may send a
	// second, and twice as many at once; 0 is 50. A client of ours sends one a minute.
	MaxInboundRate int
	// MaxBody bounds the RunAgentInput of a POST to SSE, in bytes; 0 is 32 MiB, which is what a conversation may weigh.
	MaxBody int
	// MaxPosted bounds an event that answers a POST, in bytes; 0 is 8 MiB, since the official reader's buffer ends at 10.
	// Section 4.
	MaxPosted int
	// Plain sends nothing deflated, whatever clients of a WebSocket offer. Section 3.
	Plain bool
	// MaxAge is for how long a client stays attached before it is sent away to come back, jittered by a tenth; 0 is for ever.
	MaxAge time.Duration
	// Canceller is whom clients of a WebSocket reach with a cancel; nil where that isn't to be had.
	Canceller Canceller
}

// WithDefaults returns the config with its zero fields set. It fails where fields contradict each other.
func (c Config) WithDefaults() (Config, error) {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.WriteTimeout, 10 * time.Second},
		{&c.PingEvery, 25 * time.Second},
		{&c.PongWait, 10 * time.Second},
		{&c.Silence, 15 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
		if *d.field < 0 || c.MaxAge < 0 {
			return c, errors.New("transport: a time is negative")
		}
	}
	for _, n := range []struct {
		field *int
		value int
	}{
		{&c.MaxMessage, 256 << 10},
		{&c.MaxInbound, 64 << 10},
		{&c.MaxInboundRate, 50},
		{&c.MaxBody, 32 << 20},
		{&c.MaxPosted, 8 << 20},
	} {
		if *n.field == 0 {
			*n.field = n.value
		}
		if *n.field < 0 {
			return c, errors.New("transport: a limit is negative")
		}
	}
	if c.PongWait >= c.PingEvery {
		return c, errors.New("transport: the wait for a pong must be shorter than the time between pings")
	}
	return c, nil
}
