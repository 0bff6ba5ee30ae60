package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"

	"github.com/aguihub/aguihub/agui"
)

// checkCommand tells what of a stream the official client would reject.
type checkCommand struct {
	Target   string `arg:"" name:"file|run" help:"A file of events, one JSON object a line; - for standard input; or a run's id, which the hub is asked about."`
	JSON     bool   `help:"Print one JSON object instead of text."`
	MaxEvent size   `default:"8MiB" placeholder:"SIZE" help:"Largest event, for files (${default})."`
	hubFlag
}

// finding is one thing that is wrong.
type finding struct {
	Line   int    `json:"line,omitempty"`   // of a file
	Last   int    `json:"last,omitempty"`   // line of the last of several that are the same
	Count  int    `json:"count,omitempty"`  // how many are the same, where it is more than one
	Cursor string `json:"cursor,omitempty"` // of a run's entry
	Run    string `json:"run,omitempty"`    // of several in one file
	Type   string `json:"type,omitempty"`
	Reason string `json:"reason"`
	Detail string `json:"detail,omitempty"`
	Hint   string `json:"hint,omitempty"`
}

// result is what a check found. Notes are worth knowing and nothing that the client rejects.
type result struct {
	Target   string    `json:"target"`
	Events   int       `json:"events"`
	Runs     int       `json:"runs"`
	Findings []finding `json:"findings"`
	More     int       `json:"more,omitempty"` // findings that the hub counted and keeps no longer
	Notes    []string  `json:"notes"`

	same map[finding]int // findings without their places, and where in Findings they are
}

// add notes a finding. Those that are the same but for their place are one.
func (r *result) add(f finding) {
	cause := f
	cause.Line, cause.Cursor = 0, ""
	if cause.Reason == string(agui.ReasonBeforeStart) || cause.Reason == string(agui.ReasonAfterEnd) {
		cause.Type, cause.Detail = "", "" // whatever it is that comes there
	}
	at, again := r.same[cause]
	if !again {
		if r.same == nil {
			r.same = map[finding]int{}
		}
		r.same[cause] = len(r.Findings)
		r.Findings = append(r.Findings, f)
		return
	}
	first := &r.Findings[at]
	first.Last, first.Count = f.Line, max(1, first.Count)+1
}

// Run implements the subcommand.
func (c *checkCommand) Run(ctx context.Context, con stdio) error {
	res := &result{Target: c.Target, Findings: []finding{}, Notes: []string{}}
	err := c.check(ctx, con, res)
	if err != nil {
		return err
	}
	if c.JSON {
		encoder := json.NewEncoder(con.out)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(res); err != nil {
			return err
		}
	} else {
		res.print(con.out)
	}
	if len(res.Findings)+res.More > 0 {
		return found()
	}
	return nil
}

func (c *checkCommand) check(ctx context.Context, con stdio, res *result) error {
	if c.Target == "-" {
		return checkStream(con.in, int(c.MaxEvent), res)
	}
	f, err := os.Open(c.Target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c.checkRun(ctx, res)
	case err != nil:
		return usagef("%w", err)
	}
	defer func() { _ = f.Close() }()
	return checkStream(f, int(c.MaxEvent), res)
}

// checkRun asks the hub what it withheld.
func (c *checkCommand) checkRun(ctx context.Context, res *result) error {
	if err := checkRun(c.Target); err != nil {
		return usagef("%s: no such file, and no run: %w", c.Target, err)
	}
	var run struct {
		State    string         `json:"state"`
		History  string         `json:"history"`
		Input    bool           `json:"inputKnown"`
		Entries  int            `json:"entries"`
		Withheld []withheld     `json:"withheld"`
		Reasons  map[string]int `json:"withheldByReason"`
	}
	err := c.getJSON(ctx, &run, "runs", c.Target)
	var p *problem
	switch {
	case errors.As(err, &p) && p.Status == http.StatusNotFound:
		return usagef("%s: no such file, and the hub at %s knows no such run", c.Target, c.URL)
	case err != nil:
		return err
	}
	res.Events, res.Runs = run.Entries, 1
	for _, n := range run.Reasons {
		res.More += n
	}
	res.More = max(0, res.More-len(run.Withheld))
	for _, w := range run.Withheld {
		res.add(finding{Cursor: w.ID, Reason: w.Reason, Detail: w.Detail, Hint: hint(w.Reason, w.Detail, nil)})
	}
	if err := c.checkSpelling(ctx, res); err != nil {
		return err
	}
	switch {
	case run.History != "full" && run.Input:
		res.Notes = append(res.Notes, notePartialPath)
	case run.History != "full":
		res.Notes = append(res.Notes, notePartial)
	}
	switch run.State {
	case "running", "cancel_requested":
		res.Notes = append(res.Notes, "the run goes on")
	case "stalled":
		res.Notes = append(res.Notes, "the run's producer gives no sign of life: a hub is about to end it")
	}
	return nil
}

// checkSpelling looks through a run's events, as the hub lists them, for types in another spelling: they aren't withheld.
func (c *checkCommand) checkSpelling(ctx context.Context, res *result) error {
	var e agui.Event
	err := c.getLines(ctx, func(text []byte) error {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("a line of the run's events: %w", err)
		}
		if l.Event != nil && e.Parse(l.Event) == nil { // what isn't an event is told as withheld
			if f, wrong := misspelt(&e); wrong {
				f.Cursor = l.ID
				res.add(f)
			}
		}
		return nil
	}, "runs", c.Target, "events")
	if p, ok := errors.AsType[*problem](err); ok && p.Status == http.StatusGone {
		res.Notes = append(res.Notes, "the run's first entries were trimmed: its types weren't looked at for other spellings")
		return nil
	}
	return err
}

type withheld struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

// checkStream reads a file of events. A RUN_STARTED after the end of a run begins the thread's next run.
func checkStream(r io.Reader, maxEvent int, res *result) error {
	in := bufio.NewReaderSize(r, 64<<10)
	s := &streamCheck{config: agui.RunConfig{MaxEvent: maxEvent}, res: res}
	for number := 1; ; number++ {
		text, err := in.ReadBytes('\n')
		s.line(number, bytes.TrimSpace(text))
		if errors.Is(err, io.EOF) {
			s.dispatch()
			s.finish(number)
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading events: %w", err)
		}
	}
}

// streamCheck is the state of a check of one file.
type streamCheck struct {
	config agui.RunConfig
	res    *result

	run     *agui.Run // nil before the first event
	id      string    // of the run, as its RUN_STARTED says
	input   []byte    // a recorded input that waits for its first event
	partial bool      // some run's input isn't known
	framed  bool      // the file is an event stream
	frame   frame     // of it, that goes on
	event   agui.Event
}

func (s *streamCheck) take(number int, text []byte) {
	parsed := s.event.Parse(text) == nil
	if !parsed && s.takeInput(text) {
		return
	}
	s.res.Events++
	starts := parsed && s.event.Type == agui.RunStarted
	if s.run == nil || (starts && s.run.Ended()) {
		s.next()
	}
	if starts {
		s.id = s.event.RunID()
	}
	v := s.run.Apply(agui.Entry{Event: text, Input: s.input})
	s.input = nil
	if v.Restart {
		s.res.add(finding{Line: number, Run: s.id, Type: s.event.TypeName(), Reason: "restarted", Detail: "RUN_STARTED while the run is open", Hint: hint("restarted", "", nil)})
	}
	if parsed {
		if f, wrong := misspelt(&s.event); wrong {
			f.Line, f.Run = number, s.id
			s.res.add(f)
			return
		}
	}
	if v.Reason == "" {
		return
	}
	f := finding{Line: number, Run: s.id, Reason: string(v.Reason), Detail: v.Detail, Hint: hint(string(v.Reason), v.Detail, text)}
	if parsed {
		f.Type = s.event.TypeName()
	}
	s.res.add(f)
}

// misspelt finds an event whose type is another spelling of one that there is: the client drops it in silence.
func misspelt(e *agui.Event) (finding, bool) {
	if e.Type != agui.TypeUnknown {
		return finding{}, false
	}
	known := agui.Misspelt(e.TypeName())
	return finding{Type: e.TypeName(), Reason: "unknown_type", Detail: "the type is " + known, Hint: hint("unknown_type", "", nil)}, known != ""
}

// takeInput takes a line {"input":{…}} as ingest does: the RunAgentInput of the run that follows.
func (s *streamCheck) takeInput(text []byte) bool {
	if s.run != nil && !s.run.Ended() {
		return false
	}
	var holder map[string]json.RawMessage
	if json.Unmarshal(text, &holder) != nil || len(holder) != 1 || len(holder["input"]) == 0 || holder["input"][0] != '{' {
		return false
	}
	s.input = slices.Clone(holder["input"])
	return true
}

// next begins a run, over what the one before has left.
func (s *streamCheck) next() {
	var base *agui.Conversation
	if s.run != nil {
		s.partial = s.partial || !s.run.Full()
		base = s.run.Conversation()
	}
	s.run, s.id = agui.NewRun(base, s.config), ""
	s.res.Runs++
}

// finish says what is wrong with the stream as a whole.
func (s *streamCheck) finish(lines int) {
	if s.framed {
		s.res.Notes = append(s.res.Notes, noteFramed)
	}
	if s.run == nil {
		s.res.Findings = append(s.res.Findings, finding{Line: lines, Reason: "empty", Detail: "no event", Hint: "A run begins with RUN_STARTED, and ends with RUN_FINISHED or RUN_ERROR."})
		return
	}
	if !s.run.Ended() {
		s.res.Findings = append(s.res.Findings, finding{
			Line: lines, Run: s.id, Reason: "no_end", Detail: "the stream ends without a terminal event", Hint: hint("no_end", "", nil),
		})
	}
	if s.partial || !s.run.Full() {
		s.res.Notes = append(s.res.Notes, notePartial)
	}
}

// where says the place of a finding, and how many more there are of it.
func (f *finding) where() string {
	switch {
	case f.Line == 0 && f.Count > 1:
		return fmt.Sprintf("%s and %d more", f.Cursor, f.Count-1)
	case f.Line == 0:
		return f.Cursor
	case f.Count > 1 && f.Count == f.Last-f.Line+1:
		return fmt.Sprintf("lines %d to %d", f.Line, f.Last)
	case f.Count > 1:
		return fmt.Sprintf("line %d, and %d more up to line %d", f.Line, f.Count-1, f.Last)
	}
	return fmt.Sprintf("line %d", f.Line)
}

// print writes the result for people.
func (r *result) print(w io.Writer) {
	for _, f := range r.Findings {
		_, _ = fmt.Fprintf(w, "%s%s: %s", f.where(), prefixed(": ", f.Type), f.Reason)
		if f.Detail != "" {
			_, _ = fmt.Fprintf(w, ": %s", f.Detail)
		}
		_, _ = fmt.Fprintln(w)
		if f.Hint != "" {
			_, _ = fmt.Fprintf(w, "    %s\n", f.Hint)
		}
	}
	if r.More > 0 {
		_, _ = fmt.Fprintf(w, "and %d more, earlier ones\n", r.More)
	}
	for _, n := range r.Notes {
		_, _ = fmt.Fprintf(w, "note: %s\n", n)
	}
	verdict := "clean: the official client takes all of it"
	if n := len(r.Findings) + r.More; n > 0 {
		verdict = fmt.Sprintf("%d finding%s", n, plural(n))
	}
	_, _ = fmt.Fprintf(w, "%s: %d event%s in %d run%s, %s\n", r.Target, r.Events, plural(r.Events), r.Runs, plural(r.Runs), verdict)
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
