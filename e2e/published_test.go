package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/oracle"
)

// published is a stream under ids of its own, and what a hub must make of it.
type published struct {
	name   string
	thread string
	runs   []*run
	legacy bool
	// initial is what a client that watched had started with, before the first event.
	initial *oracle.Initial
}

// run is what goes to one key.
type run struct {
	id, thread string
	lines      [][]byte
	input      []byte // recorded with the first entry; nil for none

	// Of each entry, as package agui has it.
	sent      [][][]byte // what subscribers get
	started   []bool     // an attach after it finds something
	openCalls []bool     // a tool call is open after it
	reasons   []string   // why it is withheld or was changed
	// end is the index of the entry that ends the run, or of the last one; begin that of the last restart, or 0.
	begin, end int
	ends       bool
}

var tags atomic.Int64

// prepare gives a stream ids that no other has: its cases must not meet each other in one thread.
func prepare(s oracle.Stream, withInput bool) *published {
	tag := fmt.Sprintf("e2e%d", tags.Add(1))
	p := &published{name: s.Name, thread: "t-" + tag, legacy: s.Legacy, initial: s.Initial}
	parts := s.Runs
	if parts == nil {
		parts = []oracle.Run{{Lines: s.Lines}}
	}
	ids := map[string]string{}
	for i, part := range parts {
		ids[part.RunID] = fmt.Sprintf("r-%s-%d", tag, i)
	}
	var base *agui.Conversation
	for i, part := range parts {
		r := &run{id: fmt.Sprintf("r-%s-%d", tag, i), thread: p.thread, end: len(part.Lines) - 1}
		for _, line := range part.Lines {
			r.lines = append(r.lines, rename(line, p.thread, ids))
		}
		if withInput {
			r.input = userInput(r)
		}
		base = r.fold(base)
		p.runs = append(p.runs, r)
	}
	if in := p.runs[0].input; in != nil {
		p.initial = &oracle.Initial{Messages: memberOf(in, "messages"), State: memberOf(in, "state")}
	}
	return p
}

// fold finds out what is sent of a run that goes on from base.
func (r *run) fold(base *agui.Conversation) *agui.Conversation {
	f := agui.NewRun(base, agui.RunConfig{})
	for i, line := range r.lines {
		en := agui.Entry{Event: line}
		if i == 0 {
			en.Input = r.input
		}
		v := f.Apply(en)
		if v.Restart {
			r.begin = i
		}
		sent := slices.Clone(v.Closings)
		if v.Instead != nil {
			sent = append(sent, v.Instead)
		} else if v.Send {
			sent = append(sent, v.Event)
		}
		if v.End {
			r.end, r.ends = i, true
		}
		r.sent = append(r.sent, sent)
		r.started = append(r.started, f.Started() || f.Ended())
		r.openCalls = append(r.openCalls, f.View().HasOpenCalls())
		r.reasons = append(r.reasons, string(v.Reason))
	}
	return f.Conversation()
}

// tail is what is sent after entry i.
func (r *run) tail(i int) [][]byte { return slices.Concat(r.sent[i+1:]...) }

// until is what is sent up to entry i.
func (r *run) until(i int) [][]byte { return slices.Concat(r.sent[min(r.begin, i) : i+1]...) }

// all is what a client that watches gets of all runs.
func (p *published) all() [][]byte { return p.first(math.MaxInt) }

// first is what it gets of the first k entries. The input of a later run, where it is only recorded, comes to it with RUN_STARTED.
func (p *published) first(k int) [][]byte {
	var out [][]byte
	for i, r := range p.runs {
		n := min(k, len(r.lines))
		if n == 0 {
			break
		}
		k -= n
		lines := r.until(n - 1)
		if i > 0 && r.input != nil && len(lines) > 0 {
			lines = slices.Clone(lines)
			start := bytes.TrimSuffix(bytes.TrimSpace(lines[0]), []byte("}"))
			lines[0] = bytes.Join([][]byte{start, []byte(`,"input":`), r.input, []byte("}")}, nil)
		}
		out = append(out, lines...)
	}
	return out
}

// userInput is a RunAgentInput with the user's own message; nil where RUN_STARTED has one.
func userInput(r *run) []byte {
	var first struct {
		Type, ThreadID, RunID string
		Input                 json.RawMessage
	}
	if len(r.lines) == 0 || json.Unmarshal(r.lines[0], &first) != nil || first.Type != "RUN_STARTED" || first.Input != nil {
		return nil
	}
	return fmt.Appendf(nil, `{"threadId":%q,"runId":%q,"state":{},"tools":[],"context":[],"forwardedProps":{},`+
		`"messages":[{"id":"user-of-%s","role":"user","content":"the user's own question \u2028 \ud83d\ude00"}]}`, r.thread, r.id, r.id)
}

func memberOf(object []byte, name string) []byte {
	var m map[string]json.RawMessage
	if json.Unmarshal(object, &m) != nil {
		return nil
	}
	return m[name]
}

// rename puts other ids into an event that begins or ends a run, or has ids without doing so. All else stays as it is.
func rename(line []byte, thread string, ids map[string]string) []byte {
	var names struct{ RunID, ThreadID, ParentRunID any }
	if json.Unmarshal(line, &names) != nil || (names.RunID == nil && names.ThreadID == nil) {
		return line
	}
	return members(line, func(key string, value json.RawMessage) json.RawMessage {
		switch key {
		case "threadId", "runId", "parentRunId":
			var old string
			if json.Unmarshal(value, &old) != nil || old == "" {
				return value
			}
			name, known := ids[old]
			if key == "threadId" {
				name, known = thread, true
			}
			if known {
				value, _ = json.Marshal(name)
			}
		case "input":
			return rename(value, thread, ids)
		}
		return value
	})
}

// members writes a JSON object anew, member by member. What isn't one comes back as it is.
func members(object []byte, change func(key string, value json.RawMessage) json.RawMessage) []byte {
	d := json.NewDecoder(bytes.NewReader(object))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return object
	}
	out := []byte{'{'}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return object
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return object
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		name, _ := json.Marshal(key)
		out = append(append(append(out, name...), ':'), change(key.(string), value)...)
	}
	return append(out, '}')
}

// add publishes entry i as an agent does and returns its id.
func (r *run) add(ctx context.Context, client *redis.Client, i int) (string, error) {
	values := []any{"event", r.lines[i]}
	if i == 0 && r.input != nil {
		values = append(values, "input", r.input)
	}
	return client.XAdd(ctx, &redis.XAddArgs{Stream: "agui:run:" + r.id, Values: values}).Result()
}

// announce puts the run into the registry as the contract says.
func (r *run) announce(ctx context.Context, client *redis.Client) error {
	now := client.Time(ctx).Val().UnixMilli()
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.XAdd(ctx, &redis.XAddArgs{Stream: "agui:runs", Values: []any{"run", r.id, "thread", r.thread, "state", "started"}})
		p.ZAdd(ctx, "agui:thread:"+r.thread, redis.Z{Score: float64(now), Member: r.id})
		return nil
	})
	return err
}

func (r *run) target() string       { return "runs/" + url.PathEscape(r.id) }
func threadTarget(id string) string { return "threads/" + url.PathEscape(id) }
