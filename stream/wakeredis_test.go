package stream_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
)

// woken is many runs that one tail follows by wake-ups.
type woken struct {
	tail       *stream.Tail
	collectors []*streamtest.Collector
	added      int // entries of each run
}

func wokenRun(i int) stream.RunID { return stream.RunID(fmt.Sprintf("woken-%d", i)) }

func startWoken(t *testing.T, log *stream.Redis, runs int, driver string) *woken {
	t.Helper()
	w := &woken{tail: log.NewTail(stream.TailConfig{})}
	streamtest.RunTail(t, w.tail)
	for i := range runs {
		c := streamtest.NewCollector()
		w.collectors = append(w.collectors, c)
		t.Cleanup(w.tail.Follow(wokenRun(i), stream.ID{}, c.Sink))
	}
	w.await(t, driver)
	return w
}

// await waits until runs are woken by a driver, all of them where it covers all.
func (w *woken) await(t *testing.T, driver string) {
	t.Helper()
	streamtest.Eventually(t, "the driver is "+driver, func() bool {
		h := w.tail.Health()
		return h.Wakes.By == driver && (driver != "keyspace" || h.Wakes.Keys == len(w.collectors)) && (driver != "" || h.Wakes.Keys == 0)
	})
}

// add appends to each run as a plain agent does, or as one that tells of it, and waits until all is there, once.
func (w *woken) add(t *testing.T, client *redis.Client, n int, tells bool) {
	t.Helper()
	for range n {
		w.added++
		pipe := client.Pipeline()
		for i := range w.collectors {
			pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: "agui:run:" + string(wokenRun(i)), Values: []any{"event", strconv.Itoa(w.added)}})
			if tells {
				pipe.Publish(t.Context(), "agui:wake", string(wokenRun(i)))
			}
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, c := range w.collectors {
			c.Wait(t, w.added)
			if got := c.Entries(); len(got) != w.added || string(got[w.added-1].Event) != strconv.Itoa(w.added) || len(c.Errs()) > 0 {
				t.Fatalf("run %d: %d entries of %d, %v", i, len(got), w.added, c.Errs())
			}
		}
	}
}

func TestASubscriptionThatEndsCostsNothingAndComesBack(t *testing.T) {
	t.Parallel()
	s := streamtest.StartRedis(t, "--notify-keyspace-events", "Kt")
	client := s.Client(t)
	w := startWoken(t, connect(t, s.URL()), 150, "keyspace")
	w.add(t, client, 3, false)
	before := w.tail.Health().Wakes.Changes
	for n := range 3 {
		if killed, err := client.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Result(); err != nil || killed == 0 {
			t.Fatal(killed, err)
		}
		w.add(t, client, 3, false) // with, without or in between
		streamtest.Eventually(t, "wake-ups come again", func() bool { return w.tail.Health().Wakes.Changes >= before+2*uint64(n+1) })
		w.await(t, "keyspace")
	}
	w.add(t, client, 3, false)
	if h := w.tail.Health(); !w.tail.Healthy() || h.Wakes.Lost > 0 {
		t.Errorf("%+v", h)
	}
}

func TestAServerThatStopsSendingEventsIsFoundOut(t *testing.T) {
	t.Parallel()
	s := streamtest.StartRedis(t, "--notify-keyspace-events", "Kt")
	client := s.Client(t)
	w := startWoken(t, connect(t, s.URL()), 120, "keyspace")
	w.add(t, client, 1, false)
	if err := client.ConfigSet(t.Context(), "notify-keyspace-events", "").Err(); err != nil {
		t.Fatal(err)
	}
	w.add(t, client, 1, false) // the sweep finds it
	streamtest.Eventually(t, "that is noticed", func() bool { return w.tail.Health().Wakes.Lost > 0 })
	w.await(t, "publish") // which is there, but covers those only that are announced
	w.add(t, client, 2, false)
	if h := w.tail.Health(); h.Wakes.Keys > 0 {
		t.Errorf("%+v", h)
	}
	w.add(t, client, 1, true)
	streamtest.Eventually(t, "runs are woken that are told of", func() bool { return w.tail.Health().Wakes.Keys == 120 })
	w.add(t, client, 2, true)
}

var callsLine = regexp.MustCompile(`(?m)^cmdstat_([^:]+):calls=(\d+)`)

// commands is how many commands of each kind the server has been sent.
func commands(t *testing.T, client *redis.Client) map[string]int {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	calls := make(map[string]int)
	for _, m := range callsLine.FindAllStringSubmatch(info, -1) {
		calls[m[1]], _ = strconv.Atoi(m[2])
	}
	return calls
}

// TestAWokenRunCostsOneReadAnEvent: with 1,000 active runs Redis is asked about once an event, and nothing but writes that
// do nothing and the sweep comes on top of it.
func TestAWokenRunCostsOneReadAnEvent(t *testing.T) {
	t.Parallel()
	for driver, events := range map[string]string{"keyspace": "Kt", "publish": ""} {
		s := streamtest.StartRedis(t, "--notify-keyspace-events", events)
		client := s.Client(t)
		const runs, rounds = 1000, 5
		w := startWoken(t, connect(t, s.URL()), runs, driver)
		w.add(t, client, 2, true)
		streamtest.Eventually(t, "all runs are woken", func() bool { return w.tail.Health().Wakes.Keys == runs })
		before, sweeps := commands(t, client), w.tail.Health()
		w.add(t, client, rounds, true)
		after := commands(t, client)
		reads := after["xrange"] - before["xrange"]
		if blocked := after["xread"] - before["xread"]; blocked > 60 { // sweeps, and the shards that the runs came from, which end
			t.Errorf("%s: %d blocked reads", driver, blocked)
		}
		// A wake-up that comes while its run is read has it read once more. Sweeps look at all runs with a few commands.
		if most := runs * rounds * 3 / 2; reads > most {
			t.Errorf("%s: %d reads for %d events, more than %d", driver, reads, runs*rounds, most)
		}
		if probes := after["expire"] - before["expire"]; probes > runs*rounds/2 {
			t.Errorf("%s: %d probes for %d events", driver, probes, runs*rounds)
		}
		if lost := w.tail.Health().Wakes.Lost - sweeps.Wakes.Lost; lost > 0 {
			t.Errorf("%s: %d lost wake-ups", driver, lost)
		}
		t.Logf("%s: %d events, %d reads, %d probes", driver, runs*rounds, reads, after["expire"]-before["expire"])
	}
}
