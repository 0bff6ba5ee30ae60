package metrics

var (
	descIngestOpen     = desc("ingest_requests_open", "Ingest requests under way.")
	descIngestRequests = desc("ingest_requests_total", "Ingest requests answered.")
	descIngestEvents   = desc("ingest_events_total", "Events posted, by what became of them.", "result")
	descIngestBytes    = desc("ingest_bytes_total", "Bytes of ingest bodies.")
	descIngestProblems = desc("ingest_problems_total", "Ingest requests answered with a problem, by its code.", "code")

	descBridgeActive  = desc("bridge_runs", "Runs of called agents under way.")
	descBridgeStarted = desc("bridge_runs_started_total", "Runs for which an agent was called.")
	descBridgeRefused = desc("bridge_inputs_refused_total", "Inputs that did not become a run.")
	descBridgeEvents  = desc("bridge_events_total", "Events that called agents sent, by what became of them.", "result")
	descBridgeBytes   = desc("bridge_bytes_total", "Bytes of called agents' answers.")
	descBridgeEnds    = desc("bridge_runs_ended_total", "Runs of called agents that ended, by what ended them.", "reason")

	descActive  = desc("runs_active", "Runs without a known end that this process looks after.")
	descStalled = desc("runs_stalled", "Of them, those whose producer's lease has lapsed.")
	descReaped  = desc("runs_reaped_total", "Runs that this process ended in their producer's stead, by why.", "reason")

	descWritten    = desc("checkpoints_written_total", "Checkpoints of runs that this process wrote.")
	descWrittenB   = desc("checkpoints_written_bytes_total", "Bytes of them, compressed.")
	descRead       = desc("checkpoints_read_total", "Runs that this process took up from a checkpoint.")
	descDamaged    = desc("checkpoints_damaged_total", "Checkpoints that are broken or of an unknown version.")
	descKeepFailed = desc("keep_failed_total", "Checkpoints and expiries that Redis refused or that were cut.")
	descExpired    = desc("runs_expiring_total", "Runs whose expiry this process set.")
	descTrimmed    = desc("entries_trimmed_total", "Entries of runs that this process trimmed behind a checkpoint.")
	descHeadless   = desc("runs_headless_total", "Trimmed runs that this process shows in part, for want of a checkpoint that it can use.")
)

// Labels of what became of an event.
const (
	accepted = "accepted"
	rejected = "rejected"
)

func (o out) ingest(i *Ingest) {
	if i == nil {
		return
	}
	o.gauge(descIngestOpen, float64(i.Open))
	o.counter(descIngestRequests, i.Requests)
	o.counter(descIngestEvents, i.Accepted, accepted)
	o.counter(descIngestEvents, i.Rejected, rejected)
	o.counter(descIngestBytes, i.Bytes)
	o.counters(descIngestProblems, i.Problems)
}

func (o out) bridge(b *Bridge) {
	if b == nil {
		return
	}
	o.gauge(descBridgeActive, float64(b.Active))
	o.counter(descBridgeStarted, b.Started)
	o.counter(descBridgeRefused, b.Refused)
	o.counter(descBridgeEvents, b.Events, accepted)
	o.counter(descBridgeEvents, b.Rejected, rejected)
	o.counter(descBridgeBytes, b.Bytes)
	o.counters(descBridgeEnds, b.Ends)
}

func (o out) reaper(r *Reaper) {
	if r == nil {
		return
	}
	o.gauge(descActive, float64(r.Active))
	o.gauge(descStalled, float64(r.Stalled))
	o.counter(descReaped, r.Lost, "producer_lost")
	o.counter(descReaped, r.Idle, "idle")
}

func (o out) keep(k *Keep) {
	if k == nil {
		return
	}
	o.counter(descWritten, k.Written)
	o.counter(descWrittenB, k.Bytes)
	o.counter(descRead, k.Read)
	o.counter(descDamaged, k.Damaged)
	o.counter(descKeepFailed, k.Failed)
	o.counter(descExpired, k.Expired)
	o.counter(descTrimmed, k.Trimmed)
	o.counter(descHeadless, k.Headless)
}
