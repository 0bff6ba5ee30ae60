package agui_test

import (
	"strings"
	"testing"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/oracle"
)

func apply(run *agui.Run, lines ...string) (out []agui.Verdict) {
	for i, l := range lines {
		out = append(out, run.Apply(agui.Entry{At: agui.Position{Hi: uint64(i + 1)}, Event: []byte(l)}))
	}
	return out
}

const started = `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`

// The rule (I3): a patch that would end the client's run is withheld, with no trace in the state.
func TestAPatchThatBreaksTheClientIsWithheld(t *testing.T) {
	for name, patch := range map[string]string{
		"a function copied into the state":   `[{"op":"copy","from":"/toString","path":"/f"}]`,
		"the state moved into itself":        `[{"op":"add","path":"/b","value":1},{"op":"move","from":"","path":"/self"}]`,
		"a function moved out of a built-in": `[{"op":"move","from":"/a/constructor/of","path":"/f"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			run := agui.NewRun(nil, agui.RunConfig{})
			v := apply(run, started, `{"type":"STATE_SNAPSHOT","snapshot":{"a":[1]}}`, `{"type":"STATE_DELTA","delta":`+patch+`}`)[2]
			if v.Send || v.Fold || v.Reason != agui.ReasonIllegal {
				t.Errorf("verdict %+v", v)
			}
			if got := string(run.View().State()); got != `{"a":[1]}` {
				t.Errorf("state %s", got)
			}
		})
	}
}

// The rule: the client is indeed broken by such a patch, so that withholding it isn't too strict.
func TestTheClientDoesBreakByAFunctionInItsState(t *testing.T) {
	o := oracle.Start(t)
	r := o.Replay(t, oracle.Job{Lines: [][]byte{
		[]byte(started), []byte(`{"type":"STATE_SNAPSHOT","snapshot":{}}`),
		[]byte(`{"type":"STATE_DELTA","delta":[{"op":"copy","from":"/toString","path":"/f"}]}`),
	}})
	if r.OK {
		t.Error("the client accepted it")
	}
}

// The rule: a run that is nothing but its RUN_ERROR still shows what it started from.
func TestARunOfOnlyAnErrorShowsItsInput(t *testing.T) {
	run := agui.NewRun(nil, agui.RunConfig{})
	run.Apply(agui.Entry{
		Event: []byte(`{"type":"RUN_ERROR","message":"no"}`),
		Input: []byte(`{"threadId":"t","runId":"r","messages":[{"id":"u","role":"user","content":"q"}]}`),
	})
	p := run.View().Preamble()
	if len(p.Start) != 1 || len(p.Past) != 1 || !strings.Contains(string(p.Past[0]), `"content":"q"`) || len(p.Terminal) != 1 {
		t.Errorf("%s %s %s", p.Start, p.Past, p.Terminal)
	}
}

// The rule: an invalid message of a recorded input is left out, and the history is partial.
func TestAnInputWithAnInvalidMessageIsPartial(t *testing.T) {
	run := agui.NewRun(nil, agui.RunConfig{})
	run.Apply(agui.Entry{
		Event: []byte(started),
		Input: []byte(`{"threadId":"t","runId":"r","messages":[{"id":"u","role":"user","content":"q"},{"id":5,"role":"user"}]}`),
	})
	v := run.View()
	if v.Full || len(v.MessageIDs()) != 1 {
		t.Errorf("full %v, messages %v", v.Full, v.MessageIDs())
	}
}
