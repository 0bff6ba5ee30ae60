package backfill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/aguihub/aguihub/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble is a subtest in a bubble of time.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// rig is a service over a log in memory, and the truth about what was published.
type rig struct {
	*Service
	log      *hookedLog
	registry *stream.Registry

	mu   sync.Mutex // hooks publish beside the test
	runs map[stream.RunID]*truth
}

// truth is what a run's entries come to.
type truth struct {
	ids   []stream.ID
	texts map[stream.ID][]byte // what the message holds as of an entry; none before it begins
	text  []byte
	begun bool      // the message has
	start stream.ID // of the newest RUN_STARTED
	end   stream.ID // of the terminal event
}

// hookedLog is the log with a hook behind every page that was read.
type hookedLog struct {
	*stream.Memory
	*stream.Tail

	mu     sync.Mutex
	reads  int
	behind func(page int, p stream.Page) // called without the lock
	bounds func()                        // after Bounds; called without the lock
}

func (l *hookedLog) Bounds(ctx context.Context, runs ...stream.RunID) ([]stream.Bounds, error) {
	b, err := l.Memory.Bounds(ctx, runs...)
	l.mu.Lock()
	behind := l.bounds
	l.mu.Unlock()
	if behind != nil && err == nil {
		behind()
	}
	return b, err
}

// hookBounds has behind called after each look at bounds from now on; nil for none.
func (l *hookedLog) hookBounds(behind func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bounds = behind
}

func (l *hookedLog) Range(ctx context.Context, run stream.RunID, after stream.ID, entries, bytes int) (stream.Page, error) {
	p, err := l.Memory.Range(ctx, run, after, entries, bytes)
	l.mu.Lock()
	l.reads++
	n, behind := l.reads, l.behind
	l.mu.Unlock()
	if behind != nil && err == nil {
		behind(n, p)
	}
	return p, err
}

// hook has behind called after every page from now on, numbered from 1.
func (l *hookedLog) hook(behind func(page int, p stream.Page)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads, l.behind = 0, behind
}

func newRig(t *testing.T, config Config) *rig {
	t.Helper()
	log, err := stream.NewMemory(stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return newRigOn(t, log, config)
}

// newRigOn is another hub on a log.
func newRigOn(t *testing.T, log *stream.Memory, config Config) *rig {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // the test's own ends before its cleanups
	tail := log.NewTail(stream.TailConfig{})
	var running sync.WaitGroup
	running.Go(func() {
		if err := tail.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("tail: %v", err)
		}
	})
	r := &rig{log: &hookedLog{Memory: log, Tail: tail}, registry: log.NewRegistry(tail), runs: map[stream.RunID]*truth{}}
	config.Name = "test"
	r.Service = New(ctx, r.log, r.registry, stream.ID{}, config, zap.NewNop())
	t.Cleanup(func() {
		r.Close()
		cancel()
		running.Wait()
	})
	return r
}

// Events of a run that has one text message, "m-" and the run's id.

func started(run, thread string) string {
	return fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, thread, run)
}

func startedWithInput(run, thread string) string {
	return fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q,"input":%s}`, thread, run, input(run, thread))
}

// input is what a run starts from: the user's message "u-" and the run's id.
func input(run, thread string) string {
	return fmt.Sprintf(`{"threadId":%q,"runId":%q,"state":{},"messages":[{"id":"u-%s","role":"user","content":"hello"}],`+
		`"tools":[],"context":[],"forwardedProps":{}}`, thread, run, run)
}

func finished(run, thread string) string {
	return fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, thread, run)
}

func opening(run string) string {
	return fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","messageId":"m-%s","role":"assistant"}`, run)
}

func delta(run, text string) string {
	return fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m-%s","delta":%q}`, run, text)
}

func closing(run string) string {
	return fmt.Sprintf(`{"type":"TEXT_MESSAGE_END","messageId":"m-%s"}`, run)
}

// deltas are n deltas.
func deltas(run string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = delta(run, fmt.Sprintf("%d;", i))
	}
	return out
}

// begin publishes a RUN_STARTED with its input in the field, and announces the run. It starts a millisecond later than
// all before, which tells which run of a thread came first.
func (r *rig) begin(t *testing.T, run, thread string) string {
	t.Helper()
	time.Sleep(time.Millisecond)
	cursor := r.record(t, run, stream.Record{Event: []byte(started(run, thread)), Input: []byte(input(run, thread))})
	r.announce(t, run, thread)
	return cursor
}

func (r *rig) announce(t *testing.T, run, thread string) {
	t.Helper()
	info := stream.RunInfo{Run: stream.RunID(run), Thread: stream.ThreadID(thread), State: stream.RunStarted}
	if err := r.registry.Announce(t.Context(), info); err != nil {
		t.Fatal(err)
	}
}

// publish appends events to a run and returns the cursor of the last one, as a run's attach gives it.
func (r *rig) publish(t *testing.T, run string, events ...string) string {
	t.Helper()
	recs := make([]stream.Record, len(events))
	for i, e := range events {
		recs[i].Event = []byte(e)
	}
	return r.record(t, run, recs...)
}

func (r *rig) record(t *testing.T, run string, recs ...stream.Record) string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	ids, err := r.log.Append(context.WithoutCancel(t.Context()), stream.RunID(run), recs...)
	if err != nil {
		t.Fatal(err)
	}
	tr := r.runs[stream.RunID(run)]
	if tr == nil {
		tr = &truth{texts: map[stream.ID][]byte{}}
		r.runs[stream.RunID(run)] = tr
	}
	for i, id := range ids {
		tr.take(id, recs[i].Event)
	}
	last := recs[len(recs)-1].Event
	return stream.Cursor{Entry: ids[len(ids)-1], Sum: stream.Checksum(last)}.String()
}

func (tr *truth) take(id stream.ID, event []byte) {
	tr.ids = append(tr.ids, id)
	var e struct{ Type, Delta string }
	switch err := json.Unmarshal(event, &e); {
	case err != nil:
	case e.Type == "RUN_STARTED" && tr.end.IsZero():
		tr.begun, tr.text, tr.start = false, nil, id
	case e.Type == "TEXT_MESSAGE_START":
		tr.begun = true
	case e.Type == "TEXT_MESSAGE_CONTENT" && tr.end.IsZero():
		tr.text = append(tr.text, e.Delta...)
	case (e.Type == "RUN_FINISHED" || e.Type == "RUN_ERROR") && tr.end.IsZero():
		tr.end = id
	}
	if tr.begun {
		tr.texts[id] = tr.text
	}
}

// onThread is a run's cursor as a thread's attach gives it.
func onThread(t *testing.T, cursor, run string) string {
	t.Helper()
	c, err := stream.ParseCursor(cursor)
	if err != nil {
		t.Fatal(err)
	}
	c.Run, c.HasRun = stream.HashRun(stream.RunID(run)), true
	return c.String()
}

// reader takes a session's items, writes down what they are, and checks them against the truth: I1 and I2.
type reader struct {
	t    *testing.T
	rig  *rig
	ses  *Session
	only stream.RunID // of a run's attach

	words []string
	raw   []string // bodies of all items
	mute  bool     // words and bodies are of no use
	err   error    // what the session ended with

	run      stream.RunID // of the newest position
	at       stream.ID
	cursor   string // to come back with
	mode     string // of the open bracket
	reset    bool   // nothing is held, and it was said
	over     bool   // the current run's end was told
	snapshot string // the newest MESSAGES_SNAPSHOT of the bracket
}

// attach begins to read. What it continues from is taken from the request.
func (r *rig) attach(t *testing.T, req Request) *reader {
	t.Helper()
	synctest.Wait()
	ses, err := r.Attach(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	w := &reader{t: t, rig: r, ses: ses, only: req.Run, cursor: req.After}
	if c, err := stream.ParseCursor(req.After); err == nil {
		w.at = c.Entry
		w.run = w.runOf(c)
	}
	t.Cleanup(func() {
		if w.ses != nil {
			w.ses.Close()
		}
	})
	return w
}

// leave closes the session and returns a place to come back to.
func (w *reader) leave() string {
	w.ses.Close()
	w.ses = nil
	return w.cursor
}

// next takes what comes within so long; false means that nothing did or that the session has ended.
func (w *reader) next(within time.Duration) bool {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	items, err := w.ses.Next(ctx)
	switch {
	case err == nil:
		for _, it := range items {
			w.take(it)
		}
		return true
	case ctx.Err() == nil:
		w.err = err
	}
	return false
}

// all takes everything until nothing comes any more, and returns what came in words.
func (w *reader) all() string {
	w.t.Helper()
	synctest.Wait()
	from := len(w.words)
	for w.next(time.Millisecond) {
	}
	return strings.Join(w.words[from:], " ")
}

// expect takes everything and compares it.
func (w *reader) expect(want string) {
	w.t.Helper()
	if got := w.all(); got != want {
		w.t.Errorf("got  %s\nwant %s", got, want)
	}
}

// ends expects the session to have ended with err.
func (w *reader) ends(err error) {
	w.t.Helper()
	w.all()
	if !errors.Is(w.err, err) {
		w.t.Errorf("the session ended with %v, not %v", w.err, err)
	}
}

func (w *reader) take(it Item) {
	w.t.Helper()
	switch {
	case it.Control != "":
		w.raw = append(w.raw, string(it.Line))
		w.control(it)
	case it.Delivery != nil:
		var word strings.Builder
		for _, e := range it.Delivery.Events {
			word.WriteString("+" + short(e))
			w.raw = append(w.raw, string(e))
		}
		if it.Delivery.Reason != "" {
			word.WriteString("(" + it.Delivery.Reason + ")")
		}
		w.words = append(w.words, word.String())
		w.entry(it.Cursor)
	default:
		w.words = append(w.words, short(it.Event))
		w.raw = append(w.raw, string(it.Event))
		if bytes.HasPrefix(it.Event, []byte(`{"type":"MESSAGES_SNAPSHOT"`)) {
			w.snapshot = string(it.Event)
		}
		if w.mode == "" {
			w.t.Errorf("%s stands outside of a bracket", it.Event)
		}
		if !it.Cursor.Entry.IsZero() { // joined deltas of from=start
			w.joined(it.Cursor)
		}
	}
	if w.mute {
		w.words, w.raw = nil, nil
	}
	if !it.Cursor.Entry.IsZero() && (w.mode == "" || w.mode == modeEvents) {
		w.cursor = it.Cursor.String()
	}
}

// short is an event's type, abbreviated where it is frequent.
func short(event []byte) string {
	var e struct{ Type string }
	if err := json.Unmarshal(event, &e); err != nil {
		return "?"
	}
	for long, name := range map[string]string{
		"RUN_STARTED": "START", "RUN_FINISHED": "FINISH", "RUN_ERROR": "ERROR", "MESSAGES_SNAPSHOT": "MESSAGES",
		"STATE_SNAPSHOT": "STATE", "TEXT_MESSAGE_START": "open", "TEXT_MESSAGE_CONTENT": "text", "TEXT_MESSAGE_END": "close",
	} {
		if e.Type == long {
			return name
		}
	}
	return e.Type
}

func (w *reader) control(it Item) {
	w.t.Helper()
	var line struct {
		Control, Mode, Reason, History string
		Run                            *stream.RunID
	}
	if err := json.Unmarshal(it.Line, &line); err != nil || line.Control != it.Control {
		w.t.Errorf("control line %q, %s: %v", it.Control, it.Line, err)
	}
	word := it.Control
	switch it.Control {
	case ControlAttached:
		if word = "attached:" + line.History; line.Run == nil {
			word = "attached:none"
		}
	case ControlReset:
		word = "reset:" + line.Reason
		w.reset, w.at, w.run, w.over, w.mode = true, stream.ID{}, "", false, ""
	case ControlCatchup:
		word = "catchup:" + line.Mode
		if w.mode != "" {
			w.t.Errorf("a bracket of mode %s in one of mode %s", line.Mode, w.mode)
		}
		w.mode, w.snapshot = line.Mode, ""
		if w.reset && w.mode != modeFresh {
			w.t.Errorf("after a reset comes a bracket of mode %s", w.mode)
		}
		w.reset = false
	case ControlLive:
		w.live(it.Cursor)
		w.mode = ""
	case ControlEnded:
		w.ended(line.Run)
	}
	w.words = append(w.words, word)
}

// live checks that the bracket brought the reader where it says.
func (w *reader) live(c stream.Cursor) {
	w.t.Helper()
	if c.Entry.IsZero() {
		return
	}
	run := w.runOf(c)
	tr := w.truth(run)
	switch {
	case run == w.run && c.Entry.Less(w.at):
		w.t.Errorf("a bracket goes back from %s to %s", w.at, c.Entry)
	case w.mode == modeEvents:
		if run != w.run || w.at != c.Entry && (tr.end.IsZero() || w.at.Less(tr.end)) {
			w.t.Errorf("the events end at %s of %q, live says %s of %q", w.at, w.run, c.Entry, run)
		}
	default:
		text, begun := tr.texts[c.Entry]
		open := fmt.Sprintf(`{"id":"m-%s","role":"assistant","content":`, run)
		if w.snapshot != "" && (strings.Contains(w.snapshot, open) != begun || begun && !strings.Contains(w.snapshot, open+fmt.Sprintf("%q}", text))) {
			w.t.Errorf("the snapshot at %s of %s isn't %q: %.300s", c.Entry, run, text, w.snapshot)
		}
	}
	if run != w.run {
		w.over = false
	}
	w.run, w.at = run, c.Entry
}

// entry checks that an entry is the very next one.
func (w *reader) entry(c stream.Cursor) {
	w.t.Helper()
	run := w.runOf(c)
	if run != w.run {
		if w.run != "" && !w.over {
			w.t.Errorf("an entry of %s comes before the end of %s", run, w.run)
		}
		w.run, w.at, w.over = run, stream.ID{}, false
	}
	if w.over {
		w.t.Errorf("entry %s comes after the end", c.Entry)
	}
	next, ok := w.truth(run).next(w.at)
	if w.at.IsZero() && w.mode == modeEvents && next.Less(w.truth(run).start) {
		next = w.truth(run).start // from=start gives nothing of before a restart
	}
	if !ok || next != c.Entry {
		w.t.Errorf("on run %q: after %s of %s comes %s, not %s: … %s", w.only, w.at, run, c.Entry, next, w.lately())
	}
	w.at = c.Entry
}

// lately are the newest words.
func (w *reader) lately() string { return strings.Join(w.words[max(0, len(w.words)-12):], " ") }

// joined takes one event for several entries.
func (w *reader) joined(c stream.Cursor) {
	w.t.Helper()
	if !w.at.Less(c.Entry) {
		w.t.Errorf("after %s comes %s", w.at, c.Entry)
	}
	w.run, w.at = w.runOf(c), c.Entry
}

func (w *reader) ended(run *stream.RunID) {
	w.t.Helper()
	if run == nil || *run != w.run {
		w.t.Errorf("%v has ended, the reader is at %q", run, w.run)
		return
	}
	if end := w.truth(w.run).end; end.IsZero() || w.at.Less(end) {
		w.t.Errorf("%s has ended at %s, the reader is at %s", w.run, end, w.at)
	}
	w.over = true
}

// runOf is the run that a cursor belongs to.
func (w *reader) runOf(c stream.Cursor) stream.RunID {
	if !c.HasRun {
		return w.only
	}
	w.rig.mu.Lock()
	defer w.rig.mu.Unlock()
	for run := range w.rig.runs {
		if stream.HashRun(run) == c.Run {
			return run
		}
	}
	return ""
}

// truth is a copy of what is known of a run.
func (w *reader) truth(run stream.RunID) *truth {
	w.rig.mu.Lock()
	defer w.rig.mu.Unlock()
	if tr := w.rig.runs[run]; tr != nil {
		c := *tr
		return &c
	}
	return &truth{}
}

// next is the entry after id.
func (tr *truth) next(id stream.ID) (stream.ID, bool) {
	i, found := slices.BinarySearchFunc(tr.ids, id, func(a, b stream.ID) int { return a.Compare(b) })
	if found {
		i++
	}
	if i == len(tr.ids) {
		return stream.ID{}, false
	}
	return tr.ids[i], true
}

// settled checks that nothing is left that a figure counts once all sessions are closed.
func (r *rig) settled(t *testing.T) {
	t.Helper()
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	if f := r.Figures(); f.Subscribers != 0 || f.Waiting != 0 || f.Feeds != 0 {
		t.Errorf("%d subscribers, %d waiting feeds of %d when all have gone", f.Subscribers, f.Waiting, f.Feeds)
	}
}
