package agui

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"
)

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"type":"RAW","event":-0.1e+9}`, " {\"type\" :\r\n\"\\u0052AW\" } ", `{"type":"X","type":5}`, `{"type":"\ud83d\ude00\ud83d"}`, `{"a":01}`, `{"a":"` + "\xff" + `"}`, `[]`, ``, `{"a":{"b":[null,true,false]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		kept := bytes.Clone(raw)
		var e Event
		err := e.Parse(raw)
		if !bytes.Equal(kept, raw) {
			t.Fatal("the input was changed")
		}
		if errors.Is(err, ErrTooDeep) {
			return
		}
		var members map[string]json.RawMessage
		valid := utf8.Valid(raw) && json.Valid(raw)
		isEvent := valid && json.Unmarshal(raw, &members) == nil && isString(members["type"])
		if (err == nil) != isEvent {
			t.Fatalf("Parse says %v, encoding/json event %v", err, isEvent)
		}
		if !valid && !errors.Is(err, ErrNotUTF8) && !errors.Is(err, ErrNotJSON) {
			t.Fatalf("not valid, yet %v", err)
		}
		if err != nil {
			return
		}
		if bytes.ContainsAny(e.Raw, "\r\n") || !json.Valid(e.Raw) {
			t.Fatalf("raw %q", e.Raw)
		}
		var name string
		if json.Unmarshal(members["type"], &name) != nil || (name != e.TypeName() && !bytes.Contains(raw, []byte(`\u`))) {
			t.Fatalf("type %q, want %q", e.TypeName(), name)
		}
		for _, m := range e.fields {
			again := decode(appendString(nil, fieldNames[m.field]))
			if again != fieldNames[m.field] || checkValue(m.value) != nil {
				t.Fatalf("field %s = %s", again, m.value)
			}
		}
	})
}

func FuzzAdmit(f *testing.F) {
	f.Add([]byte(runStarted + "\n" + ev("TEXT_MESSAGE_CHUNK", `"messageId":"a","subagentRunId":"s"`) + "\n" + ev("TEXT_MESSAGE_END", `"messageId":"a"`) + "\n" + ev("TOOL_CALL_RESULT", `"messageId":"a","toolCallId":"c","content":""`)))
	f.Add([]byte(runStarted + "\n" + ev("THINKING_START", "") + "\n" + ev("THINKING_START", `"subagentRunId":"s"`) + "\n" + runStarted + "\n" + ev("STEP_STARTED", `"stepName":"n"`)))
	f.Add([]byte(runStarted + "\n" + ev("SUBAGENT_STARTED", `"subagentRunId":"s","name":"n"`) + "\n" + ev("TOOL_CALL_CHUNK", `"toolCallId":"c","toolCallName":"n"`) + "\n" + ev("MESSAGES_SNAPSHOT", `"messages":[{"role":"user","id":"a","content":[]}]`)))
	f.Add([]byte(runFinished))
	for _, r := range rich {
		f.Add([]byte(runStarted + "\n" + r))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		var a Admission
		for line := range bytes.SplitSeq(stream, []byte("\n")) {
			ended := a.Ended()
			v := admitLines(&a, string(line))
			check(t, &a, v)
			switch {
			case v.Send && v.Reason != "" && v.Reason != ReasonUnclosed,
				!v.Send && v.Reason == "",
				v.Fold && !v.Send && !v.Late,
				ended && (v.Send || v.Instead != nil || v.End),
				v.End != (a.Ended() && !ended),
				(v.Instead != nil) != (v.Reason == ReasonInvalidEnd),
				v.Closings != nil && v.Reason != ReasonUnclosed:
				t.Fatalf("%s: %+v", line, v)
			}
		}
		closeAll(t, &a)
	})
}

func BenchmarkAdmit(b *testing.B) {
	for _, bc := range []struct {
		name   string
		before []string
		event  string
	}{
		{"text content", []string{ev("TEXT_MESSAGE_START", `"messageId":"msg-0123456789"`)}, ev("TEXT_MESSAGE_CONTENT", `"messageId":"msg-0123456789","delta":"four words of text"`)},
		{"tool args", []string{ev("TOOL_CALL_START", `"toolCallId":"call_0123456789","toolCallName":"n"`)}, ev("TOOL_CALL_ARGS", `"toolCallId":"call_0123456789","delta":"{\"a\":1"`)},
		{"text content of a subagent beside lanes", []string{
			ev("TEXT_MESSAGE_START", `"messageId":"msg","subagentRunId":"s"`), ev("TEXT_MESSAGE_CHUNK", `"messageId":"x"`),
		}, ev("TEXT_MESSAGE_CONTENT", `"messageId":"msg","delta":"four words of text","subagentRunId":"s","timestamp":1700000000000`)},
		{"text chunk without id", []string{ev("TEXT_MESSAGE_CHUNK", `"messageId":"msg"`)}, ev("TEXT_MESSAGE_CHUNK", `"delta":"four words of text"`)},
		{"text chunk with id", []string{ev("TEXT_MESSAGE_CHUNK", `"messageId":"msg"`)}, ev("TEXT_MESSAGE_CHUNK", `"messageId":"msg","delta":"four words of text"`)},
	} {
		var a Admission
		admitLines(&a, append([]string{runStarted}, bc.before...)...)
		raw := []byte(bc.event)
		var e Event
		b.Run("admit/"+bc.name, func(b *testing.B) {
			if err := e.Parse(raw); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if v := a.Admit(&e); !v.Send {
					b.Fatal(v.Detail)
				}
			}
		})
		b.Run("parse and admit/"+bc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := e.Parse(raw); err != nil {
					b.Fatal(err)
				}
				if v := a.Admit(&e); !v.Send {
					b.Fatal(v.Detail)
				}
			}
		})
	}
}
