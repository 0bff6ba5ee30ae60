package agui_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aguihub/aguihub/agui"
)

// The rule: a patch that the client could follow and the fold can't, within its bounds, is withheld and said: those who watch and
// those who come later hold the same.
func TestAPatchThatOutgrowsTheBoundsIsWithheld(t *testing.T) {
	large := strings.Repeat("x", 7<<20)
	deep := strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300)
	for name, c := range map[string]struct {
		first   string
		patches []string // the last of them from the sixth time on
		reason  agui.Reason
	}{
		"state, too large": {
			first: `{"type":"STATE_SNAPSHOT","snapshot":{"n":0,"x":"` + large + `"}}`, reason: agui.ReasonTooLarge,
			patches: []string{
				`{"type":"STATE_DELTA","delta":[{"op":"copy","from":"/x","path":"/b%d"},{"op":"replace","path":"/n","value":1}]}`,
				`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/b%d","value":"` + large + `"}]}`,
			},
		},
		"state, too deep": {
			first: `{"type":"STATE_SNAPSHOT","snapshot":` + deep + `}`, reason: agui.ReasonTooDeep,
			patches: []string{`{"type":"STATE_DELTA","delta":[{"op":"copy","from":"","path":"` + strings.Repeat("/a", 299) + `/b%d"}]}`},
		},
		"activity, too large": {
			first: `{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"PLAN","content":{"x":"` + large + `"}}`, reason: agui.ReasonTooLarge,
			patches: []string{
				`{"type":"ACTIVITY_DELTA","messageId":"a","activityType":"PLAN","patch":[{"op":"copy","from":"/x","path":"/b%d"}]}`,
				`{"type":"ACTIVITY_DELTA","messageId":"a","activityType":"PLAN","patch":[{"op":"add","path":"/b%d","value":"` + large + `"}]}`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := agui.NewRun(nil, agui.RunConfig{MaxEvent: 8 << 20})
			n := uint64(0)
			apply := func(event string) agui.Verdict {
				n++
				return run.Apply(agui.Entry{At: agui.Position{Hi: n}, Event: []byte(event)})
			}
			apply(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`)
			if v := apply(c.first); !v.Send {
				t.Fatal(v.Reason, v.Detail)
			}
			for i := range 6 {
				before := string(run.View().State()) + string(run.View().Messages())
				v := apply(fmt.Sprintf(c.patches[min(i/5, len(c.patches)-1)], i))
				after := string(run.View().State()) + string(run.View().Messages())
				if v.Send == (before == after) {
					t.Fatalf("patch %d: sent %v, changed %v", i, v.Send, before != after)
				}
				if !v.Send && v.Reason != c.reason {
					t.Errorf("patch %d: %s, %s", i, v.Reason, v.Detail)
				}
				if i == 5 && v.Send {
					t.Error("the last one still fits: nothing was tried")
				}
			}
			if v := apply(`{"type":"CUSTOM","name":"x","value":1}`); !v.Send {
				t.Error("what comes next:", v.Reason, v.Detail)
			}
		})
	}
}
