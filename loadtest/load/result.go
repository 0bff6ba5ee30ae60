package load

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// Result is what a workload came to.
type Result struct {
	Party    string   `json:"party"`
	Workload Workload `json:"workload"`

	Seconds    float64 `json:"seconds"`    // measured
	Events     int64   `json:"events"`     // published meanwhile
	Deliveries int64   `json:"deliveries"` // events that subscribers got meanwhile
	Attached   int     `json:"attached"`   // before, the judged ones not counted
	Attaching  float64 `json:"attaching"`  // seconds that took
	Resting    int     `json:"resting"`    // of them, slow readers

	Latency Times `json:"latency"` // from when an event was due to when a subscriber that doesn't rest had it, in milliseconds
	Joining Times `json:"joining"` // from when a subscriber was due to where its live tail began
	Late    Times `json:"late"`    // how far behind their schedule publishers were

	HubCPU           float64 `json:"hubCPU"`           // seconds
	RedisCPU         float64 `json:"redisCPU"`         // seconds
	Busy             float64 `json:"busy"`             // what hubs, Redis, publishers and subscribers took of all cores
	RSS              int     `json:"rss"`              // of the hubs, with everybody attached, in bytes
	Free             int     `json:"free"`             // of it, what their runtimes had yet to give back to the system; 0 where that wasn't waited for
	RSSPerSubscriber float64 `json:"rssPerSubscriber"` // without what was held before anybody attached, and without Free

	Commands map[string]int `json:"commands"` // that Redis was sent meanwhile
	InThem   map[string]int `json:"inThem"`   // microseconds that Redis spent in each, without reading, parsing and writing
	Asked    int            `json:"asked"`    // of them, those that don't publish
	Reads    int            `json:"reads"`    // of those, the ones that only read

	Snapshots  int64    `json:"snapshots"` // that stood for events, after lag
	Judged     int      `json:"judged"`    // subscribers whom package checker judged
	Violations []string `json:"violations"`

	Profile []byte `json:"-"`
}

func (r *Result) fill(m *measuring, before, after look) {
	r.Seconds = after.at.Sub(before.at).Seconds()
	r.Events, r.Deliveries = after.published-before.published, after.tally.got-before.tally.got
	r.HubCPU, r.RedisCPU = (after.hub - before.hub).Seconds(), (after.redis - before.redis).Seconds()
	all := r.HubCPU + r.RedisCPU + (after.self - before.self).Seconds()
	r.Busy = all / r.Seconds / float64(runtime.NumCPU())
	r.Commands = since(before.calls, after.calls)
	r.InThem = since(before.micros, after.micros)
	r.Asked, r.Reads = asked(r.Commands)
	r.Latency, r.Joining, r.Late = m.latency.times(), m.joining.times(), m.late.times()
}

// per is a over b, and 0 where that says nothing.
func per(a float64, b int64) float64 {
	if b == 0 {
		return 0
	}
	return a / float64(b)
}

const micro = 1e6

// HubMicros is the hub's processor time for a delivery, in microseconds: seconds for a million deliveries.
func (r *Result) HubMicros() float64 { return per(r.HubCPU*micro, r.Deliveries) }

// RedisMicros is Redis' processor time for an event, in microseconds.
func (r *Result) RedisMicros() float64 { return per(r.RedisCPU*micro, r.Events) }

// AskedPerEvent is how many commands Redis answered for an event, those that published it not counted.
func (r *Result) AskedPerEvent() float64 { return per(float64(r.Asked), r.Events) }

// ReadsPerEvent is how many reads Redis answered for an event.
func (r *Result) ReadsPerEvent() float64 { return per(float64(r.Reads), r.Events) }

// String is the result for people.
func (r *Result) String() string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-34s", name)
		fmt.Fprintf(&b, format+"\n", args...)
	}
	times := func(t Times) string {
		return fmt.Sprintf("p50 %.2f · p99 %.2f · p99.9 %.2f · max %.2f ms (%d)", t.P50, t.P99, t.P999, t.Max, t.N)
	}
	row("party", "%s", r.Party)
	row("subscribers", "%d on %d runs and %d hubs, %d of them slow; attached in %.1f s", r.Attached, r.Workload.Runs, r.Workload.Hubs, r.Resting, r.Attaching)
	row("published", "%d events in %v, %.0f a second", r.Events, time.Duration(r.Seconds*float64(time.Second)).Round(time.Millisecond), float64(r.Events)/r.Seconds)
	row("delivered", "%d events, %.0f a second", r.Deliveries, float64(r.Deliveries)/r.Seconds)
	row("from due to received", "%s", times(r.Latency))
	if r.Joining.N > 0 {
		row("from due to attached", "%s", times(r.Joining))
	}
	row("publishers behind schedule", "%s", times(r.Late))
	row("CPU seconds a million deliveries", "hub %.2f · Redis %.2f", r.HubMicros(), per(r.RedisCPU*micro, r.Deliveries))
	row("machine busy", "%.0f %%", 100*r.Busy)
	row("RSS of the hubs", "%.1f MB, %.1f KB a subscriber", float64(r.RSS)/(1<<20), r.RSSPerSubscriber/(1<<10))
	row("Redis for an event", "%.1f µs, %.2f commands beside what publishes, %.2f of them reads", r.RedisMicros(), r.AskedPerEvent(), r.ReadsPerEvent())
	row("snapshots after lag", "%d", r.Snapshots)
	row("judged", "%d subscribers; %d violations", r.Judged, len(r.Violations))
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "  %s\n", v)
	}
	return b.String()
}
