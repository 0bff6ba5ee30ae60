package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/aguihub/aguihub/agui"
)

// frame is an event of an event stream that goes on, as SDKs' encoders write them and agents answer over HTTP.
type frame struct {
	name  string
	data  [][]byte // its lines of data
	first int      // the number of the first of them
}

// unframed takes a line of an event stream apart. False where it is none.
func unframed(line []byte) (field string, value []byte, framed bool) {
	name, value, found := bytes.Cut(line, []byte(":"))
	if !found || !slices.Contains([]string{"data", "event", "id", "retry", ""}, string(name)) {
		return "", nil, false
	}
	return string(name), bytes.TrimSpace(value), true
}

// line takes a line of the file. What is no line of an event stream ends its event as an empty one does.
func (s *streamCheck) line(number int, text []byte) {
	field, value, framed := unframed(text)
	if !framed {
		s.dispatch()
		if len(text) > 0 {
			s.take(number, text)
		}
		return
	}
	s.framed = true
	switch field {
	case "event":
		s.frame.name = string(value)
	case "data":
		if s.frame.data == nil {
			s.frame.first = number
		}
		s.frame.data = append(s.frame.data, value)
	}
}

// dispatch takes the event of an event stream that has ended, as ingest and the official client do: its lines are one.
func (s *streamCheck) dispatch() {
	f := s.frame
	s.frame = frame{}
	if f.data == nil {
		return
	}
	text := bytes.Join(f.data, []byte("\n"))
	if f.name == "input" {
		if input, err := json.Marshal(map[string]json.RawMessage{"input": text}); err == nil && s.takeInput(input) {
			return
		}
	}
	if len(f.data) == 1 || json.Valid(text) || !json.Valid(f.data[0]) {
		s.take(f.first, text)
		return
	}
	s.res.add(finding{
		Line: f.first, Run: s.id, Reason: string(agui.ReasonNotJSON), Detail: fmt.Sprintf("%d lines of data without an empty line between them are one event", len(f.data)),
		Hint: "In an event stream an empty line ends each event: data: {…}, then two line ends. What stands there was checked as if it were so.",
	})
	for i, one := range f.data { // roughly at its line: others may stand between
		s.take(f.first+i, one)
	}
}
