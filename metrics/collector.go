package metrics

import (
	"net/http"
	"slices"

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

// Handler serves all series in the Prometheus formats. Each reader is called once a scrape. There is one a tenant: where
// there are several, or the one has a name, the series have the label tenant.
func Handler(build Build, readers map[string]Reader) http.Handler {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	for tenant, read := range readers {
		var to prometheus.Registerer = registry
		if tenant != "" || len(readers) > 1 {
			to = prometheus.WrapRegistererWith(prometheus.Labels{"tenant": tenant}, registry)
		}
		to.MustRegister(&collector{read: read, build: build})
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// collector is a prometheus.Collector over one reading a scrape, so that the series of a scrape belong together.
type collector struct {
	read  Reader
	build Build
}

// described is every series of this package, as desc has made them.
var described []*prometheus.Desc

// desc makes a series. Only variables of this package may call it.
func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("aguihub_"+name, help, labels, nil)
	described = append(described, d)
	return d
}

var (
	descBuild    = desc("build_info", "Always 1; the labels say what was built.", "version", "revision", "goversion")
	descReady    = desc("ready", "1 while the hub can serve: /readyz answers 200.")
	descLookups  = desc("lookups_total", "Look-up requests.")
	descSeats    = desc("seats", "Attached connections that count against a limit: in all, and of the subject and the address that has most.", "scope")
	descSeatsMax = desc("seats_limit", "That limit; 0 is none.", "scope")
	descRejects  = desc("rejects_total", "What was refused since a limit was reached, by the limit.", "reason")
	descProblems = desc("problems_total", "Requests answered with a problem document, by its code.", "code")
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range described {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	r, o := c.read(), out(ch)
	o.gauge(descBuild, 1, c.build.Version, c.build.Revision, c.build.Go)
	o.gauge(descReady, flag(r.Ready))
	o.counter(descLookups, r.Lookups)
	o.counters(descProblems, r.Problems)
	o.counters(descRejects, r.Rejects)
	if r.Seats != nil {
		o.gauges(descSeats, r.Seats.Taken)
		o.gauges(descSeatsMax, r.Seats.Limit)
	}
	o.hub(r.Hub)
	o.attach(r.Attach)
	o.tail(r.Tail)
	o.redis(r.Redis)
	o.wire(r.WebSocket, "websocket")
	if r.WebSocket != nil {
		o.counter(descDeflated, r.WebSocket.Deflations)
		o.counter(descSaved, r.WebSocket.Saved)
	}
	o.wire(r.SSE, "sse")
	o.ingest(r.Ingest)
	o.bridge(r.Bridge)
	o.reaper(r.Reaper)
	o.keep(r.Keep)
}

// out sends constant metrics to one scrape.
type out chan<- prometheus.Metric

func (o out) gauge(d *prometheus.Desc, v float64, labels ...string) {
	o <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (o out) counter(d *prometheus.Desc, v uint64, labels ...string) {
	o.total(d, float64(v), labels...)
}

// total is a counter of something that isn't counted in ones, such as seconds.
func (o out) total(d *prometheus.Desc, v float64, labels ...string) {
	o <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

// gauges has one gauge for each name.
func (o out) gauges(d *prometheus.Desc, values map[string]int) {
	for name, n := range values {
		o.gauge(d, float64(n), name)
	}
}

// counters has one counter for each name, as the last label.
func (o out) counters(d *prometheus.Desc, counts map[string]uint64, labels ...string) {
	for name, n := range counts {
		o.counter(d, n, append(slices.Clip(labels), name)...)
	}
}

func (o out) histogram(d *prometheus.Desc, h *Histogram, labels ...string) {
	if h == nil {
		return
	}
	count, sum, buckets := h.read()
	o <- prometheus.MustNewConstHistogram(d, count, sum, buckets, labels...)
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
