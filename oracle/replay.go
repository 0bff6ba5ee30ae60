package oracle

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"unicode/utf8"
)

// The versions of @ag-ui/client that the worker holds.
const (
	V1   = "1.0.0"
	V059 = "0.0.59"
	V057 = "0.0.57"
)

// batchSize bounds one request, so that a batch's answers are never all in flight as one line.
const batchSize = 256

// Initial is what a client holds before the first event. A nil field is the client's own default: no messages, state {}, nothing pending.
type Initial struct {
	Messages          json.RawMessage `json:"messages,omitempty"`
	State             json.RawMessage `json:"state,omitempty"`
	PendingInterrupts json.RawMessage `json:"pendingInterrupts,omitempty"`
}

// Job is one replay.
type Job struct {
	Version  string   // a constant of this package; "" means V1
	Lines    [][]byte // events as they stand on a wire, valid or not
	Initial  *Initial // nil: a client that starts from nothing
	Run      bool     // runAgent in place of connectAgent, thus through the middlewares
	Parse    bool     // check each event by the version's schemas first, as the HttpAgent of V059 and V057 does; V1 checks by itself
	Hash     bool     // give SHA-256 of the canonical texts in place of them
	Warnings bool     // collect what the client warned of
}

// Snapshot is what a client holds: canonical JSON (see Canonical), or its SHA-256 in hex. A text is "" where a value has a cycle.
type Snapshot struct {
	Messages string `json:"messages"`
	State    string `json:"state"`
	Pending  string `json:"pending"`
}

// Result is where a replay ended.
type Result struct {
	Snapshot

	OK       bool     `json:"ok"`
	Error    string   `json:"error"`
	Stage    string   `json:"stage"` // utf8, json, schema, chunks, verify or other: what refused
	At       int      `json:"at"`    // index of the refused event; −1 if none was
	Warnings []string `json:"warnings"`
}

// Verdict is a refused event.
type Verdict struct {
	At    int    `json:"at"`
	Error string `json:"error"`
	Stage string `json:"stage"` // as in Result
}

// PatchCase is a JSON Patch and the document it is for, both as JSON.
type PatchCase struct{ Doc, Patch []byte }

// PatchResult is what the reducer made of a PatchCase.
type PatchResult struct {
	Doc   string `json:"doc"`   // canonical; unchanged where the patch was skipped, "" where the result has a cycle or the document was refused
	Error string `json:"error"` // why it was skipped or refused; "" if it applied
	Fatal bool   `json:"fatal"` // refused as malformed: the client's run ends
}

func (j Job) request() map[string]any {
	r := map[string]any{"version": V1, "lines": wire(j.Lines)}
	if j.Version != "" {
		r["version"] = j.Version
	}
	if j.Initial != nil {
		r["initial"] = j.Initial
	}
	for name, on := range map[string]bool{"run": j.Run, "parse": j.Parse, "hash": j.Hash, "warnings": j.Warnings} {
		if on {
			r[name] = true
		}
	}
	return r
}

// wire makes lines fit for a JSON request: text, or base64 where a line isn't UTF-8.
func wire(lines [][]byte) []any {
	out := make([]any, len(lines))
	for i, l := range lines {
		if utf8.Valid(l) {
			out[i] = string(l)
		} else {
			out[i] = map[string]string{"b64": base64.StdEncoding.EncodeToString(l)}
		}
	}
	return out
}

// Replay feeds a job to the client, one event a turn of its event loop. What came before a refused event is in the result.
func (o *Oracle) Replay(tb testing.TB, job Job) Result {
	tb.Helper()
	r := job.request()
	r["op"] = "replay"
	var out Result
	o.must(tb, r, &out)
	return out
}

// ReplayBatch replays many jobs, in order, with few round trips.
func (o *Oracle) ReplayBatch(tb testing.TB, jobs []Job) []Result {
	tb.Helper()
	out := make([]Result, 0, len(jobs))
	for part := range slices.Chunk(jobs, batchSize) {
		requests := make([]map[string]any, len(part))
		for i, j := range part {
			requests[i] = j.request()
		}
		var results []Result
		o.must(tb, map[string]any{"op": "batch", "jobs": requests}, &results)
		out = append(out, results...)
	}
	if len(out) != len(jobs) {
		tb.Fatalf("oracle: batch: %d results for %d jobs", len(out), len(jobs))
	}
	return out
}

// Prefixes replays a job once and tells what the client holds after each event: index k is after event k. The list ends before a refused event.
func (o *Oracle) Prefixes(tb testing.TB, job Job) ([]Snapshot, Result) {
	tb.Helper()
	r := job.request()
	r["op"] = "prefixes"
	var out struct {
		Result

		Prefixes []Snapshot `json:"prefixes"`
	}
	o.must(tb, r, &out)
	return out.Prefixes, out.Result
}

// FirstRejected tells the first event that the client refuses; nil if it takes them all.
func (o *Oracle) FirstRejected(tb testing.TB, job Job) *Verdict {
	tb.Helper()
	if v := o.verdicts(tb, job, false); len(v) > 0 {
		return &v[0]
	}
	return nil
}

// Verdicts tells every event that the client refuses when each refused one is left out before the next is looked for: what a hub
// must withhold. It replays once per refused event.
func (o *Oracle) Verdicts(tb testing.TB, job Job) []Verdict {
	tb.Helper()
	return o.verdicts(tb, job, true)
}

func (o *Oracle) verdicts(tb testing.TB, job Job, all bool) []Verdict {
	tb.Helper()
	r := job.request()
	maps.Copy(r, map[string]any{"op": "verdicts", "all": all})
	var out struct {
		Rejected []Verdict `json:"rejected"`
	}
	o.must(tb, r, &out)
	return out.Rejected
}

// Patch applies each patch to its document as the reducer does: STATE_SNAPSHOT, then STATE_DELTA, through the whole pipeline of version
// ("" means V1).
func (o *Oracle) Patch(tb testing.TB, version string, cases []PatchCase) []PatchResult {
	tb.Helper()
	if version == "" {
		version = V1
	}
	out := make([]PatchResult, 0, len(cases))
	for part := range slices.Chunk(cases, batchSize) {
		texts := make([]map[string]string, len(part))
		for i, c := range part {
			texts[i] = map[string]string{"doc": string(c.Doc), "patch": string(c.Patch)}
		}
		var results []PatchResult
		o.must(tb, map[string]any{"op": "patch", "version": version, "cases": texts}, &results)
		out = append(out, results...)
	}
	if len(out) != len(cases) {
		tb.Fatalf("oracle: patch: %d results for %d cases", len(out), len(cases))
	}
	return out
}

// Diff tells how two snapshots differ, "" if they are the same for a user: state null and {} are one, as are reasoning messages that differ
// in their ids only if legacy is set (for THINKING_* events the client makes ids up). Both must be texts, not hashes, for null, {} and legacy.
func Diff(want, got Snapshot, legacy bool) string {
	for _, p := range []struct{ name, want, got string }{
		{"messages", withoutIDs(want.Messages, legacy), withoutIDs(got.Messages, legacy)},
		{"state", orEmpty(want.State), orEmpty(got.State)},
		{"pending", want.Pending, got.Pending},
	} {
		if p.want != p.got {
			return fmt.Sprintf("%s differ at byte %d\nwant %s\ngot  %s", p.name, common(p.want, p.got), p.want, p.got)
		}
	}
	return ""
}

func orEmpty(state string) string {
	if state == "null" {
		return "{}"
	}
	return state
}

// withoutIDs blanks the ids of reasoning messages.
func withoutIDs(messages string, legacy bool) string {
	var list []map[string]json.RawMessage
	if !legacy || json.Unmarshal([]byte(messages), &list) != nil {
		return messages
	}
	for _, m := range list {
		if string(m["role"]) == `"reasoning"` {
			m["id"] = json.RawMessage(`"-"`)
		}
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return messages
	}
	text, err := Canonical(raw)
	if err != nil {
		return messages
	}
	return text
}

func common(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
