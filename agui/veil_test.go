package agui_test

import (
	"strings"
	"testing"

	"github.com/aguihub/aguihub/agui"
)

func TestWhatAVeilHidesOfAnEvent(t *testing.T) {
	for name, c := range map[string]struct{ event, veiled, propless string }{
		"of an input all but the state": {
			`{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"threadId":"t","runId":"r","state":{"a":1},"messages":[{"id":"s","role":"system","content":"x"}],"tools":[{"n":1}],"context":[],"forwardedProps":{"key":"secret"}}}`,
			`{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"threadId":"t","runId":"r","state":{"a":1},"messages":[],"tools":[],"context":[]}}`,
			`{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"threadId":"t","runId":"r","state":{"a":1},"messages":[{"id":"s","role":"system","content":"x"}],"tools":[{"n":1}],"context":[]}}`,
		},
		"system and developer messages, and encrypted values": {
			`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"1","role":"system","content":"x"},{"id":"2","role":"developer","content":"x"},{"id":"3","role":"user","content":"hi"},{"id":"4","role":"assistant","encryptedValue":"x","toolCalls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"},"encryptedValue":"x"}]}]}`,
			`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"3","role":"user","content":"hi"},{"id":"4","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}]}`,
			"",
		},
		"keys and roles however they are written": {
			`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"1","r\u006fle":"syst\u0065m","content":"x"},{"id":"2","role":"user","role":"system","content":"x"},{"id":"4","role":"reasoning","content":"","encrypted\u0056alue":"x"}]}`,
			`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"4","role":"reasoning","content":""}]}`,
			"",
		},
		"rawEvent of any event": {
			`{"type":"CUSTOM","name":"n","value":1,"rawEvent":{"secret":1}}`, `{"type":"CUSTOM","name":"n","value":1}`, "",
		},
		"encrypted values wherever they stand": {
			`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":"encryptedValue","encrypted\u0056alue":"x","extra":[1,{"encryptedValue":{"a":[1]},"b":"ü\u00fc"},[],{}]}`,
			`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":"encryptedValue","extra":[1,{"b":"ü\u00fc"},[],{}]}`, "",
		},
		"encrypted values of events of unknown types, and of CUSTOM": {
			`{ "type" : "NEW_THING" , "deep" : { "encryptedValue" : "x" , "a" : 1 , "encryptedValue" : { } } , "encryptedValue" : "x" }`,
			`{"type":"NEW_THING","deep":{"a":1}}`, "",
		},
		"encrypted values in parts of messages": {
			`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"4","role":"assistant","content":[{"type":"text","encryptedValue":"x"}],"toolCalls":[{"id":"c","function":{"name":"f","arguments":"{}","encryptedValue":"x"}}]}],"encryptedValue":"x"}`,
			`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"4","role":"assistant","content":[{"type":"text"}],"toolCalls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]}]}`, "",
		},
		"but nothing in documents that patches go by": {
			`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"4","role":"activity","encryptedValue":"x","content":{"encryptedValue":"mine"}}]}`,
			`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"4","role":"activity","content":{"encryptedValue":"mine"}}]}`, "",
		},
		"a state": {
			`{"type":"STATE_SNAPSHOT","snapshot":{"encryptedValue":"mine"},"encryptedValue":"x"}`,
			`{"type":"STATE_SNAPSHOT","snapshot":{"encryptedValue":"mine"}}`, "",
		},
		"a patch of a state":        {`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/a","value":{"encryptedValue":"mine"}}]}`, "", ""},
		"an activity":               {`{"type":"ACTIVITY_SNAPSHOT","messageId":"m","activityType":"a","content":{"encryptedValue":"mine"}}`, "", ""},
		"a patch of an activity":    {`{"type":"ACTIVITY_DELTA","messageId":"m","activityType":"a","patch":[{"op":"add","path":"/encryptedValue","value":{"encryptedValue":"mine"}}]}`, "", ""},
		"the state of an input":     {`{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"threadId":"t","runId":"r","state":{"encryptedValue":"mine"},"messages":[],"tools":[],"context":[]}}`, "", ""},
		"RAW":                       {`{"type":"RAW","event":{}}`, "nothing", ""},
		"REASONING_ENCRYPTED_VALUE": {`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"m","encryptedValue":"x"}`, "nothing", ""},
		"what can't be read":        {`{"type":`, "nothing", ""},
		"a text: nothing":           {`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"encryptedValue rawEvent"}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			want := c.veiled
			switch want {
			case "":
				want = c.event
			case "nothing":
				want = ""
			}
			if got := string(agui.Veiled([]byte(c.event))); got != want {
				t.Errorf("veiled:\n%s\nwant\n%s", got, want)
			}
			if want = c.propless; want == "" {
				want = c.event
			}
			if got := string(agui.WithoutProps([]byte(c.event))); got != want {
				t.Errorf("without forwardedProps:\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// What a veiled subscriber gets must be legal for the client: openings, contents and closings of one message go together.
func TestAVeiledRunIsLegalWhereverOneAttaches(t *testing.T) {
	events := []string{
		`{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"threadId":"t","runId":"r","state":{},"messages":[{"id":"s0","role":"system","content":"secret"},{"id":"u","role":"user","content":"hi","encryptedValue":"secret"}],"tools":[],"context":[],"forwardedProps":"secret"}}`,
		`{"type":"TEXT_MESSAGE_START","messageId":"s1","role":"system","rawEvent":"secret"}`,
		`{"type":"TEXT_MESSAGE_CONTENT","messageId":"s1","delta":"secret"}`,
		`{"type":"TEXT_MESSAGE_START","messageId":"a","role":"assistant","encryptedValue":"secret"}`,
		`{"type":"STEP_STARTED","stepName":"s","encryptedValue":"secret","rawEvent":"secret"}`,
		`{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"f","encryptedValue":"secret"}`,
		`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"hello","encryptedValue":"secret"}`,
		`{"type":"TOOL_CALL_END","toolCallId":"c","encryptedValue":"secret"}`,
		`{"type":"TOOL_CALL_RESULT","toolCallId":"c","messageId":"tr","content":"x","role":"tool","encryptedValue":"secret","more":{"encryptedValue":"secret"}}`,
		`{"type":"REASONING_START","messageId":"g","encryptedValue":"secret"}`,
		`{"type":"REASONING_MESSAGE_START","messageId":"g1","role":"reasoning","encryptedValue":"secret"}`,
		`{"type":"REASONING_MESSAGE_END","messageId":"g1"}`,
		`{"type":"REASONING_END","messageId":"g","encryptedValue":"secret"}`,
		`{"type":"STEP_FINISHED","stepName":"s"}`,
		`{"type":"TEXT_MESSAGE_END","messageId":"s1"}`,
		`{"type":"TEXT_MESSAGE_CHUNK","messageId":"s2","role":"developer","delta":"secret"}`,
		`{"type":"TEXT_MESSAGE_CHUNK","delta":"secret"}`,
		`{"type":"RAW","event":"secret"}`,
		`{"type":"CUSTOM","name":"n","value":{"encryptedValue":"secret"},"rawEvent":"secret"}`,
		`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"s0","role":"system","content":"secret"},{"id":"u","role":"user","content":"hi"},{"id":"a","role":"assistant","content":"hello","more":[{"encryptedValue":"secret"}]},{"id":"s3","role":"developer","content":"secret"}]}`,
		`{"type":"TEXT_MESSAGE_START","messageId":"s4","role":"developer"}`,
		`{"type":"TEXT_MESSAGE_CONTENT","messageId":"s4","delta":"secret"}`,
		`{"type":"RUN_FINISHED","threadId":"t","runId":"r","rawEvent":"secret","result":{"encryptedValue":"secret"}}`,
	}
	// shown is what a veiled subscriber gets of an entry.
	shown := func(v agui.Verdict) (out []string) {
		for i, c := range v.Closings {
			if len(v.PrivateClosings) == 0 || !v.PrivateClosings[i] {
				out = append(out, string(agui.Veiled(c)))
			}
		}
		if v.Send && !v.Private {
			if e := agui.Veiled(v.Event); e != nil {
				out = append(out, string(e))
			}
		}
		return out
	}
	for from := range events {
		for behind := range from + 1 {
			var got []string
			run := agui.NewRun(nil, agui.RunConfig{})
			for i, e := range events {
				v := run.Apply(agui.Entry{At: agui.Position{Hi: uint64(i + 1)}, Event: []byte(e)})
				if v.Reason != "" && v.Reason != agui.ReasonUnclosed {
					t.Fatal(v)
				}
				switch {
				case i <= behind && behind < from || i > from:
					got = append(got, shown(v)...)
				case i == from && behind < from: // caught up by snapshot
					p, ok := run.View().Veiled().CatchUp(agui.Position{Hi: uint64(behind + 1)})
					if !ok {
						t.Fatal("no catch-up")
					}
					got = append(got, flat(p.Closings, p.Past, p.Passing, p.Lanes, p.Terminal)...)
				case i == from:
					p := run.View().Veiled().Preamble()
					got = append(got, flat(p.Start, p.Past, p.Passing, p.Lanes, p.Terminal)...)
				}
			}
			if all := strings.Join(got, "\n"); strings.Contains(all, "secret") || !strings.Contains(all, "hello") || !strings.Contains(all, `"content":"hi"`) && from > 0 && behind == from {
				t.Fatalf("attached at %d, behind at %d:\n%s", from, behind, all)
			}
			judge := agui.NewRun(nil, agui.RunConfig{})
			for i, e := range got {
				if v := judge.Apply(agui.Entry{At: agui.Position{Hi: uint64(i + 1)}, Event: []byte(e)}); !v.Send || v.Reason != "" {
					t.Fatalf("attached at %d, behind at %d: %s %s: %s\nof\n%s", from, behind, v.Reason, v.Detail, e, strings.Join(got, "\n"))
				}
			}
		}
	}
}

func flat(lists ...[][]byte) (out []string) {
	for _, l := range lists {
		for _, e := range l {
			out = append(out, string(e))
		}
	}
	return out
}

func TestARunStaysInItsThread(t *testing.T) {
	run := agui.NewRun(nil, agui.RunConfig{})
	apply := func(e string) agui.Verdict {
		return run.Apply(agui.Entry{At: agui.Position{Hi: 1}, Event: []byte(e)})
	}
	if v := apply(`{"type":"RUN_STARTED","threadId":"t1","runId":"r"}`); !v.Send {
		t.Fatal(v)
	}
	if v := apply(`{"type":"RUN_STARTED","threadId":"t2","runId":"r"}`); v.Send || v.Restart || v.Reason != agui.ReasonOtherThread {
		t.Errorf("another thread: %+v", v)
	}
	if v := apply(`{"type":"RUN_STARTED","threadId":"t\u0031","runId":"r"}`); !v.Send || !v.Restart {
		t.Errorf("the same thread: %+v", v)
	}
}
