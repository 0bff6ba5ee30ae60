package stream

import (
	"fmt"
	"net"

	"github.com/alicebob/miniredis/v2"
)

// Embedded is a Redis server within this process, for a start without installing anything. Any client may
// connect to it, redis-cli included; an XADD wakes blocked readers at once, and its clock advances, so that
// keys expire. It is no replacement for Redis: everything is lost when the process ends, all commands take one
// lock, XRANGE and XREAD scan a stream from its start (long runs cost more with every read), approximate
// trimming is exact, XREAD says nothing of a key of another type, and there are no keyspace events,
// no CONFIG, no CLIENT ID or UNBLOCK, no cluster, no persistence and no memory limit.
type Embedded struct{ server *miniredis.Miniredis }

// StartEmbedded starts a server on addr, which must be on loopback: it has no password. Port 0 takes a free
// one. Close it when done.
func StartEmbedded(addr string) (*Embedded, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("stream: embedded redis address: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("stream: embedded redis address: %q is not a loopback address, and the server has no password", host)
	}
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	if err := server.StartAddr(addr); err != nil {
		return nil, fmt.Errorf("stream: embedded redis: %w", err)
	}
	return &Embedded{server: server}, nil
}

// Addr returns host:port.
func (e *Embedded) Addr() string { return e.server.Addr() }

// URL returns the URL for [Connect].
func (e *Embedded) URL() string { return "redis://" + e.server.Addr() }

// Close stops the server and waits for its connections to end. It may be called once.
func (e *Embedded) Close() { e.server.Close() }

// SetFault has the server answer every command with this error, "" none: for tests of an outage.
func (e *Embedded) SetFault(reply string) { e.server.SetError(reply) }
