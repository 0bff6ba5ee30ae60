package transport_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/transport"
)

func TestRatesAreOfAnAddressAndBounded(t *testing.T) {
	synctest.Test(t, rates) // where the clock stands still, however slow this machine
}

func rates(t *testing.T) {
	t.Helper()
	a := transport.NewAccess(transport.AccessConfig{Rates: transport.Rates{Attaches: 1, IngestEvents: 1, IngestBytes: 1}}, zap.NewNop())
	from := func(address string) (c *transport.Caller) {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = address
		a.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			c = transport.CallerOf(r.Context())
		})).ServeHTTP(httptest.NewRecorder(), r)
		return c
	}
	before := transport.Rejects()
	refused := func(err error) bool {
		return err != nil && transport.ErrorFor(err).Status == http.StatusTooManyRequests && transport.ErrorFor(err).RetryAfter > 0
	}
	for i, address := range []string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3", "192.0.2.2:1", "[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1"} {
		if err := from(address).Come(); refused(err) != (i == 2 || i == 6) {
			t.Errorf("attach %d, from %s: %v", i, address, err)
		}
	}
	c := from("192.0.2.3:1")
	if err := c.Post(3, 0); !refused(err) {
		t.Errorf("three events at once: %v", err)
	}
	if err := c.Post(2, 0); err != nil {
		t.Error(err)
	}
	if err := c.Post(0, 8<<20); err != nil {
		t.Errorf("an event of 8 MiB doesn't pass: %v", err)
	}
	if err := c.Post(0, 1<<20); !refused(err) {
		t.Errorf("a MiB more: %v", err)
	}
	// Addresses beyond what is kept share one measure: memory stays, and the limit holds.
	last := 0
	for i := range 20_000 {
		if from(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255)).Come() != nil {
			last++
		}
	}
	if last < 9_000 {
		t.Errorf("only %d of 10,000 more addresses than are kept were refused", last)
	}
	after := transport.Rejects()
	if after["attach_rate"]-before["attach_rate"] != uint64(last+2) || after["ingest_rate"]-before["ingest_rate"] != 2 {
		t.Errorf("counted %v, before %v", after, before)
	}
}
