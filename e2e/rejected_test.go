package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/aguihub/aguihub/oracle"
)

// Every stream of the corpus that the official client rejects, or whose runs overlap, is published beside a run that all is well with.
func TestWhatTheClientRejectsIsWithheldAndListedAndDisturbsNobody(t *testing.T) {
	m := newMeasure(t, 1)
	var rejected []oracle.Stream
	for _, s := range corpus(t, false) {
		if v := m.oracle.FirstRejected(t, s.Job()); v != nil {
			rejected = append(rejected, s)
		}
	}
	for _, s := range corpus(t, true) {
		if notOneThread(s) != "" { // to one key then, where a second start restarts the run
			rejected = append(rejected, oracle.Stream{Name: s.Name, Lines: s.Lines, Initial: s.Initial, Legacy: s.Legacy})
		}
	}
	if oracle.CorpusPresent() && *only == "" && len(rejected) < 50 {
		t.Errorf("only %d streams of the corpus are rejected", len(rejected))
	}
	b := m.newBystander()
	var names []string
	var jobs []job
	for _, s := range rejected {
		jobs = append(jobs, job{stream: s})
		names = append(names, s.Name)
	}
	m.all(jobs, func(j job) error { return errors.Join(m.rejected(j.stream), b.write()) })
	b.end()
	m.report()
	t.Logf("%d rejected streams: %v", len(names), names)
}

// rejected publishes a stream with a client attached as early as may be, and compares what the hub lists.
func (m *measure) rejected(s oracle.Stream) error {
	if err := m.single(job{stream: s, versions: versions[:1], wires: wires, ks: []int{1, 2, len(s.Lines) / 2, len(s.Lines)}}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	p := prepare(s, false)
	r := p.runs[0]
	want := map[string]int{}
	for i := range r.lines {
		if _, err := r.add(ctx, m.redis, i); err != nil {
			return err
		}
		if r.reasons[i] != "" {
			want[r.reasons[i]]++
		}
	}
	var got struct {
		Entries  int
		Reasons  map[string]int `json:"withheldByReason"`
		Withheld []struct{ ID, Reason, Detail string }
	}
	for got.Entries < len(r.lines) {
		status, body, err := get(ctx, m.hubs[0].base+"/v1/"+r.target())
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("GET: %d %s: %w", status, body, err)
		}
		if err := json.Unmarshal(body, &got); err != nil {
			return err
		}
	}
	if !maps.Equal(want, got.Reasons) {
		return fmt.Errorf("withheld by reason: %v, want %v", got.Reasons, want)
	}
	if len(want) == 0 {
		m.except("nothing is withheld since nothing is wrong with the first run, or a restart repaired it", s.Name)
	}
	for _, w := range got.Withheld {
		if want[w.Reason]--; w.ID == "" || want[w.Reason] < 0 {
			return fmt.Errorf("withheld: %+v", got.Withheld)
		}
	}
	return nil
}

// bystander is a run that is written and watched while others go wrong.
type bystander struct {
	m   *measure
	sub *oracle.Subscription

	mu sync.Mutex
	r  *run
}

func (m *measure) newBystander() *bystander {
	start := `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`
	p := prepare(oracle.NewStream("bystander", [][]byte{[]byte(start)}), false)
	b := &bystander{m: m, r: p.runs[0]}
	first := string(b.r.lines[0])
	b.r.lines = nil
	err := b.publish(first, opened)
	if err != nil {
		m.t.Fatal(err)
	}
	if b.sub, err = m.attach(b.r.target(), oracle.V1, oracle.WebSocket, ""); err != nil {
		m.t.Fatal(err)
	}
	return b
}

func (b *bystander) publish(lines ...string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range lines {
		b.r.lines = append(b.r.lines, []byte(line))
		if _, err := b.r.add(b.m.t.Context(), b.m.redis, len(b.r.lines)-1); err != nil {
			return err
		}
	}
	return nil
}

func (b *bystander) write() error { return b.publish(piece(int(tags.Add(1)))) }

func (b *bystander) end() {
	t := b.m.t
	if err := b.publish(closed, fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, b.r.thread, b.r.id)); err != nil {
		t.Fatal(err)
	}
	tail := b.r.lines[2:]
	got, err := b.sub.End(len(tail))
	if err != nil || !got.OK || got.Code != 1000 || got.Hash != oracle.HashLines(tail) || len(got.Late) > 0 {
		t.Errorf("the subscriber of another run was disturbed: %+v %v", got, err)
	}
	if !slices.ContainsFunc(b.sub.Past, func(line []byte) bool { return eventOf(line).Type == "MESSAGES_SNAPSHOT" }) {
		t.Errorf("it began with %s", b.sub.Past)
	}
}
