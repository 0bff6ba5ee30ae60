package agents_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/bridge"
	"github.com/aguihub/aguihub/oracle"
	"github.com/aguihub/aguihub/transport/transporttest"
)

// long runs the measure in full: every stream with both clients, and more seeds of what breaks.
var long = flag.Bool("sweep", os.Getenv("AGUIHUB_SWEEP") != "", "measure all streams")

// player is an agent that plays recorded runs, by the run that it is asked for.
type player struct {
	mu    sync.Mutex
	runs  map[string][][]byte
	pause map[string]*pause
}

// pause stops a run behind an event until somebody has seen it.
type pause struct {
	after   int
	reached chan struct{}
	goOn    chan struct{}
}

func newPlayer(s oracle.Stream) *player {
	p := &player{runs: map[string][][]byte{}, pause: map[string]*pause{}}
	for _, r := range s.Runs {
		p.runs[r.RunID] = r.Lines
	}
	return p
}

func (p *player) serve(w http.ResponseWriter, q *http.Request) {
	a, _ := askedOf(q)
	p.mu.Lock()
	lines, stop := p.runs[a.RunID], p.pause[a.RunID]
	p.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	for i, line := range lines {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", line)
		if stop != nil && i+1 == stop.after {
			w.(http.Flusher).Flush()
			close(stop.reached)
			<-stop.goOn
		}
	}
}

// playable says why a stream can't be played by an agent, "" if it can.
func playable(s oracle.Stream) string {
	if len(s.Runs) == 0 {
		return "not runs of their own"
	}
	for _, r := range s.Runs {
		if r.ThreadID != s.Runs[0].ThreadID {
			return "several threads"
		}
		for _, id := range []string{r.RunID, r.ThreadID} {
			if id == "" || len(id) > 256 || strings.ContainsAny(id, `/\{}`) {
				return "ids that can't be used"
			}
		}
	}
	return ""
}

// turns are the inputs that ask for a stream's runs: each with the messages that the agent says it was asked with, as a client can
// hold them, else with one of the user's.
func turns(t *testing.T, o *oracle.Oracle, s oracle.Stream) []oracle.HTTPTurn {
	t.Helper()
	out := make([]oracle.HTTPTurn, len(s.Runs))
	for i, r := range s.Runs {
		out[i] = oracle.HTTPTurn{RunID: r.RunID, Messages: json.RawMessage(fmt.Sprintf(`[{"id":"asked-%d","role":"user","content":"question %d"}]`, i, i))}
		var started struct {
			Input struct{ Messages json.RawMessage }
		}
		if json.Unmarshal(r.Lines[0], &started) == nil && len(started.Input.Messages) > 0 {
			held := o.Replay(t, oracle.Job{Lines: [][]byte{
				[]byte(transporttest.Started("r", "t")), fmt.Appendf(nil, `{"type":"MESSAGES_SNAPSHOT","messages":%s}`, started.Input.Messages),
			}})
			if held.OK {
				out[i].Messages = json.RawMessage(held.Messages)
			}
		}
	}
	return out
}

func rngOf(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(h.Sum64(), 7)) //nolint:gosec // for tests
}

// tab attaches by SSE and returns what it gets, up to the end of a run. attached is called with the first event.
func (r *rig) tab(tb testing.TB, target, run string, attached func()) [][]byte {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/v1/"+target+"/sse", http.NoBody)
	must(tb, err)
	resp, err := r.client.Do(req)
	must(tb, err)
	defer func() { _ = resp.Body.Close() }()
	var got [][]byte
	current := ""
	lines := bufio.NewReaderSize(resp.Body, 1<<20)
	for {
		line, err := lines.ReadString('\n')
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if len(got) == 0 {
				attached()
			}
			event := []byte(strings.TrimSuffix(data, "\n"))
			got = append(got, event)
			var e agui.Event
			if e.Parse(event) != nil {
				continue
			}
			if e.Type == agui.RunStarted {
				current = e.RunID() // on a thread the run before may be restated first
			} else if e.Type.Terminal() && current == run {
				return got
			}
		}
		if err != nil {
			return got
		}
	}
}

// runTarget and threadTarget are what a tab attaches to.
func runTarget(run string) string       { return "runs/" + url.PathEscape(run) }
func threadTarget(thread string) string { return "threads/" + url.PathEscape(thread) }

// TestBridgedIsAsDirect is the measure: an HttpAgent that calls an agent through the hub ends with what it ends with straight at the
// agent, and so does a tab that attaches in between.
func TestBridgedIsAsDirect(t *testing.T) {
	o, http1 := oracle.Start(t), oracle.StartHTTPAgents(t)
	streams := oracle.Corpus(t)
	generated := 20
	if *long {
		generated = 200
	}
	for seed := range uint64(generated) {
		streams = append(streams, oracle.Generate(seed))
	}
	var played, tabs, refused, unplayable atomic.Int64
	t.Run("streams", func(t *testing.T) {
		for i, s := range streams {
			if playable(s) != "" {
				unplayable.Add(1)
				continue
			}
			versions := []string{oracle.V1, oracle.V059}
			if !*long {
				versions = versions[i%2 : i%2+1] // by turns
			}
			for _, version := range versions {
				t.Run(s.Name+" "+version, func(t *testing.T) {
					t.Parallel()
					if !measureBridged(t, o, http1, s, version) {
						refused.Add(1)
						return
					}
					played.Add(1)
					tabs.Add(1)
				})
			}
		}
	})
	t.Logf("%d streams played as direct, %d tabs; %d that the client refuses straight at the agent too, %d that no agent could play",
		played.Load(), tabs.Load(), refused.Load(), unplayable.Load())
	if played.Load() < int64(len(streams))/4 {
		t.Errorf("only %d of %d streams were played", played.Load(), len(streams))
	}
}

// differing are the streams for which a tab can't hold what the caller does, with the reason.
var differing = map[string]string{}

// measureBridged plays one stream; false where the client refuses it straight at the agent.
func measureBridged(t *testing.T, o *oracle.Oracle, clients *oracle.HTTPAgents, s oracle.Stream, version string) bool {
	rng := rngOf(s.Name + version)
	job := oracle.HTTPJob{Version: version, ThreadID: s.Runs[0].ThreadID, Initial: s.Initial, Turns: turns(t, o, s)}
	if o.FirstRejected(t, s.Job()) != nil { // hubs send what client 1.0.0 takes
		return false
	}
	job.URL = agent(t, "direct", newPlayer(s).serve).URL
	want := clients.Run(t, job)
	for _, turn := range want.Turns {
		if !turn.OK && turn.RunError == "" {
			t.Logf("straight at the agent: %s", turn.Error)
			return false
		}
	}
	older := version != oracle.V1
	if older { // what a hub restates is what the newest client holds
		newest := job
		newest.Version = oracle.V1
		older = oracle.Diff(want.Snapshot, clients.Run(t, newest).Snapshot, s.Legacy) != ""
	}

	p := newPlayer(s)
	last := s.Runs[len(s.Runs)-1]
	stop := &pause{after: 1 + rng.IntN(len(last.Lines)), reached: make(chan struct{}), goOn: make(chan struct{})}
	p.pause[last.RunID] = stop
	r := newRig(t, bridge.Config{}, agent(t, "a", p.serve))
	tab := make(chan [][]byte, 1)
	go func() {
		<-stop.reached
		tab <- r.tab(t, threadTarget(last.ThreadID), last.RunID, sync.OnceFunc(func() { close(stop.goOn) }))
	}()
	job.URL = r.url + "/v1/agents/a"
	got := clients.Run(t, job)
	if diff := oracle.Diff(want.Snapshot, got.Snapshot, s.Legacy); diff != "" {
		t.Errorf("through the bridge: %s", diff)
	}
	seen := <-tab
	held := o.Replay(t, oracle.Job{Version: version, Lines: seen, Parse: version != oracle.V1})
	if !held.OK {
		t.Errorf("the tab that attached at event %d is refused at %d: %s: %s", stop.after, held.At, held.Stage, held.Error)
	} else if diff := oracle.Diff(got.Snapshot, held.Snapshot, s.Legacy); diff != "" && !older && differing[s.Name] == "" {
		t.Errorf("the tab that attached at event %d: %s\nit got\n%s", stop.after, diff, bytes.Join(seen, []byte("\n")))
	}
	return true
}

// TestTheRunGoesOnWithoutItsCaller breaks the caller's request off at a random event.
func TestTheRunGoesOnWithoutItsCaller(t *testing.T) {
	clients := oracle.StartHTTPAgents(t)
	o := oracle.Start(t)
	seeds := 15
	if *long {
		seeds = 150
	}
	for seed := range uint64(seeds) {
		s := oracle.GenerateWith(1000+seed, oracle.Options{Runs: 1})
		rng := rngOf(s.Name)
		run := s.Runs[0]
		leave := 1 + rng.IntN(len(run.Lines))
		p := newPlayer(s)
		r := newRig(t, bridge.Config{}, agent(t, "a", p.serve))
		job := oracle.HTTPJob{Version: oracle.V1, URL: r.url + "/v1/agents/a", ThreadID: run.ThreadID, Initial: s.Initial, Turns: turns(t, o, s)}
		job.Turns[0].LeaveAfter = leave
		clients.Run(t, job)
		r.ended(t, run.RunID)
		entries := r.log(t, run.RunID)
		if len(entries) != len(run.Lines) {
			t.Fatalf("%s: the caller left at %d: %d entries of %d", s.Name, leave, len(entries), len(run.Lines))
		}
		for i, en := range entries {
			var want agui.Event
			if want.Parse(run.Lines[i]) != nil || !bytes.Equal(en.Event, want.Raw) {
				t.Fatalf("%s: event %d is %q, published as %q", s.Name, i, en.Event, run.Lines[i])
			}
		}
		if held := o.Replay(t, oracle.Job{Lines: r.tab(t, runTarget(run.RunID), run.RunID, func() {})}); !held.OK {
			t.Fatalf("%s: a late tab: %s", s.Name, held.Error)
		}
	}
}

// TestBrokenAgents cuts, slows and corrupts answers at random points: each run ends exactly once, and what tabs get is legal.
func TestBrokenAgents(t *testing.T) {
	o := oracle.Start(t)
	seeds := 60
	if *long {
		seeds = 1500
	}
	codes := map[string]int{}
	for seed := range uint64(seeds) {
		s := oracle.GenerateWith(5000+seed, oracle.Options{Runs: 1, MaxEvents: 60})
		rng := rngOf(fmt.Sprint("broken", seed))
		run := s.Runs[0]
		var body strings.Builder
		for _, line := range run.Lines {
			fmt.Fprintf(&body, "data: %s\n\n", line)
		}
		hurt, how := damage([]byte(body.String()), rng)
		r := newRig(t, bridge.Config{}, agent(t, "a", func(w http.ResponseWriter, q *http.Request) {
			_, _ = askedOf(q)
			w.Header().Set("Content-Type", "text/event-stream")
			for part := hurt; len(part) > 0; {
				n := 1 + min(rngStep(seed, len(part)), len(part)-1)
				_, _ = w.Write(part[:n])
				w.(http.Flusher).Flush()
				part = part[n:]
			}
			if how == "cut hard" {
				panic(http.ErrAbortHandler)
			}
		}))
		_, events, _ := r.call(t, "a", input(run.ThreadID, run.RunID))
		ends := 0
		for _, kind := range typesOf(events) {
			if kind == "RUN_FINISHED" || kind == "RUN_ERROR" {
				ends++
			}
		}
		r.ended(t, run.RunID)
		var inLog int
		fold := agui.NewRun(nil, agui.RunConfig{})
		for _, en := range r.log(t, run.RunID) {
			if v := fold.Apply(agui.Entry{Event: en.Event, Input: en.Input}); v.End {
				inLog++
			}
		}
		if ends != 1 || inLog != 1 {
			t.Fatalf("%s, %s: %d ends for the caller, %d in the log: %q", s.Name, how, ends, inLog, events[len(events)-1])
		}
		if held := o.Replay(t, oracle.Job{Lines: r.tab(t, runTarget(run.RunID), run.RunID, func() {})}); !held.OK {
			t.Fatalf("%s, %s: a late tab: %s", s.Name, how, held.Error)
		}
		codes[codeOf(t, events)]++
	}
	t.Logf("%d broken answers ended with %v", seeds, codes)
}

// rngStep is how much is written at once: mostly much, for some seeds byte by byte.
func rngStep(seed uint64, n int) int {
	if seed%5 == 0 && n < 2000 {
		return 0
	}
	return 700
}

// damage hurts an answer in one way.
func damage(body []byte, rng *rand.Rand) (out []byte, how string) {
	at := rng.IntN(len(body))
	switch rng.IntN(6) {
	case 0:
		return body[:at], "cut"
	case 1:
		return body[:at], "cut hard"
	case 2:
		out = append(out, body...)
		for range 1 + rng.IntN(5) {
			out[rng.IntN(len(out))] = byte(rng.IntN(256))
		}
		return out, "bytes changed"
	case 3:
		end := min(len(body), at+1+rng.IntN(400))
		return append(append(out, body[:at]...), body[end:]...), "bytes lost"
	case 4:
		end := min(len(body), at+1+rng.IntN(400))
		return append(append(append(out, body[:end]...), body[at:end]...), body[end:]...), "bytes doubled"
	default:
		noise := make([]byte, 1+rng.IntN(300))
		for i := range noise {
			noise[i] = byte(rng.IntN(256))
		}
		return append(append(append(out, body[:at]...), noise...), body[at:]...), "noise"
	}
}
