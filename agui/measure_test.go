package agui_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/oracle"
)

var (
	sweep     = flag.Bool("sweep", os.Getenv("AGUIHUB_SWEEP") != "", "attach at every k of every stream, and more generated streams")
	firstSeed = flag.Uint64("seed", 1, "first seed of the generated streams")
)

// The rule (I4, and the promise of an attach): the official client, fed with the preamble as of entry k and the tail
// after it, ends equal to one that watched from the first event.
func TestAttachAtAnyEntryEndsEqualToWatching(t *testing.T) {
	o := oracle.Start(t)
	corpus := oracle.Corpus(t)
	generated := uint64(40)
	if *sweep {
		generated = 200
	}
	for _, version := range []string{oracle.V1, oracle.V059, oracle.V057} {
		t.Run(version, func(t *testing.T) {
			m := measure{oracle: o, version: version, rng: rand.New(rand.NewPCG(*firstSeed, 2))}
			streams := append(slices.Clone(corpus), handmade()...)
			for seed := range generated {
				s := oracle.GenerateWith(*firstSeed+seed, oracle.Options{Version: version})
				s.Name = fmt.Sprintf("generated-%d", *firstSeed+seed)
				streams = append(streams, s)
			}
			for _, s := range streams {
				for _, withInput := range []bool{false, true} {
					m.stream(t, s, withInput)
				}
			}
			m.flush(t)
			t.Logf("%d streams, %d attaches compared; %d streams that this client can't watch; %d attaches with a tool "+
				"call open (0.0.57 only); read otherwise by this client than by 1.0.0: %v; owner conflicts: %v",
				m.streams, m.attaches, m.unwatchable, m.openCalls, m.otherwise, m.conflicts)
			for _, name := range m.conflicts {
				stream, _, _ := strings.Cut(name, " ")
				if _, known := contradicting[stream]; !known {
					t.Errorf("%s: an id has two owners, and no snapshot brings a client there", name)
				}
			}
			if m.attaches == 0 {
				t.Fatal("nothing was compared")
			}
		})
	}
}

// handmade are streams that the others hold too seldom.
func handmade() []oracle.Stream {
	lines := func(text string) [][]byte { return bytes.Split([]byte(strings.TrimSpace(text)), []byte("\n")) }
	return []oracle.Stream{
		// A result repeats the id of a message, and a snapshot makes the two one, whose call goes on.
		oracle.NewStream("twins", lines(`
{"type":"RUN_STARTED","threadId":"t","runId":"r"}
{"type":"TOOL_CALL_START","toolCallId":"c1","toolCallName":"n","parentMessageId":"m"}
{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c0","content":"x"}
{"type":"TOOL_CALL_ARGS","toolCallId":"c1","delta":"{"}
{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"m","role":"tool","toolCallId":"c0","content":"x"},{"id":"m","role":"assistant","toolCalls":[{"id":"c1","type":"function","function":{"name":"n","arguments":"{"}}]}]}
{"type":"TOOL_CALL_ARGS","toolCallId":"c1","delta":"}"}
{"type":"TOOL_CALL_END","toolCallId":"c1"}
{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`)),
		// A call of a subagent's user message, which the verifier lets inherit and the reducer puts into a message of its own.
		oracle.NewStream("inherited", lines(`
{"type":"RUN_STARTED","threadId":"t","runId":"r"}
{"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"n"}
{"type":"TEXT_MESSAGE_START","messageId":"m","role":"user","subagentRunId":"s"}
{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n","parentMessageId":"m"}
{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"{}"}
{"type":"TEXT_MESSAGE_END","messageId":"m","subagentRunId":"s"}
{"type":"TOOL_CALL_END","toolCallId":"c"}
{"type":"SUBAGENT_FINISHED","subagentRunId":"s"}
{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`)),
		// Parts in the form of clients before 1.0.0, which each client takes as its version does.
		oracle.NewStream("legacy parts", lines(`
{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"threadId":"t","runId":"r","state":null,"tools":[],"context":[],"forwardedProps":{},"messages":[{"id":"u","role":"user","content":[{"type":"text","text":"look"},{"type":"binary","mimeType":"image/png","data":"AA=="},{"type":"binary","mimeType":"application/pdf","url":"http://h/p","filename":"p"}]}]}}
{"type":"TEXT_MESSAGE_START","messageId":"m"}
{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a"}
{"type":"TEXT_MESSAGE_END","messageId":"m"}
{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n","parentMessageId":"m"}
{"type":"TOOL_CALL_END","toolCallId":"c"}
{"type":"TOOL_CALL_RESULT","messageId":"o","toolCallId":"c","content":"x"}
{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`)),
		// Opened again without its tag, then dropped: its owner goes on with the tag.
		oracle.NewStream("dropped", lines(`
{"type":"RUN_STARTED","threadId":"t","runId":"r"}
{"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"n"}
{"type":"TEXT_MESSAGE_START","messageId":"m","subagentRunId":"s"}
{"type":"TEXT_MESSAGE_END","messageId":"m"}
{"type":"TEXT_MESSAGE_START","messageId":"m"}
{"type":"MESSAGES_SNAPSHOT","messages":[]}
{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x","subagentRunId":"s"}
{"type":"TEXT_MESSAGE_END","messageId":"m","subagentRunId":"s"}
{"type":"SUBAGENT_FINISHED","subagentRunId":"s"}
{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`)),
	}
}

// contradicting names the streams that use an id under two owners, with how: attaches to them may be impossible. The
// generator makes none by itself; in the corpus there is none.
var contradicting = map[string]string{}

// asWritten names the streams that older clients read otherwise than 1.0.0 does, and yet to the same end wherever they
// attach, since a hub restates it as it was written: 1.0.0 makes media of parts of type binary, older ones leave them.
var asWritten = map[string]bool{"legacy parts": true, "dotnet-step08_multimodalmessages-withinput": true}

// attribution matches what the client says of an event whose subagent isn't the owner.
var attribution = regexp.MustCompile(`subagentRunId '.*' does not match|is owned by`)

type measure struct {
	oracle  *oracle.Oracle
	version string
	rng     *rand.Rand

	jobs  []oracle.Job
	cases []attachCase

	streams, attaches, openCalls, unwatchable int
	otherwise, conflicts                      []string // named exceptions
}

type attachCase struct {
	name   string
	k      int
	want   oracle.Snapshot
	legacy bool

	conflict bool       // see agui.OwnerConflict
	watched  oracle.Job // what a watcher had seen by then
}

// published is a stream as a hub has it: runs, each with its entries and what is sent of them.
type published struct {
	runs [][]agui.Entry
	sent [][][][]byte // by run and entry
}

// publish cuts a stream into runs and says what is sent of each. Streams that can't be cut are one run.
func publish(s oracle.Stream, input []byte) published {
	var p published
	parts := s.Runs
	if parts == nil {
		parts = []oracle.Run{{Lines: s.Lines}}
	}
	for i, part := range parts {
		run := agui.NewRun(nil, agui.RunConfig{})
		var entries []agui.Entry
		var sent [][][]byte
		for j, line := range part.Lines {
			en := agui.Entry{Event: line}
			if i == 0 && j == 0 {
				en.Input = input
			}
			entries = append(entries, en)
			v := run.Apply(en)
			if v.Restart { // subscribers get a reset: all begins anew
				entries, sent = entries[:0], sent[:0]
				entries = append(entries, en)
			}
			sent = append(sent, sentOf(v))
		}
		p.runs, p.sent = append(p.runs, entries), append(p.sent, sent)
	}
	return p
}

func sentOf(v agui.Verdict) [][]byte {
	out := append([][]byte{}, v.Closings...)
	switch {
	case v.Instead != nil:
		out = append(out, v.Instead)
	case v.Send:
		out = append(out, v.Event)
	}
	return out
}

// stream queues the attaches of one stream.
func (m *measure) stream(t *testing.T, s oracle.Stream, withInput bool) {
	t.Helper()
	var input []byte
	initial := s.Initial
	if withInput {
		if input = userInput(s); input == nil {
			return
		}
		initial = &oracle.Initial{Messages: memberOf(input, "messages"), State: memberOf(input, "state")}
	}
	p := publish(s, input)
	for _, run := range p.sent[:len(p.sent)-1] {
		if len(run[len(run)-1]) == 0 || !ends(run[len(run)-1]) { // the next run starts beside it: held by a hub
			m.unwatchable++
			return
		}
	}
	var all [][]byte
	for _, run := range p.sent {
		for _, events := range run {
			all = append(all, events...)
		}
	}
	if len(all) == 0 {
		return
	}
	watched := m.oracle.Replay(t, oracle.Job{Version: m.version, Lines: all, Initial: initial})
	if !watched.OK {
		if m.version == oracle.V1 {
			t.Errorf("%s: what is sent is rejected at %d: %s", s.Name, watched.At, watched.Error)
		}
		m.unwatchable++
		return
	}
	if !m.reads(t, s, all, initial, watched.Snapshot) {
		return
	}
	m.streams++
	m.attach(t, s, p, initial, watched.Snapshot)
}

// reads says whether this client, watching, reads the stream as 1.0.0 does. A hub restates the past as 1.0.0 reads it,
// since it can't know who asks; where an older client's own reading differs, its two ways needn't end equal.
func (m *measure) reads(t *testing.T, s oracle.Stream, all [][]byte, initial *oracle.Initial, own oracle.Snapshot) bool {
	t.Helper()
	if m.version == oracle.V1 || asWritten[s.Name] {
		return true
	}
	newest := m.oracle.Replay(t, oracle.Job{Lines: all, Initial: initial})
	if newest.OK && oracle.Diff(newest.Snapshot, own, s.Legacy) != "" {
		if !slices.Contains(m.otherwise, s.Name) {
			m.otherwise = append(m.otherwise, s.Name)
		}
		return false
	}
	return true
}

func (m *measure) attach(t *testing.T, s oracle.Stream, p published, initial *oracle.Initial, want oracle.Snapshot) {
	t.Helper()
	total := 0
	for _, run := range p.runs {
		total += len(run)
	}
	chosen := func(int) bool { return true }
	if total > 60 && !*sweep {
		few := map[int]bool{1: true, total: true}
		for len(few) < 10 {
			few[1+m.rng.IntN(total)] = true
		}
		chosen = func(k int) bool { return few[k] }
	}
	var base *agui.Conversation
	k := 0
	for i, entries := range p.runs {
		run := agui.NewRun(base, agui.RunConfig{})
		for j, en := range entries {
			run.Apply(en)
			if k++; !run.Started() && !run.Ended() || !chosen(k) {
				continue
			}
			if m.version == oracle.V057 && run.View().HasOpenCalls() {
				m.openCalls++
				continue
			}
			tail := slices.Concat(p.sent[i][j+1:]...)
			for _, later := range p.sent[i+1:] {
				tail = append(tail, slices.Concat(later...)...)
			}
			if agui.LostCall(run.View()) {
				m.conflicts = append(m.conflicts, fmt.Sprintf("%s k=%d", s.Name, k))
				continue
			}
			lines := append(preamble(run.View(), i > 0), tail...)
			m.jobs = append(m.jobs, oracle.Job{Version: m.version, Lines: lines})
			m.cases = append(m.cases, attachCase{
				name: s.Name, k: k, want: want, legacy: s.Legacy, conflict: agui.OwnerConflict(run, tail),
				watched: oracle.Job{Version: m.version, Lines: p.until(i, j), Initial: initial},
			})
			if len(m.jobs) >= 200 {
				m.flush(t)
			}
		}
		base = run.Conversation()
	}
}

// ends says whether the events end with a terminal one.
func ends(events [][]byte) bool {
	var e agui.Event
	return e.Parse(events[len(events)-1]) == nil && e.Type.Terminal()
}

func preamble(v *agui.View, onThread bool) [][]byte {
	p := v.Preamble()
	var out [][]byte
	if onThread {
		out = append(out, p.Pending...)
	}
	for _, part := range [][][]byte{p.Start, p.Past, p.Passing, p.Lanes, p.Terminal} {
		out = append(out, part...)
	}
	return out
}

func (m *measure) flush(t *testing.T) {
	t.Helper()
	for i, got := range m.oracle.ReplayBatch(t, m.jobs) {
		c := m.cases[i]
		m.attaches++
		if !got.OK && c.conflict && attribution.MatchString(got.Error) {
			m.conflicts = append(m.conflicts, fmt.Sprintf("%s k=%d", c.name, c.k))
		} else if !got.OK {
			t.Errorf("%s %s k=%d: rejected at %d: %s", m.version, c.name, c.k, got.At, got.Error)
		} else if diff := oracle.Diff(c.want, got.Snapshot, c.legacy); diff != "" && !m.otherwiseAt(t, c) {
			t.Errorf("%s %s k=%d: %s\n%s", m.version, c.name, c.k, diff, bytes.Join(m.jobs[i].Lines, []byte("\n")))
		}
	}
	m.jobs, m.cases = m.jobs[:0], m.cases[:0]
}

// otherwiseAt says whether this client, watching, held something else at k than 1.0.0 does.
func (m *measure) otherwiseAt(t *testing.T, c attachCase) bool {
	t.Helper()
	if m.version == oracle.V1 || asWritten[c.name] {
		return false
	}
	own := m.oracle.Replay(t, c.watched)
	c.watched.Version = oracle.V1
	newest := m.oracle.Replay(t, c.watched)
	if oracle.Diff(newest.Snapshot, own.Snapshot, c.legacy) == "" {
		return false
	}
	m.otherwise = append(m.otherwise, fmt.Sprintf("%s k=%d", c.name, c.k))
	return true
}

// until is what is sent up to entry j of run i.
func (p published) until(i, j int) [][]byte {
	var out [][]byte
	for _, run := range p.sent[:i] {
		out = append(out, slices.Concat(run...)...)
	}
	return append(out, slices.Concat(p.sent[i][:j+1]...)...)
}

// userInput is a RunAgentInput with the user's own message for a stream whose RUN_STARTED has none.
func userInput(s oracle.Stream) []byte {
	var first struct {
		Type, ThreadID, RunID string
		Input                 json.RawMessage
	}
	if len(s.Lines) == 0 || json.Unmarshal(s.Lines[0], &first) != nil || first.Type != "RUN_STARTED" || first.Input != nil {
		return nil
	}
	thread, _ := json.Marshal(first.ThreadID)
	run, _ := json.Marshal(first.RunID)
	return fmt.Appendf(nil, `{"threadId":%s,"runId":%s,"state":{},"tools":[],"context":[],"forwardedProps":{},`+
		`"messages":[{"id":"the-user","role":"user","content":"the user's own question \u2028 \ud83d\ude00"}]}`, thread, run)
}

func memberOf(object []byte, name string) []byte {
	var m map[string]json.RawMessage
	if json.Unmarshal(object, &m) != nil {
		return nil
	}
	return bytes.TrimSpace(m[name])
}
