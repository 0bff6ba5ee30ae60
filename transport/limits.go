package transport

import (
	"net/http"
	"sync"
	"time"
)

// Limits bounds the connections that are attached at once, of a process. 0 is no limit.
type Limits struct {
	Connections int // in all
	PerSubject  int // of one tenant's subject; not where nobody is asked for a token
	PerAddress  int // behind a proxy only with AccessConfig.Proxies
}

// seats counts who is attached. The zero value is ready.
type seats struct {
	mu        sync.Mutex
	all       int
	subjects  map[[2]string]int // by tenant and subject
	addresses map[string]int
}

var errSeats = &Error{
	Status: http.StatusTooManyRequests, Code: "too_many_connections", Close: CloseConnections, RetryAfter: 5 * time.Second,
	Message: "too many connections of this subject or address, or in all",
}

// Sit counts the caller in as attached until it calls leave. It fails where that would be one too many.
func (c *Caller) Sit() (leave func(), err error) {
	l, s := c.access.config.Limits, &c.access.seats
	subject := [2]string{c.Grant.Tenant, c.Grant.Subject}
	s.mu.Lock()
	defer s.mu.Unlock()
	over := func(n, most int) bool { return most > 0 && n >= most }
	if over(s.all, l.Connections) || over(s.addresses[c.Address], l.PerAddress) || !c.Grant.Open() && over(s.subjects[subject], l.PerSubject) {
		return nil, errSeats
	}
	if s.subjects == nil {
		s.subjects, s.addresses = map[[2]string]int{}, map[string]int{}
	}
	s.all++
	s.subjects[subject]++
	s.addresses[c.Address]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.subjects[subject]--; s.subjects[subject] == 0 {
			delete(s.subjects, subject)
		}
		if s.addresses[c.Address]--; s.addresses[c.Address] == 0 {
			delete(s.addresses, c.Address)
		}
	}), nil
}
