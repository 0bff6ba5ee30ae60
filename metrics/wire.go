package metrics

import "time"

// transportLabel is "websocket" or "sse".
const transportLabel = "transport"

var (
	descOpen     = desc("connections", "Attached connections.", transportLabel)
	descTaken    = desc("connections_accepted_total", "Connections that were taken.", transportLabel)
	descLeft     = desc("connections_left_total", "Connections that ended otherwise than by the hub: the subscriber left, or it broke.", transportLabel)
	descClosed   = desc("connections_closed_total", "Connections that the hub ended, by why.", transportLabel, "reason")
	descSent     = desc("entries_sent_total", "Entries handed to connections.", transportLabel)
	descMessages = desc("messages_sent_total", "WebSocket messages or SSE events sent.", transportLabel)
	descWrites   = desc("writes_total", "Writes to connections, of live entries, preambles, pings and answers: what is queued goes out together.", transportLabel)
	descBytes    = desc("sent_bytes_total", "Bytes sent to subscribers.", transportLabel)
	descSkips    = desc("entries_skipped_total", "Entries of which a subscriber was told that something is wrong.", transportLabel)
	descIgnored  = desc("inbound_ignored_total", "Messages of subscribers that had no effect.", transportLabel)
	descDeflated = desc("deflations_total", "Parts of preambles and catch-ups that were deflated, each once for all WebSocket clients who got it.")
	descSaved    = desc("deflation_saved_bytes_total", "Bytes that weren't sent to WebSocket clients since what they got was deflated.")
	descAge      = desc("delivery_age_seconds", "From the XADD of the oldest live entry of a write to the write's end.", transportLabel)
)

func (o out) wire(w *Wire, name string) {
	if w == nil {
		return
	}
	o.gauge(descOpen, float64(w.Open), name)
	o.counter(descTaken, w.Accepted, name)
	o.counter(descLeft, w.Left, name)
	o.counter(descSent, w.Deliveries, name)
	o.counter(descMessages, w.Messages, name)
	o.counter(descWrites, w.Writes, name)
	o.counter(descBytes, w.Bytes, name)
	o.counter(descSkips, w.Skipped, name)
	o.counter(descIgnored, w.Ignored, name)
	o.counters(descClosed, w.Closed, name)
	o.histogram(descAge, w.Age, name)
}

// since is the time since t in seconds.
func since(t time.Time) float64 { return time.Since(t).Seconds() }
