package oracle

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"
)

// Network is a worker, js/network.mjs, whose official clients subscribe to hubs. All methods, and those of its subscriptions, may be called
// at once by any goroutine and answer with errors, so that they need not be called by a test's own.
type Network struct{ worker *Oracle }

// StartNetwork starts a worker, which ends with the test.
func StartNetwork(tb testing.TB) *Network {
	tb.Helper()
	w, err := launch("network.mjs")
	if err != nil {
		tb.Fatalf("oracle: network: %v", err)
	}
	tb.Cleanup(w.stop)
	return &Network{w}
}

// Wire is how a client subscribes.
type Wire string

// The wires that a worker knows: WebSocket by ag-ui.v1.json, and fetch with server-sent events.
const (
	WebSocket Wire = "ws"
	SSE       Wire = "sse"
)

// Subscribe says who subscribes to what.
type Subscribe struct {
	Base    string // http://host:port
	Target  string // runs/ID or threads/ID, escaped
	Wire    Wire
	Version string        // a constant of this package
	Quiet   time.Duration // the past has come when nothing came for so long
	Last    string        // of a thread: the run with whose terminal event the subscription ends itself
}

// Subscription is a client at its hub.
type Subscription struct {
	Past [][]byte // the events that came as the past

	network *Network
	handle  int64
}

// Arrived is where a subscription ended.
type Arrived struct {
	Snapshot

	OK       bool     `json:"ok"`
	Error    string   `json:"error"`
	Stage    string   `json:"stage"`    // transport, or as in Result
	Code     int      `json:"code"`     // the close code, 1000 for the end of an SSE body; 0 where the client left
	Received int      `json:"received"` // events, those of the past too
	Early    int      `json:"early"`    // events of the tail that were taken for the past
	Late     []string `json:"late"`     // events that came after the past and before the tail
	Hash     string   `json:"hash"`     // HashLines of the tail
}

// Attach subscribes and waits until the past has come.
func (n *Network) Attach(s Subscribe) (*Subscription, error) {
	request := map[string]any{
		"op": "attach", "base": s.Base, "target": s.Target, "wire": s.Wire, "version": s.Version, "quiet": s.Quiet.Milliseconds(),
	}
	if s.Last != "" {
		request["last"] = s.Last
	}
	var out struct {
		Handle int64    `json:"handle"`
		Past   []string `json:"past"`
	}
	if err := n.worker.call(request, &out); err != nil {
		return nil, err
	}
	sub := &Subscription{network: n, handle: out.Handle}
	for _, line := range out.Past {
		sub.Past = append(sub.Past, []byte(line))
	}
	return sub, nil
}

// End waits for the end of the subscription. tail is how many events are to come after the past. It must be called once, and no method after.
func (s *Subscription) End(tail int) (Arrived, error) {
	var out Arrived
	err := s.network.worker.call(map[string]any{"op": "end", "handle": s.handle, "tail": tail}, &out)
	return out, err
}

// Leave ends the subscription once it has got at least more events after its past, or when it seems that they don't
// come; End then tells what the client held.
func (s *Subscription) Leave(more int) error {
	var out struct{}
	return s.network.worker.call(map[string]any{"op": "leave", "handle": s.handle, "more": more}, &out)
}

// Try is Replay for goroutines that aren't a test's own.
func (o *Oracle) Try(job Job) (Result, error) {
	r := job.request()
	r["op"] = "replay"
	var out Result
	err := o.call(r, &out)
	return out, err
}

// HashLines is a hash of lines in their order.
func HashLines(lines [][]byte) string {
	h := sha256.New()
	for _, l := range lines {
		h.Write(l)
		h.Write([]byte{'\n'})
	}
	return hex.EncodeToString(h.Sum(nil))
}
