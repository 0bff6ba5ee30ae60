package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// progressEvery is how often a person is told how far it got.
const progressEvery = 500 * time.Millisecond

// publishCommand posts events to a run.
type publishCommand struct {
	RunID  string  `arg:"" name:"run" help:"The run's id."`
	Rate   float64 `placeholder:"N" help:"Events per second; without it as fast as they are read."`
	Append bool    `help:"Go on with a run that has entries already. Without it that is an error, so that nothing is published twice."`
	Input  string  `type:"existingfile" placeholder:"FILE" help:"The RunAgentInput (JSON) that the run started from. It makes the run's history full."`
	hubFlag
}

// ingestAnswer is what ingest says, in its answer or as part of a problem.
type ingestAnswer struct {
	Accepted      int         `json:"accepted"`
	Rejected      []rejection `json:"rejected"`
	RejectedTotal int         `json:"rejectedTotal"` // where Rejected isn't all
	Uncertain     int         `json:"uncertain"`
	LastID        string      `json:"lastId"`
	Hint          string      `json:"hint"`
	Cancel        *struct {
		Reason string `json:"reason"`
	} `json:"cancelRequested"`
}

func (a *ingestAnswer) rejected() int { return max(a.RejectedTotal, len(a.Rejected)) }

type rejection struct {
	Index  int    `json:"index"` // in the body, the input counted too
	Path   string `json:"path"`
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

// Run implements the subcommand.
func (c *publishCommand) Run(ctx context.Context, con stdio) error {
	if err := checkRun(c.RunID); err != nil {
		return err
	}
	if c.Rate < 0 {
		return usagef("--rate %g: must be above zero", c.Rate)
	}
	input, err := c.readInput()
	if err != nil {
		return err
	}
	if err := c.refuseExisting(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, pipe := io.Pipe()
	src := &source{in: bufio.NewReaderSize(con.in, 64<<10), input: input, rate: c.Rate}
	// It is not waited for: nothing interrupts a read of standard input, and the process ends soon.
	go func() { pipe.CloseWithError(src.feed(ctx, pipe)) }()
	stopProgress := func() {}
	if isTerminal(con.err) {
		stopProgress = showProgress(con.err, &src.sent)
	}
	answer, err := c.post(ctx, body)
	cancel()
	_ = body.Close() // lets feed go if the hub answered before the end
	stopProgress()
	return c.report(con, src, &answer, err)
}

func (c *publishCommand) readInput() ([]byte, error) {
	if c.Input == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(c.Input)
	if err != nil {
		return nil, usagef("--input: %w", err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, usagef("--input %s: %w", c.Input, err)
	}
	if compact.Len() == 0 || compact.Bytes()[0] != '{' {
		return nil, usagef("--input %s: a RunAgentInput is a JSON object", c.Input)
	}
	return compact.Bytes(), nil
}

// refuseExisting fails if the run has entries and the user didn't ask to go on with it.
func (c *publishCommand) refuseExisting(ctx context.Context) error {
	if c.Append {
		return nil
	}
	var run struct {
		Entries int    `json:"entries"`
		State   string `json:"state"`
	}
	err := c.getJSON(ctx, &run, "runs", c.RunID)
	var p *problem
	switch {
	case errors.As(err, &p) && p.Status == http.StatusNotFound:
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("run %s has %d entries already (%s): choose another id, or --append to go on with it", c.RunID, run.Entries, run.State)
}

func (c *publishCommand) post(ctx context.Context, body io.Reader) (ingestAnswer, error) {
	var answer ingestAnswer
	u, err := c.endpoint("runs", c.RunID, "events")
	if err != nil {
		return answer, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), body)
	if err != nil {
		return answer, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	c.show(req.Header)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer, c.unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return answer, c.unreachable(err)
	}
	// Problems of ingest say how far it came, too.
	decodeErr := json.Unmarshal(raw, &answer)
	if resp.StatusCode/100 != 2 {
		return answer, problemOf(resp.StatusCode, raw)
	}
	return answer, decodeErr
}

// report prints what became of the events, by the line that they stood in.
func (c *publishCommand) report(con stdio, src *source, answer *ingestAnswer, err error) error {
	_, _ = fmt.Fprintf(con.out, "accepted %d, rejected %d", answer.Accepted, answer.rejected())
	if answer.Uncertain > 0 {
		_, _ = fmt.Fprintf(con.out, ", uncertain %d", answer.Uncertain)
	}
	if answer.LastID != "" {
		_, _ = fmt.Fprintf(con.out, ", last entry %s", answer.LastID)
	}
	_, _ = fmt.Fprintln(con.out)
	src.mu.Lock()
	framed := src.framed
	src.mu.Unlock()
	if answer.Hint != "" && framed == 0 {
		_, _ = fmt.Fprintf(con.err, "note: %s: was anything written to standard input?\n", answer.Hint)
	}
	if answer.Cancel != nil {
		_, _ = fmt.Fprintf(con.err, "note: somebody asks to cancel the run%s\n", prefixed(": ", answer.Cancel.Reason))
	}
	for _, r := range answer.Rejected {
		detail := r.Detail
		if detail == "" {
			detail = r.Path
		}
		_, _ = fmt.Fprintf(con.out, "%s: %s%s\n", src.place(r.Index), r.Reason, prefixed(": ", detail))
	}
	switch {
	case framed > 0 && err == nil:
		return c.framedError(framed)
	case answer.rejected() > 0 && err == nil:
		_, _ = fmt.Fprintln(con.err, "aguihub: rejected events were not published; aguihub check FILE tells how to mend them")
		return found()
	case errors.Is(err, context.Canceled):
		return interrupted()
	case answer.rejected() > 0:
		return fmt.Errorf("%w\naguihub check FILE tells how to mend it", err)
	default:
		return err
	}
}

// framedError says how an event stream is published.
func (c *publishCommand) framedError(line int) error {
	return fmt.Errorf(`line %d is of an event stream, as agents answer over HTTP: nothing from there on was published. Either take the events out of it, one a line:
    sed -n 's/^data: *//p' FILE | aguihub publish %s%s
or post it as it is:
    curl -X POST -H 'Content-Type: text/event-stream' --data-binary @FILE %s/v1/runs/%s/events`,
		line, c.RunID, c.elsewhere(), strings.TrimRight(c.URL, "/"), url.PathEscape(c.RunID))
}

// prefixed is s behind its separator, nothing where s is empty.
func prefixed(sep, s string) string {
	if s == "" {
		return ""
	}
	return sep + s
}

// source turns standard input into the body of one ingest request.
type source struct {
	in    *bufio.Reader
	input []byte
	rate  float64

	sent atomic.Int64

	mu sync.Mutex
	// guarded by mu
	lines  []int // the line number of each event that was read
	framed int   // the number of a line of an event stream, at which reading ended; 0 for none
}

// feed writes one event a line, paced, until the input ends.
func (s *source) feed(ctx context.Context, w io.Writer) error {
	if s.input != nil {
		if _, err := fmt.Fprintf(w, "{\"input\":%s}\n", s.input); err != nil {
			return err
		}
	}
	start := time.Now()
	for number := 1; ; number++ {
		text, err := s.in.ReadBytes('\n')
		trimmed := bytes.TrimSpace(text)
		if _, _, framed := unframed(trimmed); framed {
			s.mu.Lock()
			s.framed = number
			s.mu.Unlock()
			return nil // what came before gets its answer
		}
		if len(trimmed) > 0 {
			if s.rate > 0 {
				due := start.Add(time.Duration(float64(s.sent.Load()) / s.rate * float64(time.Second)))
				if err := sleepUntil(ctx, due); err != nil {
					return err
				}
			}
			s.mu.Lock()
			s.lines = append(s.lines, number)
			s.mu.Unlock()
			if _, err := w.Write(append(trimmed, '\n')); err != nil {
				return err
			}
			s.sent.Add(1)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
	}
}

// place says where an item of the body came from.
func (s *source) place(index int) string {
	if s.input != nil {
		if index == 0 {
			return "--input"
		}
		index--
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if index < 0 || index >= len(s.lines) {
		return fmt.Sprintf("event %d", index+1)
	}
	return fmt.Sprintf("line %d", s.lines[index])
}

func sleepUntil(ctx context.Context, due time.Time) error {
	wait := time.Until(due)
	if wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// showProgress writes a line that keeps changing, until the function that it returns is called.
func showProgress(w io.Writer, sent *atomic.Int64) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				_, _ = fmt.Fprintf(w, "\r%d events sent", sent.Load())
			case <-quit:
				_, _ = fmt.Fprint(w, "\r\033[K")
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}
