package oracle

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lines makes a stream of one event a line.
func lines(text string) [][]byte { return splitLines([]byte(text)) }

const started = `{"type":"RUN_STARTED","threadId":"t","runId":"r"}` + "\n"

func TestReplayTellsWhereTheClientEnds(t *testing.T) {
	o := Start(t)
	r := o.Replay(t, Job{
		Lines: lines(started + `{"type":"TEXT_MESSAGE_START","messageId":"m"}
{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"\ud83d"}
{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"\ude00 \u2028"}
{"type":"TEXT_MESSAGE_END","messageId":"m"}
{"type":"STATE_DELTA","delta":[{"op":"add","path":"/b","value":1.0}]}
{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"ask"}]}}`),
		Initial: &Initial{State: json.RawMessage(`{"a":null}`)},
	})
	want := Result{OK: true, At: -1, Snapshot: Snapshot{
		Messages: "[{\"content\":\"😀 \u2028\",\"id\":\"m\",\"role\":\"assistant\"}]", State: `{"a":null,"b":1}`, Pending: `[{"id":"i","reason":"ask"}]`,
	}}
	if d := cmp.Diff(want, r); d != "" {
		t.Error(d)
	}
}

func TestRestoredInterruptsDoNotStopAClientFromConnecting(t *testing.T) {
	o := Start(t)
	for _, version := range []string{V1, V059, V057} {
		r := o.Replay(t, Job{
			Version: version, Lines: lines(started + `{"type":"RUN_ERROR","message":"x"}`),
			Initial: &Initial{PendingInterrupts: json.RawMessage(`[{"id":"i","reason":"ask"}]`)},
		})
		if !r.OK || r.Pending != `[{"id":"i","reason":"ask"}]` {
			t.Errorf("%s: %+v", version, r)
		}
	}
}

func TestVerdictsNameTheEventAndTheStageThatRefusedIt(t *testing.T) {
	o := Start(t)
	for _, c := range []struct{ name, line, stage string }{
		{"bytes that are no UTF-8", "{\"type\":\"RAW\",\"event\":\"\xff\"}", "utf8"},
		{"text that is no JSON", "{", "json"},
		{"a malformed field", `{"type":"CUSTOM","name":7,"value":1}`, "schema"},
		{"a chunk that continues nothing", `{"type":"TEXT_MESSAGE_CHUNK","delta":"x"}`, "chunks"},
		{"content of a message that isn't open", `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x"}`, "verify"},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := Job{Lines: lines(started + c.line + "\n" + `{"type":"RAW","event":1}` + "\n" + c.line + "\n" + `{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`)}
			first := o.FirstRejected(t, job)
			if first == nil || first.At != 1 || first.Stage != c.stage || first.Error == "" {
				t.Errorf("first: %+v", first)
			}
			if all := o.Verdicts(t, job); len(all) != 2 || all[0] != *first || all[1].At != 3 {
				t.Errorf("all: %+v", all)
			}
		})
	}
}

func TestPrefixesEndWhereTheReplayEnds(t *testing.T) {
	o := Start(t)
	for seed := range uint64(25) {
		s := Generate(seed)
		texts, end := o.Prefixes(t, s.Job())
		if len(texts) != len(s.Lines) {
			t.Fatalf("seed %d: %d prefixes of %d events", seed, len(texts), len(s.Lines))
		}
		if d := Diff(end.Snapshot, texts[len(texts)-1], false); d != "" {
			t.Errorf("seed %d: %s", seed, d)
		}
		hashed := s.Job()
		hashed.Hash = true
		hashes, _ := o.Prefixes(t, hashed)
		for k, p := range texts {
			digest, err := Digest([]byte(p.Messages))
			if err != nil || digest != hashes[k].Messages {
				t.Fatalf("seed %d: event %d: hash of messages %s, want %s, %v", seed, k, digest, hashes[k].Messages, err)
			}
		}
	}
}

func TestPatchIsTheReducersPatch(t *testing.T) {
	o := Start(t)
	for i, c := range []struct {
		doc, patch, want string
		failed, fatal    bool
	}{
		{`{"a":[1]}`, `[{"op":"add","path":"/a/00","value":9}]`, `{"a":[9,1]}`, false, false},
		{`{"a":1}`, `[{"op":"add","path":"/b","value":1},{"op":"test","path":"/a","value":2}]`, `{"a":1}`, true, false},
		{`{"a":1}`, `[{"op":"replace","path":"a","value":1}]`, `{"a":1}`, true, true},
		{`{"a":1}`, `[{"op":"move","from":"","path":"/self"}]`, ``, true, false},
		{`{"a":1}`, `[{"op":"inc","path":"/a"},{"op":"add","path":"/b","value":1}]`, `{"a":1,"b":1}`, false, false},
		{`5`, `[{"op":"add","path":"/a","value":1}]`, `5`, false, false},
		{`null`, `[{"op":"add","path":"","value":[1.0]}]`, `[1]`, false, false},
	} {
		// Between two others, that a fatal case is seen not to touch them.
		around := PatchCase{[]byte(`{"x":1}`), []byte(`[{"op":"remove","path":"/x"}]`)}
		got := o.Patch(t, V1, []PatchCase{around, {[]byte(c.doc), []byte(c.patch)}, around})
		if r := got[1]; r.Doc != c.want || (r.Error != "") != c.failed || r.Fatal != c.fatal {
			t.Errorf("%d: %+v", i, r)
		}
		if got[0].Doc != "{}" || got[2].Doc != "{}" {
			t.Errorf("%d: neighbours %+v", i, got)
		}
	}
}

// jsonText is any JSON, oddly written.
func jsonText(seed uint64) []byte {
	g := &gen{rng: rand.New(rand.NewPCG(seed, 7))}
	return []byte(g.value(5))
}

func TestCanonicalIsTheWorkersText(t *testing.T) {
	o := Start(t)
	docs := []string{
		"1e400", "-1e400", "5e-324", "1e-7", "0.000001", "123456789.125e-2", "1e20", "1.7976931348623157e308", `{"\ud83d":1,"\uffff":2,"😀":3,"a":4,"a":5}`, `"\u0000\u001f\u007f\/\b"`,
		`{"__proto__":{"a":1},"b":2}`, ` [ 1 , { } , [ ] ] `, `"\ude00\ud83d"`, `{"10":1,"9":2}`, "-0.0",
	}
	for i := range uint64(1500) {
		docs = append(docs, string(jsonText(i)))
	}
	cases := make([]PatchCase, len(docs))
	for i, d := range docs {
		cases[i] = PatchCase{[]byte(d), []byte("[]")}
	}
	for i, r := range o.Patch(t, V1, cases) {
		if got, err := Canonical(cases[i].Doc); err != nil || got != r.Doc {
			t.Errorf("%s\ngo     %s %v\nclient %s %s", docs[i], got, err, r.Doc, r.Error)
		}
	}
	for _, bad := range []string{"", "{", "01", "\"\xff\"", "1 2", "[1,]", "nul"} {
		if got, err := Canonical([]byte(bad)); err == nil {
			t.Errorf("%q is %s", bad, got)
		}
	}
}

func TestWithoutItsRefusedEventsEveryMutantIsAccepted(t *testing.T) {
	o := Start(t)
	stages := map[string]int{}
	for seed := range uint64(150) {
		s := Mutate(GenerateWith(seed, Options{MaxEvents: 40}), rand.New(rand.NewPCG(seed, 1)))
		refused := map[int]bool{}
		for _, v := range o.Verdicts(t, s.Job()) {
			refused[v.At] = true
			stages[v.Stage]++
		}
		job := s.Job()
		job.Lines = nil
		for i, l := range s.Lines {
			if !refused[i] {
				job.Lines = append(job.Lines, l)
			}
		}
		if r := o.Replay(t, job); !r.OK {
			t.Errorf("seed %d, %s: event %d: %s", seed, s.Name, r.At, r.Error)
		}
	}
	t.Logf("refused at %v", stages)
}

func TestTheCorpusMeetsTheVerdictsOfItsIndex(t *testing.T) {
	if !CorpusPresent() {
		Corpus(t) // says so, or fails
		return
	}
	raw, err := os.ReadFile(filepath.Join(corpusDir(), "INDEX.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for row := range strings.SplitSeq(string(raw), "\n") {
		if f := strings.Split(row, "\t"); len(f) > 5 {
			want[f[0]] = f[5]
		}
	}
	o := Start(t)
	streams := Corpus(t)
	var jobs []Job
	for _, s := range streams {
		jobs = append(jobs, s.Job())
		jobs[len(jobs)-1].Hash = true
	}
	ok := 0
	for i, r := range o.ReplayBatch(t, jobs) {
		name := streams[i].Name
		if said, listed := want[name]; !listed || (said == "ok") != r.OK {
			t.Errorf("%s: index says %q, the client: %v, event %d, %s", name, said, r.OK, r.At, r.Error)
		}
		if r.OK {
			ok++
		}
	}
	t.Logf("%d streams, %d accepted whole", len(streams), ok)
}
