package oracle

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Stream is a sequence of events, one JSON object a line.
type Stream struct {
	Name    string
	Lines   [][]byte
	Runs    []Run    // the lines by run; nil if they can't be split, see SplitRuns
	Initial *Initial // what the client is to hold before: the state of the first run's input, which the client that sent it has
	Legacy  bool     // holds THINKING_* events: compare without the ids of reasoning messages
}

// Run is the part of a stream from one RUN_STARTED to the next.
type Run struct {
	RunID, ThreadID, ParentRunID string

	First int      // index of its RUN_STARTED in the stream
	Lines [][]byte // shared with the stream
}

// Job is the replay of the whole stream by the newest client.
func (s Stream) Job() Job { return Job{Lines: s.Lines, Initial: s.Initial} }

type head struct {
	Type        string          `json:"type"`
	RunID       json.RawMessage `json:"runId"`
	ThreadID    json.RawMessage `json:"threadId"`
	ParentRunID json.RawMessage `json:"parentRunId"`
	Input       *struct {
		State json.RawMessage `json:"state"`
	} `json:"input"`
}

// NewStream makes a stream of lines, which it keeps: splits them into runs, finds the state that the first run began with.
func NewStream(name string, lines [][]byte) Stream {
	s := Stream{Name: name, Lines: lines, Runs: SplitRuns(lines)}
	for i, l := range lines {
		var h head
		if json.Unmarshal(l, &h) != nil {
			continue
		}
		s.Legacy = s.Legacy || strings.HasPrefix(h.Type, "THINKING")
		if i == 0 && h.Input != nil && len(h.Input.State) > 0 && string(h.Input.State) != "null" {
			s.Initial = &Initial{State: h.Input.State}
		}
	}
	return s
}

// SplitRuns cuts a stream before each RUN_STARTED. It gives nil if the first line is none, if one isn't JSON, if a run lacks an id or a
// thread, or if two runs share an id.
func SplitRuns(lines [][]byte) []Run {
	var runs []Run
	seen := map[string]bool{}
	for i, l := range lines {
		var h head
		if json.Unmarshal(l, &h) != nil {
			return nil
		}
		if h.Type == "RUN_STARTED" {
			id, ok := stringOf(h.RunID)
			thread, ok2 := stringOf(h.ThreadID)
			if !ok || !ok2 || seen[id] {
				return nil
			}
			seen[id] = true
			parent, _ := stringOf(h.ParentRunID)
			runs = append(runs, Run{RunID: id, ThreadID: thread, ParentRunID: parent, First: i})
		}
		if len(runs) == 0 {
			return nil
		}
		last := &runs[len(runs)-1]
		last.Lines = lines[last.First : i+1 : i+1]
	}
	return runs
}

func stringOf(raw json.RawMessage) (string, bool) {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}

// corpusDir is the corpus of recorded streams: AGUIHUB_CORPUS, else ../shared/corpus beside the repository; "" if there is none.
func corpusDir() string {
	dir := os.Getenv("AGUIHUB_CORPUS")
	if dir == "" {
		root, err := repoRoot()
		if err != nil {
			return ""
		}
		dir = filepath.Join(root, "..", "shared", "corpus")
	}
	if !exists(filepath.Join(dir, "streams")) {
		return ""
	}
	return dir
}

// CorpusPresent tells whether Corpus has recorded streams to give.
func CorpusPresent() bool { return corpusDir() != "" }

// standIns is how many generated streams take the corpus' place: about as many as it holds.
const standIns = 290

// Corpus gives the recorded streams, sorted by name. Where the corpus isn't present the test's log says so and gets generated streams
// in its place; in CI its absence ends the test.
func Corpus(tb testing.TB) []Stream {
	tb.Helper()
	dir := corpusDir()
	if dir == "" {
		const said = "the corpus of recorded streams is not present (AGUIHUB_CORPUS, else ../shared/corpus)"
		if os.Getenv("CI") == "true" {
			tb.Fatalf("oracle: %s", said)
		}
		tb.Logf("oracle: %s: %d generated streams are used instead", said, standIns)
		out := make([]Stream, standIns)
		for i := range out {
			out[i] = Generate(uint64(i))
		}
		return out
	}
	names, err := filepath.Glob(filepath.Join(dir, "streams", "*.jsonl"))
	if err != nil || len(names) == 0 {
		tb.Fatalf("oracle: corpus: no streams in %s: %v", dir, err)
	}
	slices.Sort(names)
	out := make([]Stream, 0, len(names))
	for _, n := range names {
		raw, err := os.ReadFile(n)
		if err != nil {
			tb.Fatalf("oracle: corpus: %v", err)
		}
		s := NewStream(strings.TrimSuffix(filepath.Base(n), ".jsonl"), splitLines(raw))
		if side, err := os.ReadFile(strings.TrimSuffix(n, ".jsonl") + ".initial.json"); err == nil {
			s.Initial = &Initial{}
			if err := json.Unmarshal(side, s.Initial); err != nil {
				tb.Fatalf("oracle: corpus: %s: %v", n, err)
			}
		}
		out = append(out, s)
	}
	return out
}

func splitLines(raw []byte) [][]byte {
	raw = bytes.TrimPrefix(raw, []byte("\ufeff"))
	var out [][]byte
	for l := range bytes.SplitSeq(raw, []byte("\n")) {
		if l = bytes.TrimSpace(l); len(l) > 0 {
			out = append(out, bytes.Clone(l))
		}
	}
	return out
}
