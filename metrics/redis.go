package metrics

var (
	descCalls     = desc("redis_calls_total", "Commands sent to Redis, by what the client is for.", "client")
	descCallErrs  = desc("redis_errors_total", "Of them, those that failed, by kind.", "client", "kind")
	descDialled   = desc("redis_connections_opened_total", "Connections that were made to Redis.", "client")
	descPool      = desc("redis_connections", "Connections to Redis, by what the client is for and whether they are in use.", "client", "state")
	descCallTimes = desc("redis_call_seconds", "How long commands took; a pipeline counts as one.", "client")

	descUsed    = desc("redis_memory_used_bytes", "Memory that Redis uses; of several servers the one that is fullest.")
	descLimit   = desc("redis_memory_limit_bytes", "Its maxmemory; 0 is no limit.")
	descPolicy  = desc("redis_eviction_policy", "Always 1; the label is what Redis does when its memory is full. Only noeviction loses nothing.", "policy")
	descEvicted = desc("redis_evicted_keys_total", "Keys that Redis has thrown away for want of memory, since it started.")
	descClock   = desc("redis_clock_ahead_seconds", "How far Redis' clock is ahead of this machine's: entry ids are Redis' time, ages are measured by both.")
	descTold    = desc("redis_info_age_seconds", "Since Redis last told of its memory.")
)

// policies are those that Redis knows; another one counts as "other", so that a server can't make labels.
var policies = map[string]bool{
	"noeviction": true, "allkeys-lru": true, "allkeys-lfu": true, "allkeys-random": true, "volatile-lru": true, "volatile-lfu": true,
	"volatile-random": true, "volatile-ttl": true, "allkeys-lrm": true, "volatile-lrm": true,
}

func (o out) redis(r *Redis) {
	if r == nil {
		return
	}
	for name, c := range r.Clients {
		o.counter(descCalls, c.Calls, name)
		o.counters(descCallErrs, c.Errors, name)
		o.counter(descDialled, c.Dialled, name)
		o.gauge(descPool, float64(c.Idle), name, "idle")
		o.gauge(descPool, float64(c.Open-c.Idle), name, "busy")
		o.histogram(descCallTimes, c.Seconds, name)
	}
	s := r.Server
	if s == nil {
		return
	}
	o.gauge(descUsed, float64(s.Used))
	o.gauge(descLimit, float64(s.Limit))
	policy := s.Policy
	if !policies[policy] {
		policy = "other"
	}
	o.gauge(descPolicy, 1, policy)
	o.counter(descEvicted, s.Evicted)
	o.gauge(descClock, s.ClockAhead.Seconds())
	o.gauge(descTold, since(s.Told))
}
