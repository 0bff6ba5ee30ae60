package oracle

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(Keep(m)) }

// seedCount is how many seeds are tried: def, or AGUIHUB_SEEDS for a long search.
func seedCount(t *testing.T, def int) int {
	t.Helper()
	text := os.Getenv("AGUIHUB_SEEDS")
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("AGUIHUB_SEEDS: %v", err)
	}
	return n
}

func TestEveryGeneratedStreamIsAcceptedByTheNewestClient(t *testing.T) {
	o, seeds := Start(t), seedCount(t, 300)
	streams := make([]Stream, seeds)
	jobs := make([]Job, seeds)
	for i := range streams {
		streams[i] = Generate(uint64(i))
		jobs[i] = streams[i].Job()
	}
	accepted, types, events, multi := 0, map[string]int{}, 0, 0
	for i, r := range o.ReplayBatch(t, jobs) {
		s := streams[i]
		if s.Runs == nil {
			t.Errorf("seed %d can't be split into runs", i)
		}
		if len(s.Runs) > 1 {
			multi++
		}
		events += len(s.Lines)
		for _, l := range s.Lines {
			var h head
			if err := json.Unmarshal(l, &h); err != nil {
				t.Fatalf("seed %d: %v: %s", i, err, l)
			}
			types[h.Type]++
		}
		if r.OK {
			accepted++
			continue
		}
		t.Errorf("seed %d: event %d of %d: %s: %s\n%s", i, r.At, len(s.Lines), r.Stage, r.Error, s.Lines[max(0, r.At)])
	}
	t.Logf("%d of %d seeds accepted; %d events, %d streams of several runs", accepted, seeds, events, multi)
	for _, typ := range slices.Sorted(maps.Keys(types)) {
		t.Logf("%6d %q", types[typ], typ)
	}
	for _, typ := range Types {
		if types[typ] == 0 {
			t.Errorf("no %s in %d seeds", typ, seeds)
		}
	}
}

func TestEachClientAcceptsWhatIsGeneratedForIt(t *testing.T) {
	o := Start(t)
	for _, c := range []struct {
		name string
		opt  Options
	}{
		{"0.0.59", Options{Version: V059, Legacy: true}},
		{"0.0.57", Options{Version: V057}},
		{"1.0.0 with THINKING events", Options{Legacy: true}},
		{"1.0.0, one plain run", Options{Runs: 1, Plain: true, MaxEvents: 30}},
	} {
		t.Run(c.name, func(t *testing.T) {
			jobs := make([]Job, seedCount(t, 150))
			for i := range jobs {
				s := GenerateWith(uint64(i), c.opt)
				if c.opt.Runs == 1 && len(s.Runs) != 1 {
					t.Errorf("seed %d has %d runs", i, len(s.Runs))
				}
				jobs[i] = s.Job()
				jobs[i].Version, jobs[i].Parse = c.opt.Version, true
			}
			for i, r := range o.ReplayBatch(t, jobs) {
				if !r.OK {
					t.Errorf("seed %d: event %d: %s: %s\n%s", i, r.At, r.Stage, r.Error, jobs[i].Lines[max(0, r.At)])
				}
			}
		})
	}
}

func TestASeedAlwaysMakesTheSameStream(t *testing.T) {
	for seed := range uint64(200) {
		a, b := Generate(seed), Generate(seed)
		if !slices.EqualFunc(a.Lines, b.Lines, bytes.Equal) {
			t.Fatalf("seed %d differs from itself", seed)
		}
		if a.Runs == nil || len(a.Lines) < 3 {
			t.Errorf("seed %d: %d events, %d runs", seed, len(a.Lines), len(a.Runs))
		}
		rng := func() *rand.Rand { return rand.New(rand.NewPCG(seed, 2)) }
		m, n := Mutate(a, rng()), Mutate(b, rng())
		if m.Name != n.Name || !slices.EqualFunc(m.Lines, n.Lines, bytes.Equal) {
			t.Fatalf("seed %d: mutant differs from itself", seed)
		}
		if !slices.EqualFunc(a.Lines, Generate(seed).Lines, bytes.Equal) {
			t.Fatalf("seed %d: Mutate changed its source", seed)
		}
	}
}

func TestGeneratedStreamsHoldTheHardCases(t *testing.T) {
	cases := []struct{ name, pattern string }{
		{"a delta that ends in half a pair", `"delta":"[^"]*\\ud83d"`},
		{"a delta that begins with half a pair", `"delta":"\\ude`},
		{"a line separator", "\u2028"},
		{"raw multi-byte UTF-8", `日本`},
		{"a chunk without id and subagent", `"type":"(TEXT_MESSAGE|TOOL_CALL|REASONING_MESSAGE)_CHUNK","delta":"[^"]*"\}`},
		{"a chunk of a subagent without id", `"type":"(TEXT_MESSAGE|TOOL_CALL|REASONING_MESSAGE)_CHUNK","delta":"[^"]*","subagentRunId"`},
		{"a chunk without delta", `"type":"TEXT_MESSAGE_CHUNK","messageId":"[^"]*"\}`},
		{"arguments cut within a token", `"type":"TOOL_CALL_ARGS","toolCallId":"[^"]*","delta":"[^"]*[a-z]"`},
		{"a result of parts", `"type":"TOOL_CALL_RESULT".*"content":\[\{`},
		{"a result with the id of a message", `"type":"TOOL_CALL_RESULT","messageId":"(msg|call)-`},
		{"a patch that adds", `"delta":\[\{"op":"add"`},
		{"a patch that removes", `"op":"remove"`},
		{"a patch that replaces", `"op":"replace"`},
		{"a patch that moves", `"op":"move"`},
		{"a patch that copies", `"op":"copy"`},
		{"a patch that tests", `"op":"test"`},
		{"an unknown operation", `"op":"inc"`},
		{"an activity's patch", `"patch":\[\{"op"`},
		{"a snapshot that replaces no activity", `"replace":false`},
		{"a snapshot of nothing", `"type":"MESSAGES_SNAPSHOT","messages":\[\]`},
		{"a snapshot with reasoning", `"type":"MESSAGES_SNAPSHOT".*"role":"reasoning"`},
		{"a snapshot with an activity", `"type":"MESSAGES_SNAPSHOT".*"role":"activity"`},
		{"a snapshot that owns activities", `authoritativeActivityTypes`},
		{"a nested subagent", `"parentSubagentRunId"`},
		{"a step of a subagent", `"type":"STEP_STARTED","stepName":"[^"]*","subagentRunId"`},
		{"an interrupt", `"outcome":\{"type":"interrupt"`},
		{"a cancelled run", `"outcome":\{"type":"cancelled"`},
		{"a result of a run", `"type":"RUN_FINISHED".*"result":`},
		{"usage", `"usage":\[`},
		{"a run that resumes", `"resume":\[`},
		{"a run without input", `"type":"RUN_STARTED","threadId":"[^"]*","runId":"[^"]*"\}`},
		{"a run with an earlier conversation", `"type":"RUN_STARTED".*"role":"assistant"`},
		{"a state that is null", `"snapshot":null`},
		{"a null parent", `"parentMessageId":null`},
		{"an encrypted value of a call", `"subtype":"tool-call"`},
		{"metadata of content", `"type":"TEXT_MESSAGE_CONTENT".*"metadata":\{"`},
		{"an unknown property", `"x-trace":`},
		{"an unknown part", `hologram`},
	}
	count, patterns := make([]int, len(cases)), make([]*regexp.Regexp, len(cases))
	for i, c := range cases {
		patterns[i] = regexp.MustCompile(c.pattern)
	}
	afterError, again := 0, 0
	for seed := range uint64(400) {
		s := GenerateWith(seed, Options{Plain: true})
		opened, previous := map[string]bool{}, ""
		for _, l := range s.Lines {
			for i := range cases {
				if patterns[i].Match(l) {
					count[i]++
				}
			}
			var e struct{ Type, MessageID string }
			if err := json.Unmarshal(l, &e); err != nil {
				t.Fatal(err)
			}
			if e.Type == "RUN_STARTED" && previous == "RUN_ERROR" {
				afterError++
			}
			if e.Type == "TEXT_MESSAGE_START" {
				if opened[e.MessageID] {
					again++
				}
				opened[e.MessageID] = true
			}
			previous = e.Type
		}
	}
	for i, c := range cases {
		t.Logf("%6d %s", count[i], c.name)
		if count[i] == 0 {
			t.Errorf("no stream has %s", c.name)
		}
	}
	if t.Logf("%6d runs after an error, %d messages opened again", afterError, again); afterError == 0 || again == 0 {
		t.Error("no run after an error, or no message opened again")
	}
}
