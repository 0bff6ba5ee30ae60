package agents_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/aguihub/aguihub/bridge"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport/transporttest"
)

// TestALogThatIsAwayForAWhile takes the log away in the middle of an answer: the run gets its end when the log is back.
func TestALogThatIsAwayForAWhile(t *testing.T) {
	away, back := make(chan struct{}), make(chan struct{})
	r := newRig(t, bridge.Config{}, agent(t, "a", func(w http.ResponseWriter, q *http.Request) {
		a, _ := askedOf(q)
		say(w, a.started(), transporttest.TextStart, transporttest.Text("begun"))
		<-away
		say(w, transporttest.Text("lost"))
		<-q.Context().Done() // the hub can't write, and hangs up
		close(back)
	}))
	leave := r.begin(t, "a", input("t", "r"))
	defer leave()
	r.Log.SetFault(stream.ErrFull)
	close(away)
	<-back
	r.Log.SetFault(nil)
	r.ended(t, "r")
	var ends []string
	for _, en := range r.log(t, "r") {
		if e := string(en.Event); strings.Contains(e, "RUN_FINISHED") || strings.Contains(e, "RUN_ERROR") {
			ends = append(ends, e)
		}
	}
	if len(ends) != 1 || codeOf(t, ends) != "hub_unwritten" {
		t.Fatalf("ends: %q", ends)
	}
}
