package transport

import (
	"net/http"
	"sync"
	"time"

	"github.com/aguihub/aguihub/metrics"
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

// Seats is a reading of who is attached, and of the limits.
func (a *Access) Seats() metrics.Seats {
	s, l := &a.seats, a.config.Limits
	s.mu.Lock()
	defer s.mu.Unlock()
	most := map[string]int{"all": s.all, "subject": 0, "address": 0}
	for subject, n := range s.subjects {
		if subject != ([2]string{}) { // nobody was asked
			most["subject"] = max(most["subject"], n)
		}
	}
	for _, n := range s.addresses {
		most["address"] = max(most["address"], n)
	}
	return metrics.Seats{Taken: most, Limit: map[string]int{"all": l.Connections, "subject": l.PerSubject, "address": l.PerAddress}}
}

// Sit counts the caller in as attached until it calls leave. It fails where that would be one too many.
func (c *Caller) Sit() (leave func(), err error) {
	l, s := c.access.config.Limits, &c.access.seats
	subject := [2]string{c.Grant.Tenant, c.Grant.Subject}
	s.mu.Lock()
	defer s.mu.Unlock()
	over := func(n, most int) bool { return most > 0 && n >= most }
	if over(s.all, l.Connections) || over(s.addresses[c.Address], l.PerAddress) || !c.Grant.Open() && over(s.subjects[subject], l.PerSubject) {
		rejects.Add(rejectConnections)
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
