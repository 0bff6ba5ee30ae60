package checker

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/aguihub/aguihub/stream"
)

// Figures is what subscribers counted.
type Figures struct {
	Deliveries, Brackets, Lags, Connects, Reconnects int
	Resets                                           map[string]int // by reason
	Closes                                           map[string]int // connections by how they ended
}

// Add adds other to f.
func (f *Figures) Add(other Figures) {
	f.Deliveries += other.Deliveries
	f.Brackets += other.Brackets
	f.Lags += other.Lags
	f.Connects += other.Connects
	f.Reconnects += other.Reconnects
	f.Resets = sum(f.Resets, other.Resets)
	f.Closes = sum(f.Closes, other.Closes)
}

func sum(a, b map[string]int) map[string]int {
	if a == nil {
		a = map[string]int{}
	}
	for k, n := range b {
		a[k] += n
	}
	return a
}

// Habits is how a subscriber behaves. The zero value never leaves and never pauses.
type Habits struct {
	Leave time.Duration // mean time between two disconnects of its own; 0 for none
	Pause time.Duration // mean time between two pauses in reading; 0 for none
	Nap   time.Duration // the longest pause
}

// Subscriber follows one run as the contract tells clients to, and keeps a record. It is for one goroutine.
type Subscriber struct {
	Figures Figures

	// static
	name   string
	target string          // "runs/r" or "threads/t"
	last   stream.RunID    // of a thread, the run with whose end the subscriber is content
	hubs   func() []string // http://host:port
	habits Habits
	rng    *rand.Rand

	view   *view
	cursor string // where to resume; "" for nothing
	steps  []step
	ended  bool

	// the open bracket
	open     bool
	mode     string
	from     string
	buffered []eventLine
}

// NewSubscriber makes a subscriber of a run at any of the hubs; seed decides what it does.
func NewSubscriber(name, run string, hubs func() []string, habits Habits, seed uint64) *Subscriber {
	return newSubscriber(name, "runs/"+run, hubs, habits, seed)
}

// NewThreadSubscriber makes a subscriber of a thread, which follows it up to the end of the run last.
func NewThreadSubscriber(name, thread string, last stream.RunID, hubs func() []string, habits Habits, seed uint64) *Subscriber {
	s := newSubscriber(name, "threads/"+thread, hubs, habits, seed)
	s.last = last
	return s
}

func newSubscriber(name, target string, hubs func() []string, habits Habits, seed uint64) *Subscriber {
	return &Subscriber{
		name: name, target: target, hubs: hubs, habits: habits, rng: rand.New(rand.NewPCG(seed, 1)), view: newView(),
		Figures: Figures{Resets: map[string]int{}, Closes: map[string]int{}},
	}
}

// Name is the subscriber's in reports.
func (s *Subscriber) Name() string { return s.name }

// Ended says whether it saw the run's end, or that of the thread's last run.
func (s *Subscriber) Ended() bool { return s.ended }

// eventLine is an event with its cursor, "" where it has none.
type eventLine struct {
	id    string
	event event
	size  int // in bytes, over SSE
}

// event is what the checker reads of an event.
type event struct {
	Type      string          `json:"type"`
	MessageID string          `json:"messageId"`
	Delta     string          `json:"delta"`
	Snapshot  json.RawMessage `json:"snapshot"`
	Value     *struct {
		N int `json:"n"`
	} `json:"value"`
	Messages []struct {
		ID      string `json:"id"`
		Content string `json:"content"`
	} `json:"messages"`
}

// state is the counter of a STATE_SNAPSHOT.
func (e *event) state() int {
	var s struct {
		N int `json:"n"`
	}
	_ = json.Unmarshal(e.Snapshot, &s) // what isn't ours counts as 0, which the judge sees
	return s.N
}

// counter is the counter that the event bears.
func (e *event) counter() int {
	switch e.Type {
	case "CUSTOM":
		if e.Value != nil {
			return e.Value.N
		}
	case "STATE_SNAPSHOT":
		return e.state()
	case "TEXT_MESSAGE_CONTENT":
		n := 0
		_, _ = fmt.Sscan(e.Delta, &n)
		return n
	}
	return 0
}

// apply brings the view on.
func (s *Subscriber) apply(e *event) {
	switch e.Type {
	case "TEXT_MESSAGE_START":
		if _, known := s.view.texts[e.MessageID]; !known {
			s.view.texts[e.MessageID] = nil
		}
	case "TEXT_MESSAGE_CONTENT":
		s.view.texts[e.MessageID] = append(s.view.texts[e.MessageID], e.Delta...)
	case "STATE_SNAPSHOT":
		s.view.state = e.state()
	case "MESSAGES_SNAPSHOT":
		clear(s.view.texts)
		for _, m := range e.Messages {
			s.view.texts[m.ID] = []byte(m.Content)
		}
	}
}

// entry takes a live event line.
func (s *Subscriber) entry(l eventLine) {
	s.apply(&l.event)
	if l.id == "" {
		return
	}
	s.Figures.Deliveries++
	s.note(step{kind: entryStep, id: idOf(l.id), run: runOf(l.id), n: l.event.counter()})
	s.cursor = l.id
}

// bracket applies what was buffered, at its end.
func (s *Subscriber) bracket(live string, omitted int) {
	st := step{kind: bracketStep, id: idOf(live), run: runOf(live), from: idOf(s.from), fresh: s.mode == "fresh", omitted: omitted}
	if st.fresh {
		s.view = newView()
	}
	for i := range s.buffered {
		l := &s.buffered[i]
		if l.event.Type == "CUSTOM" {
			st.customs = append(st.customs, l.event.counter())
		}
		if s.mode == "events" {
			s.entry(*l)
			continue
		}
		s.apply(&l.event)
	}
	if s.mode == "events" {
		st.from = idOf(s.cursor)
		st.customs, st.exact = nil, true
	}
	st.digest = s.view.digest()
	s.note(st)
	s.cursor = live
	s.Figures.Brackets++
	s.open, s.buffered = false, nil
}

// reset forgets all.
func (s *Subscriber) reset(reason string) {
	s.Figures.Resets[reason]++
	s.note(step{kind: resetStep, reason: reason})
	s.cursor, s.view, s.open, s.buffered = "", newView(), false, nil
}

// note adds a step to the record.
func (s *Subscriber) note(st step) {
	st.when = time.Now()
	s.steps = append(s.steps, st)
}

// end takes the end of the run that the cursor belongs to.
func (s *Subscriber) end() {
	if !s.ended {
		s.ended = s.last == "" || runOf(s.cursor) == stream.HashRun(s.last)
		s.note(step{kind: endStep})
	}
}

// runOf is the hash of the run that a thread's cursor names.
func runOf(cursor string) uint32 {
	c, _ := stream.ParseCursor(cursor) // others have none
	return c.Run
}

// idOf is the entry that a cursor names; zero for none.
func idOf(cursor string) stream.ID {
	entry, _, _ := strings.Cut(cursor, ".")
	id, err := stream.ParseID(entry)
	if err != nil {
		return stream.ID{}
	}
	return id
}
