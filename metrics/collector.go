package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Build is what the build info series says.
type Build struct {
	Version  string
	Revision string
	Go       string
}

// Handler serves all series in the Prometheus formats. read is called once a scrape.
func Handler(build Build, read Reader) http.Handler {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&collector{read: read, build: build},
	)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// collector is a prometheus.Collector over one reading a scrape, so that the series of a scrape belong together.
type collector struct {
	read  Reader
	build Build
}

// transportLabel is "websocket" or "sse".
const transportLabel = "transport"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("aguihub_"+name, help, labels, nil)
}

var (
	descBuild = desc("build_info", "Always 1; the labels say what was built.", "version", "revision", "goversion")
	descReady = desc("ready", "1 while the hub can serve: /readyz answers 200.")

	descFeeds       = desc("feeds", "Runs that this process follows.")
	descWaiting     = desc("feeds_waiting", "Runs without an entry yet that this process waits for.")
	descSubscribers = desc("subscribers", "Subscribers of feeds.")
	descHeld        = desc("feeds_held_bytes", "Memory held by feeds: folds, rings and queues.")
	descEntries     = desc("entries_read_total", "Entries read from runs, once per entry and process.")
	descWithheld    = desc("entries_withheld_total", "Entries that were not sent as published, by reason.", "reason")
	descDeliveries  = desc("deliveries_total", "Entries put into subscribers' queues.")
	descLagged      = desc("subscribers_lagged_total", "Subscribers whose queue overflowed.")

	descWritten    = desc("checkpoints_written_total", "Checkpoints of runs that this process wrote.")
	descRead       = desc("checkpoints_read_total", "Runs that this process took up from a checkpoint.")
	descDamaged    = desc("checkpoints_damaged_total", "Checkpoints that are broken or of an unknown version.")
	descKeepFailed = desc("keep_failed_total", "Checkpoints and expiries that Redis refused or that were cut.")
	descExpired    = desc("runs_expiring_total", "Runs whose expiry this process set.")

	descKeys    = desc("tail_streams", "Redis streams that are tailed.")
	descShards  = desc("tail_connections", "Redis connections that tail.")
	descFailing = desc("tail_failing", "1 while a tail connection's last read failed.")
	descAge     = desc("tail_read_age_seconds", "Since the last good read of the tail connection that is furthest behind.")
	descSkipped = desc("registry_skipped_total", "Registry entries that broke the contract.")

	descOpen    = desc("connections", "Attached connections.", transportLabel)
	descTaken   = desc("connections_accepted_total", "Connections that were taken.", transportLabel)
	descLeft    = desc("connections_left_total", "Connections that ended otherwise than by the hub: the subscriber left, or it broke.", transportLabel)
	descClosed  = desc("connections_closed_total", "Connections that the hub ended, by why.", transportLabel, "reason")
	descSent    = desc("entries_sent_total", "Entries handed to connections.", transportLabel)
	descBytes   = desc("sent_bytes_total", "Bytes sent to subscribers.", transportLabel)
	descTold    = desc("entries_skipped_total", "Entries of which a subscriber was told that something is wrong.", transportLabel)
	descIgnored = desc("inbound_ignored_total", "Messages of subscribers that had no effect.", transportLabel)

	descLookups = desc("lookups_total", "Look-up requests.")

	descActive  = desc("runs_active", "Runs without a known end that this process looks after.")
	descStalled = desc("runs_stalled", "Of them, those whose producer's lease has lapsed.")
	descReaped  = desc("runs_reaped_total", "Runs that this process ended in their producer's stead, by why.", "reason")

	descIngestOpen     = desc("ingest_requests_open", "Ingest requests under way.")
	descIngestRequests = desc("ingest_requests_total", "Ingest requests answered.")
	descIngestEvents   = desc("ingest_events_total", "Events posted, by what became of them.", "result")
	descIngestBytes    = desc("ingest_bytes_total", "Bytes of ingest bodies.")
	descBridgeActive   = desc("bridge_runs", "Runs of called agents under way.")
	descBridgeStarted  = desc("bridge_runs_started_total", "Runs for which an agent was called.")
	descBridgeRefused  = desc("bridge_inputs_refused_total", "Inputs that did not become a run.")
	descBridgeEvents   = desc("bridge_events_total", "Events that called agents sent, by what became of them.", "result")
	descBridgeBytes    = desc("bridge_bytes_total", "Bytes of called agents' answers.")
	descBridgeEnds     = desc("bridge_runs_ended_total", "Runs of called agents that ended, by what ended them.", "reason")
	descIngestProblems = desc("ingest_problems_total", "Ingest requests answered with a problem, by its code.", "code")
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descBuild, descReady, descFeeds, descWaiting, descSubscribers, descHeld, descEntries, descWithheld,
		descDeliveries, descLagged, descKeys, descShards, descFailing, descAge, descSkipped, descOpen, descTaken, descLeft,
		descClosed, descSent, descBytes, descTold, descIgnored, descIngestOpen, descIngestRequests, descIngestEvents,
		descIngestBytes, descIngestProblems, descLookups, descActive, descStalled, descReaped,
		descWritten, descRead, descDamaged, descKeepFailed, descExpired,
		descBridgeActive, descBridgeStarted, descBridgeRefused, descBridgeEvents, descBridgeBytes, descBridgeEnds,
	} {
		ch <- d
	}
}

// out sends constant metrics to one scrape.
type out chan<- prometheus.Metric

func (o out) gauge(d *prometheus.Desc, v float64, labels ...string) {
	o <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (o out) counter(d *prometheus.Desc, v uint64, labels ...string) {
	o <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	r, o := c.read(), out(ch)
	o.gauge(descBuild, 1, c.build.Version, c.build.Revision, c.build.Go)
	o.gauge(descReady, flag(r.Ready))
	if h := r.Hub; h != nil {
		o.gauge(descFeeds, float64(h.Feeds))
		o.gauge(descWaiting, float64(h.Waiting))
		o.gauge(descSubscribers, float64(h.Subscribers))
		o.gauge(descHeld, float64(h.HeldBytes))
		o.counter(descEntries, h.Entries)
		for reason, n := range h.Withheld {
			o.counter(descWithheld, n, reason)
		}
		o.counter(descDeliveries, h.Deliveries)
		o.counter(descLagged, h.Lagged)
	}
	if t := r.Tail; t != nil {
		o.gauge(descKeys, float64(t.Keys))
		o.gauge(descShards, float64(t.Shards))
		o.gauge(descFailing, flag(t.Failing))
		if !t.LastRead.IsZero() {
			o.gauge(descAge, time.Since(t.LastRead).Seconds())
		}
		o.counter(descSkipped, t.Skipped)
	}
	o.counter(descLookups, r.Lookups)
	wire(r.WebSocket, "websocket", o)
	wire(r.SSE, "sse", o)
	if b := r.Bridge; b != nil {
		o.gauge(descBridgeActive, float64(b.Active))
		o.counter(descBridgeStarted, b.Started)
		o.counter(descBridgeRefused, b.Refused)
		o.counter(descBridgeEvents, b.Events, "accepted")
		o.counter(descBridgeEvents, b.Rejected, "rejected")
		o.counter(descBridgeBytes, b.Bytes)
		for reason, n := range b.Ends {
			o.counter(descBridgeEnds, n, reason)
		}
	}
	if p := r.Reaper; p != nil {
		o.gauge(descActive, float64(p.Active))
		o.gauge(descStalled, float64(p.Stalled))
		o.counter(descReaped, p.Lost, "producer_lost")
		o.counter(descReaped, p.Idle, "idle")
	}
	if k := r.Keep; k != nil {
		o.counter(descWritten, k.Written)
		o.counter(descRead, k.Read)
		o.counter(descDamaged, k.Damaged)
		o.counter(descKeepFailed, k.Failed)
		o.counter(descExpired, k.Expired)
	}
	if i := r.Ingest; i != nil {
		o.gauge(descIngestOpen, float64(i.Open))
		o.counter(descIngestRequests, i.Requests)
		o.counter(descIngestEvents, i.Accepted, "accepted")
		o.counter(descIngestEvents, i.Rejected, "rejected")
		o.counter(descIngestBytes, i.Bytes)
		for code, n := range i.Problems {
			o.counter(descIngestProblems, n, code)
		}
	}
}

func wire(w *Wire, name string, o out) {
	if w == nil {
		return
	}
	o.gauge(descOpen, float64(w.Open), name)
	o.counter(descTaken, w.Accepted, name)
	o.counter(descLeft, w.Left, name)
	o.counter(descSent, w.Deliveries, name)
	o.counter(descBytes, w.Bytes, name)
	o.counter(descTold, w.Skipped, name)
	o.counter(descIgnored, w.Ignored, name)
	for reason, n := range w.Closed {
		o.counter(descClosed, n, name, reason)
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
