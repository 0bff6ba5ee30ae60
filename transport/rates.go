package transport

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/aguihub/aguihub/metrics"
)

// Rates bounds how fast callers may come and send. 0 is no limit. Twice of what a second allows may come at once.
type Rates struct {
	Attaches     int // attaches a second of one address
	IngestEvents int // events a second that one subject posts, or one address where nobody is asked for a token
	IngestBytes  int // bytes a second of them; of these the burst is 8 MiB at least, so that an event of that size passes
}

// minByteBurst is the largest event by default.
const minByteBurst = 8 << 20

// rejects counts what limits refused, of the process, by the limit.
var rejects = func() *metrics.Tally {
	t := &metrics.Tally{}
	t.Expect(rejectConnections, rejectAttachRate, rejectMessageRate, rejectIngestRate, rejectHandshake, rejectHeaders)
	return t
}()

// The limits, as labels of metrics.
const (
	rejectConnections = "connections"
	rejectAttachRate  = "attach_rate"
	rejectMessageRate = "message_rate"
	rejectIngestRate  = "ingest_rate"
	rejectHandshake   = "slow_handshake"
	rejectHeaders     = "headers"
)

// Rejects is how often which limit has refused something.
func Rejects() map[string]uint64 { return rejects.Read() }

var errAttachRate = &Error{
	Status: http.StatusTooManyRequests, Code: "attach_rate", Close: CloseConnections, RetryAfter: time.Second,
	Message: "too many attaches a second from this address",
}

var errIngestRate = &Error{
	Status: http.StatusTooManyRequests, Code: "ingest_rate", RetryAfter: time.Second,
	Message: "too many events or bytes a second; those that are accepted are appended",
}

var errMessageRate = &Error{
	Status: http.StatusTooManyRequests, Code: "message_rate", Close: CloseConnections, RetryAfter: time.Second,
	Message: "too many messages or pings a second",
}

// MessageRate counts a connection that sent too much, and is the error that ends it.
func MessageRate() *Error {
	rejects.Add(rejectMessageRate)
	return errMessageRate
}

// maxMeters bounds who is measured by name; those beyond share one measure.
const maxMeters = 10_000

// meters measures by name. The zero value is ready.
type meters struct {
	mu     sync.Mutex
	byName map[string]*rate.Limiter
	others *rate.Limiter
	swept  time.Time
}

// allow takes n of what a name may have; perSecond 0 is no limit.
func (m *meters) allow(name string, n, perSecond, burst int) bool {
	return perSecond <= 0 || m.of(name, perSecond, burst).AllowN(time.Now(), n)
}

func (m *meters) of(name string, perSecond, burst int) *rate.Limiter {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.byName[name]; l != nil {
		return l
	}
	if m.byName == nil {
		m.byName, m.others = map[string]*rate.Limiter{}, rate.NewLimiter(rate.Limit(perSecond), burst)
	}
	if now := time.Now(); len(m.byName) >= maxMeters && now.Sub(m.swept) >= time.Second {
		m.swept = now
		for name, l := range m.byName {
			if l.TokensAt(now) >= float64(l.Burst()) { // as good as new
				delete(m.byName, name)
			}
		}
	}
	if len(m.byName) >= maxMeters {
		return m.others
	}
	l := rate.NewLimiter(rate.Limit(perSecond), burst)
	m.byName[name] = l
	return l
}

// Come counts an attach of the caller's address in. It fails where that is one too many; before an upgrade, since
// upgrades are what it is to save.
func (c *Caller) Come() error {
	per := c.access.config.Rates.Attaches
	if c.access.attaches.allow(network(c.Address), 1, per, 2*per) {
		return nil
	}
	rejects.Add(rejectAttachRate)
	return errAttachRate
}

// Post counts what the caller posts. It fails where that is too much.
func (c *Caller) Post(events, bytes int) error {
	r := c.access.config.Rates
	name := network(c.Address)
	if c.Grant != nil && !c.Grant.Open() {
		name = c.Grant.Tenant + "\x00" + c.Grant.Subject
	}
	if c.access.events.allow(name, events, r.IngestEvents, 2*r.IngestEvents) &&
		c.access.bytes.allow(name, bytes, r.IngestBytes, max(2*r.IngestBytes, minByteBurst)) {
		return nil
	}
	rejects.Add(rejectIngestRate)
	return errIngestRate
}

// ipv6Prefix is what one customer has at least, in bits.
const ipv6Prefix = 64

// network is whose an address is: of IPv6 everybody has as many as they like.
func network(address string) string {
	addr, err := netip.ParseAddr(address)
	if err != nil || !addr.Is6() {
		return address
	}
	prefix, err := addr.WithZone("").Prefix(ipv6Prefix)
	if err != nil {
		return address
	}
	return prefix.String()
}
