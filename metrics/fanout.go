package metrics

import "time"

var (
	descFeeds       = desc("feeds", "Runs that this process follows.")
	descWaiting     = desc("feeds_waiting", "Runs without an entry yet that this process waits for.")
	descSubscribers = desc("subscribers", "Subscribers of feeds.")
	descHeld        = desc("held_bytes", "Memory held for runs, by what: their folds, rings of newest entries, conversations of ended runs, queues of subscribers (which share their entries).", "what")
	descHeldLimit   = desc("held_limit_bytes", "Bound on folds, rings and conversations together: --memory.")
	descEntries     = desc("entries_read_total", "Entries read from runs, once per entry and process.")
	descWithheld    = desc("entries_withheld_total", "Entries that were not sent as published, by reason.", "reason")
	descDeliveries  = desc("deliveries_total", "Entries put into subscribers' queues.")
	descLagged      = desc("subscribers_lagged_total", "Subscribers whose queue overflowed.")
	descFolding     = desc("folding_seconds_total", "Time spent on admitting and folding entries.")
	descTailAge     = desc("tail_age_seconds", "From the XADD of the oldest entry of a batch to its run's feed.")

	descAttach   = desc("attach_seconds", "From an attach, or from when the run was there, to the end of the preamble or catch-up, by its mode.", "mode")
	descFailures = desc("attach_failures_total", "Attaches that ended before that, by reason.", "reason")
	descBrackets = desc("catchups_total", "Preambles and catch-ups in all, those after lag and of next runs too, by mode.", "mode")
	descResets   = desc("resets_total", "Subscribers that were told to start from nothing, by reason.", "reason")
	descStates   = desc("runs_announced_total", "Entries of the registry that this process has read, by the state that they tell of.", "state")

	descKeys    = desc("tail_streams", "Redis streams that are tailed.")
	descShards  = desc("tail_connections", "Redis connections that tail.")
	descFailing = desc("tail_failing", "1 while a tail connection's last read failed.")
	descReadAge = desc("tail_read_age_seconds", "Since the last good read of the tail connection that is furthest behind.")
	descWoken   = desc("tail_streams_woken", "Of them, those that are read by wake-ups instead of blocked reads, by what sends them: keyspace events, or publishers.", "driver")
	descWakeUps = desc("tail_wakeups_total", "Wake-ups for followed runs.")
	descUnwoken = desc("tail_wakeups_lost_total", "Entries that no wake-up told of and a sweep found, seconds late.")
	descDrivers = desc("tail_driver_changes_total", "Times that wake-ups came into use or fell away.")
	descSkipped = desc("registry_skipped_total", "Registry entries that broke the contract.")
)

func (o out) hub(h *Hub) {
	if h == nil {
		return
	}
	o.gauge(descFeeds, float64(h.Feeds))
	o.gauge(descWaiting, float64(h.Waiting))
	o.gauge(descSubscribers, float64(h.Subscribers))
	o.gauge(descHeld, float64(h.Held.Folds), "folds")
	o.gauge(descHeld, float64(h.Held.Rings), "rings")
	o.gauge(descHeld, float64(h.Held.Queues), "queues")
	o.gauge(descHeld, float64(h.Held.Pasts), "conversations")
	o.gauge(descHeldLimit, float64(h.Held.Limit))
	o.counter(descEntries, h.Entries)
	o.counters(descWithheld, h.Withheld)
	o.counter(descDeliveries, h.Deliveries)
	o.counter(descLagged, h.Lagged)
	o.total(descFolding, h.Folding.Seconds())
	o.histogram(descTailAge, h.TailAge)
}

func (o out) attach(a *Attach) {
	if a == nil {
		return
	}
	for mode, h := range a.Seconds {
		o.histogram(descAttach, h, mode)
	}
	o.counters(descFailures, a.Failures)
	o.counters(descBrackets, a.Brackets)
	o.counters(descResets, a.Resets)
	o.counters(descStates, a.Runs)
}

func (o out) tail(t *Tail) {
	if t == nil {
		return
	}
	o.gauge(descKeys, float64(t.Keys))
	o.gauge(descShards, float64(t.Shards))
	o.gauge(descFailing, flag(t.Failing))
	if !t.LastRead.IsZero() {
		o.gauge(descReadAge, time.Since(t.LastRead).Seconds())
	}
	o.gauges(descWoken, t.Woken)
	o.counter(descWakeUps, t.WakeUps)
	o.counter(descUnwoken, t.Lost)
	o.counter(descDrivers, t.Changes)
	o.counter(descSkipped, t.Skipped)
}
