package agui

import (
	"slices"
	"testing"
)

func TestParseInput(t *testing.T) {
	in, err := ParseInput([]byte(`{"threadId":"t","runId":"r","parentRunId":"p","state":null,"messages":[],"tools":[],"context":[],
		"forwardedProps":{},"resume":[{"interruptId":"i1","status":"resolved","payload":1},{"interruptId":"i2","status":"cancelled"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if in.ThreadID != "t" || in.RunID != "r" || in.ParentRunID != "p" || !slices.Equal(in.Resume, []string{"i1", "i2"}) {
		t.Fatalf("%+v", in)
	}
	for name, raw := range map[string]string{
		"not JSON":                       `{`,
		"an array":                       `[]`,
		"no thread":                      `{"runId":"r","messages":[]}`,
		"no messages":                    `{"threadId":"t","runId":"r"}`,
		"a message without an id":        `{"threadId":"t","runId":"r","messages":[{"role":"user","content":"x"}]}`,
		"a resume without a status":      `{"threadId":"t","runId":"r","messages":[],"resume":[{"interruptId":"i"}]}`,
		"a tool without a description":   `{"threadId":"t","runId":"r","messages":[],"tools":[{"name":"x"}]}`,
		"a run id that is a number":      `{"threadId":"t","runId":1,"messages":[]}`,
		"a parent's id that is a number": `{"threadId":"t","runId":"r","parentRunId":1,"messages":[]}`,
	} {
		if in, err := ParseInput([]byte(raw)); err == nil {
			t.Errorf("%s: %+v", name, in)
		}
	}
}
