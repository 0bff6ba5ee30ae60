package oracle

import (
	"encoding/json"
	"fmt"
	"testing"
)

// HTTPAgents is a worker, js/httpagent.mjs, that runs agents over HTTP with the official HttpAgent. Its methods may be called at once, each
// from the goroutine of the test whose tb it is given.
type HTTPAgents struct{ worker *Oracle }

// StartHTTPAgents launches the worker, which ends with the test.
func StartHTTPAgents(tb testing.TB) *HTTPAgents {
	tb.Helper()
	w, err := launch("httpagent.mjs")
	if err != nil {
		tb.Fatalf("oracle: %v", err)
	}
	tb.Cleanup(w.stop)
	return &HTTPAgents{w}
}

// HTTPJob is one HttpAgent that runs some inputs, one after another.
type HTTPJob struct {
	Version  string // V1 or V059
	URL      string
	ThreadID string
	Initial  *Initial // PendingInterrupts can't be given
	Turns    []HTTPTurn
}

// HTTPTurn is one input. Interrupts that are open before it are answered.
type HTTPTurn struct {
	RunID      string          `json:"runId"`
	Messages   json.RawMessage `json:"messages,omitempty"`   // added before the run, but those whose ids the agent has
	Resume     json.RawMessage `json:"resume,omitempty"`     // in place of an answer to each open interrupt
	LeaveAfter int             `json:"leaveAfter,omitempty"` // events after which the request is broken off; 0: never
}

// HTTPResult is where an HttpAgent ended.
type HTTPResult struct {
	Snapshot

	Turns []struct {
		OK       bool   `json:"ok"`
		Error    string `json:"error"`
		Status   int    `json:"status"` // of HTTP, where it was an error
		Events   int    `json:"events"`
		RunError string `json:"runError"` // code of a RUN_ERROR, or its message
	} `json:"turns"`
}

// Run does a job.
func (h *HTTPAgents) Run(tb testing.TB, job HTTPJob) HTTPResult {
	tb.Helper()
	request := map[string]any{"op": "run", "version": job.Version, "url": job.URL, "threadId": job.ThreadID, "turns": job.Turns}
	if job.Initial != nil {
		request["messages"], request["state"] = job.Initial.Messages, job.Initial.State
	}
	var r HTTPResult
	h.worker.must(tb, request, &r)
	for _, text := range []*string{&r.Messages, &r.State, &r.Pending} {
		canonical, err := Canonical([]byte(*text))
		if err != nil {
			tb.Fatalf("oracle: %v", fmt.Errorf("what a client holds: %w", err))
		}
		*text = canonical
	}
	return r
}

// Encoded is an event in the protobuf binding.
type Encoded struct {
	Frame []byte `json:"frame"` // with its length in front; nil where the encoder or the decoder refused
	Event string `json:"event"` // what the official decoder makes of it, as JSON
	Error string `json:"error"`
}

// Proto encodes events as the official encoder does.
func (h *HTTPAgents) Proto(tb testing.TB, lines [][]byte) []Encoded {
	tb.Helper()
	texts := make([]string, len(lines))
	for i, line := range lines {
		texts[i] = string(line)
	}
	var out []Encoded
	h.worker.must(tb, map[string]any{"op": "proto", "lines": texts}, &out)
	return out
}
