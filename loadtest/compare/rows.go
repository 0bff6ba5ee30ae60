package compare

import (
	"time"

	"github.com/aguihub/aguihub/loadtest/load"
)

// Names of trials that rows share.
const (
	lines = "lines subprotocol"
	bare  = "bare subprotocol"
	peer  = "Centrifugo"
	raw   = "raw TCP"

	peerBinary = "Centrifugo, protobuf"
)

// field makes a party of the rows.
type field struct{ config Config }

func (f field) hub(name string, o load.HubOptions, w load.Workload) trial {
	o.Name, o.Program = name, f.config.Hub
	return trial{name: name, party: load.Hub(o), workload: w}
}

// peer is a trial of the peer, and none where there is no peer.
func (f field) peer(o load.CentrifugoOptions, w load.Workload) []trial {
	if f.config.Centrifugo == "" && f.config.Hub != "" {
		return nil
	}
	o.Program = f.config.Centrifugo
	return []trial{{name: o.Name, party: load.Centrifugo(o), workload: w}}
}

// aside says of trials that no goal is about them.
func aside(trials ...trial) []trial {
	for i := range trials {
		trials[i].once = true
	}
	return trials
}

// subprotocols are the trials of the hub by its two subprotocols.
func (f field) subprotocols(ofLines, ofBare load.Workload) []trial {
	return []trial{f.hub(lines, load.HubOptions{}, ofLines), f.hub(bare, load.HubOptions{Bare: true}, ofBare)}
}

// firehose are the trials of all that hand events on to many, one event or more a write.
func (f field) firehose(w load.Workload) []trial {
	trials := append(f.subprotocols(w, w), f.peer(load.CentrifugoOptions{Name: peer}, w)...)
	trials = append(trials, aside(f.peer(load.CentrifugoOptions{Name: peerBinary, Protobuf: true}, w)...)...)
	return append(trials, trial{name: raw, party: load.RawTCP(raw, f.config.Self), workload: w})
}

// rows are the table of goals.
func rows(config Config) []row {
	f := field{config}
	return []row{
		microRow(), f.fanOut(), f.saturated(), f.latency(), f.memory(), f.idle(), f.redis(), f.reads(), f.attach(), f.deepRecovery(),
	}
}

func hubMicros(r *load.Result) float64     { return r.HubMicros() }
func redisMicros(r *load.Result) float64   { return r.RedisMicros() }
func p99(r *load.Result) float64           { return r.Latency.P99 }
func p50(r *load.Result) float64           { return r.Latency.P50 }
func joinP99(r *load.Result) float64       { return r.Joining.P99 }
func joinP50(r *load.Result) float64       { return r.Joining.P50 }
func askedPerEvent(r *load.Result) float64 { return r.AskedPerEvent() }
func busy(r *load.Result) float64          { return 100 * r.Busy }
func perSecond(r *load.Result) float64     { return float64(r.Deliveries) / r.Seconds }

// cpuPerJoin is the hub's processor time for each who attached while measuring, in milliseconds; what else the hub did
// meanwhile is in it.
func cpuPerJoin(r *load.Result) float64 { return 1000 * r.HubCPU / max(float64(r.Joining.N), 1) }

func perCPUSecond(r *load.Result) float64 {
	if r.HubCPU == 0 {
		return 0
	}
	return float64(r.Deliveries) / r.HubCPU
}

func (f field) fanOut() row {
	w := load.Workload{Rate: 50, Subscribers: 1000, Duration: 4 * time.Second}
	trials := f.firehose(w)
	return row{
		name: "fanout", rounds: 2, unit: "µs", value: hubMicros, trials: trials,
		figure: "CPU of the hub per delivered event, 1 run × 1,000 subscribers, 230-byte events, 50 events/s",
		goals: []goal{
			{text: "lines ≤ 0.65 × Centrifugo", of: lines, over: peer, limit: 0.65},
			{text: "bare ≤ 0.65 × Centrifugo", of: bare, over: peer, limit: 0.65},
			{text: "lines ≤ 1.25 × a bare TCP write", of: lines, over: raw, limit: 1.25},
			{text: "bare ≤ 1.25 × a bare TCP write", of: bare, over: raw, limit: 1.25},
		},
		also: []column{{"p99, ms", p99}, {"machine busy, %", busy}},
	}
}

func (f field) saturated() row {
	w := load.Workload{Window: 1024, Subscribers: 200, Duration: 4 * time.Second}
	trials := f.firehose(w)
	return row{
		name: "saturated", rounds: 2, unit: "/CPU s", value: perCPUSecond, trials: trials,
		figure: "Deliveries per CPU second, 200 subscribers, saturated: 1,024 events under way, published by 64",
		goals: []goal{
			{text: "lines ≥ 3 × Centrifugo", of: lines, over: peer, limit: 3, atLeast: true},
			{text: "lines ≥ 5 × one write per event", of: lines, over: raw, limit: 5, atLeast: true},
			{text: "bare ≥ 3 × one write per event", of: bare, over: raw, limit: 3, atLeast: true},
		},
		also: []column{{"delivered/s", perSecond}, {"machine busy, %", busy}},
	}
}

func (f field) latency() row {
	const one, crowd = "one XREAD reader", "200 XREAD readers"
	w := load.Workload{Rate: 100, Subscribers: 200, Duration: 4 * time.Second}
	judged := w
	judged.Judged = 2
	single := w
	single.Subscribers = 1
	trials := append(f.subprotocols(judged, w), f.peer(load.CentrifugoOptions{Name: peer}, w)...)
	trials = append(trials,
		trial{name: one, party: load.XRead(one), workload: single},
		trial{name: crowd, party: load.XRead(crowd), workload: w},
		trial{name: raw, party: load.RawTCP(raw, f.config.Self), workload: w},
	)
	return row{
		name: "latency", rounds: 3, unit: "ms", value: p99, trials: trials,
		note:   "One XREAD reader is written to once; the last of 200 subscribers waits for 199 writes before its own, so that its bound is a program that writes to as many and does nothing else.",
		figure: "From when an event is due to be published to its receipt, p99, 1 run × 200 subscribers, 100 events/s",
		goals: []goal{
			{text: "lines ≤ Centrifugo", of: lines, over: peer, limit: 1},
			{text: "bare ≤ Centrifugo", of: bare, over: peer, limit: 1},
			{text: "lines ≤ 2 × a bare XREAD reader", of: lines, over: one, limit: 2},
			{text: "lines ≤ 2 × as many XREAD readers", of: lines, over: crowd, limit: 2},
			{text: "lines ≤ a bare TCP writer to as many", of: lines, over: raw, limit: 1, bound: true},
		},
		also: []column{{"p50, ms", p50}, {"publishers late p99, ms", func(r *load.Result) float64 { return r.Late.P99 }}, {"machine busy, %", busy}},
	}
}

// idlers is how many subscribers are attached without an event.
const idlers = 10_000

// memoryRow is the row whose profile is one of memory.
const memoryRow = "memory"

func (f field) memory() row {
	w := load.Workload{Runs: 100, Subscribers: idlers / 100, Settle: true, Warmup: time.Millisecond, Duration: time.Millisecond}
	const tuned = "Centrifugo, small buffers"
	trials := []trial{f.hub(lines, load.HubOptions{}, w)}
	trials = append(trials, f.peer(load.CentrifugoOptions{Name: peer}, w)...)
	trials = append(trials, f.peer(load.CentrifugoOptions{Name: tuned, Tuned: true}, w)...)
	return row{
		name: memoryRow, rounds: 1, unit: "KB", trials: trials,
		value:  func(r *load.Result) float64 { return r.RSSPerSubscriber / (1 << 10) },
		figure: "RSS per idle subscriber, 10,000 of them on 100 runs, after memory is returned, subscriber state included",
		goals: []goal{
			{text: "≤ 10 KB", of: lines, limit: 10},
			{text: "≤ 0.45 × Centrifugo by default", of: lines, over: peer, limit: 0.45},
		},
		also: []column{{"RSS of the process, MB", func(r *load.Result) float64 { return float64(r.RSS) / (1 << 20) }}, {"free, MB", func(r *load.Result) float64 { return float64(r.Free) / (1 << 20) }}, {"attaching, s", func(r *load.Result) float64 { return r.Attaching }}},
		note: "What the process held before the first of them came is taken off, and so is what the Go runtime holds free and has yet to give back. Small buffers are Centrifugo's websocket.use_write_buffer_pool, read_buffer_size 256 and write_buffer_size 512.",
	}
}

func (f field) idle() row {
	const woken, blocked = "hub, keyspace events", "hub, XREAD"
	// One round of pings takes 25 s with both.
	w := load.Workload{Runs: idlers, Subscribers: 1, Warmup: 8 * time.Second, Duration: 25 * time.Second}
	trials := []trial{f.hub(woken, load.HubOptions{Redis: load.KeyspaceEvents}, w)}
	trials = append(trials, f.peer(load.CentrifugoOptions{Name: peer}, w)...)
	trials = append(trials, aside(f.hub(blocked, load.HubOptions{}, w))...)
	redis := func(r *load.Result) float64 { return 100 * r.RedisCPU / r.Seconds }
	return row{
		name: "idle", rounds: 1, unit: "% of a core", trials: trials,
		value:  func(r *load.Result) float64 { return 100 * r.HubCPU / r.Seconds },
		figure: "Idle cost: 10,000 attached runs without events, pings and sweep on",
		goals: []goal{
			{text: "hub ≤ 3 % of a core", of: woken, limit: 3},
			{text: "hub ≤ 0.5 × Centrifugo", of: woken, over: peer, limit: 0.5},
			{text: "Redis ≤ 1 % of a core", value: redis, of: woken, limit: 1},
		},
		also: []column{
			{"Redis, % of a core", redis},
			{"RSS of the process, MB", func(r *load.Result) float64 { return float64(r.RSS) / (1 << 20) }},
			{"Redis commands/s", func(r *load.Result) float64 { return float64(r.Asked) / r.Seconds }},
		},
	}
}

func (f field) redis() row {
	const woken, keyspace, blocked, payload = "hub, woken by PUBLISH", "hub, woken by keyspace events", "hub, XREAD", "XADD and payload in PUB/SUB"
	// The change to wake-ups and the first sweep of the key space, which happen once, are over by the end of the warm-up.
	w := load.Workload{Runs: 5000, Subscribers: 1, Rate: 0.3, Warmup: 7 * time.Second, Duration: 6 * time.Second}
	trials := []trial{
		f.hub(woken, load.HubOptions{Flags: []string{"--tail=wake"}}, w),
		f.hub(keyspace, load.HubOptions{Flags: []string{"--tail=wake"}, Quiet: true, Redis: load.KeyspaceEvents}, w),
		{name: payload, party: load.PubSub(payload), workload: w},
	}
	trials = append(trials, aside(f.hub(blocked, load.HubOptions{Flags: []string{"--tail=xread"}, Quiet: true}, w))...)
	trials = append(trials, aside(f.peer(load.CentrifugoOptions{Name: peer}, w)...)...)
	return row{
		name: "redis", rounds: 2, together: true, unit: "µs", value: redisMicros, trials: trials,
		figure: "Redis CPU per event, 5,000 active runs on one hub, 1,500 events/s",
		note: "The first three run at the same time, each on its own Redis: what a process takes for the same work grows with what others do on its cores, " +
			"and a hub with 5,000 sockets does more of that than a reader of a subscription.",
		goals: []goal{
			{text: "woken by PUBLISH ≤ 1.2 × payload in PUB/SUB and XADD", of: woken, over: payload, limit: 1.2},
			{text: "woken by keyspace events ≤ 1.2 × payload in PUB/SUB and XADD", of: keyspace, over: payload, limit: 1.2},
		},
		also: []column{
			{"Redis, % of a core", func(r *load.Result) float64 { return 100 * r.RedisCPU / r.Seconds }},
			{"commands per event beside what publishes", askedPerEvent},
			{"p50, ms", p50},
			{"p99, ms", p99},
		},
	}
}

func (f field) reads() row {
	const single, thousand = "1 subscriber", "1,000 subscribers"
	w := load.Workload{Rate: 20, Subscribers: 1, Duration: 5 * time.Second}
	crowd := w
	crowd.Subscribers = 1000
	return row{
		name: "reads", rounds: 1, unit: "", value: func(r *load.Result) float64 { return r.ReadsPerEvent() },
		also: []column{
			{"other commands per event", func(r *load.Result) float64 { return r.AskedPerEvent() - r.ReadsPerEvent() }},
			{"all but what publishes", askedPerEvent},
		},
		note:   "Reads are XREAD, XRANGE and the like. The others are the write that does nothing ahead of each page, which a server that became a replica refuses, and what keeps leases and expiries.",
		figure: "Redis reads per event, 1 to 1,000 attached subscribers per run",
		trials: []trial{f.hub(single, load.HubOptions{}, w), f.hub(thousand, load.HubOptions{}, crowd)},
		goals:  []goal{{text: "≤ 1.1 ×", of: thousand, over: single, limit: 1.1}},
	}
}

func (f field) attach() row {
	const long, short, shortPeer = "run of 100,000 events", "run of 100 events", "Centrifugo, 100 events"
	w := load.Workload{Rate: 10, Subscribers: 50, Joins: 200, History: 100, Duration: 5 * time.Second}
	w.Warmup = 2 * time.Second
	deep := w
	deep.History = 100_000
	trials := []trial{f.hub(long, load.HubOptions{}, deep), f.hub(short, load.HubOptions{}, w)}
	trials = append(trials, aside(f.peer(load.CentrifugoOptions{Name: shortPeer, RecoverAll: true}, w)...)...)
	return row{
		name: "attach", rounds: 2, together: true, unit: "ms", value: joinP99, trials: trials,
		figure: "Attach, from when it is due to where its live tail begins, p99, while 200 attach per second (20 KB conversation)",
		goals:  []goal{{text: "100,000 events ≤ 2 × 100 events", of: long, over: short, limit: 2}},
		also:   []column{{"p50, ms", joinP50}, {"hub CPU per attach, ms", cpuPerJoin}, {"machine busy, %", busy}},
		note:   "The first two run at the same time. Centrifugo's subscribers recover the whole history, which for it is the events; the next row is the same with 100,000.",
	}
}

func (f field) deepRecovery() row {
	const ours, theirs = "hub", "Centrifugo, recovering all"
	w := load.Workload{Rate: 10, Subscribers: 1, Joins: 1, History: 100_000, Warmup: time.Second, Duration: 6 * time.Second}
	trials := []trial{f.hub(ours, load.HubOptions{}, w)}
	trials = append(trials, f.peer(load.CentrifugoOptions{Name: theirs, RecoverAll: true}, w)...)
	return row{
		name: "recovery", rounds: 1, unit: "ms", value: joinP50, trials: trials,
		figure: "Attach to a run of 100,000 events, one a second, p50: the conversation beside the same history recovered",
		also:   []column{{"hub CPU per attach, ms", cpuPerJoin}},
		note:   "Centrifugo's answer is one message of many megabytes, for which its client.queue_max_size is raised: with the default of 1 MB it closes the subscriber as too slow.",
	}
}
