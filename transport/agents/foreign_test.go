package agents_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/bridge"
	"github.com/aguihub/aguihub/transport"
	"github.com/aguihub/aguihub/transport/transporttest"
)

// TestAnAgentCantLeaveItsCallersThreads: a run's thread is what its first RUN_STARTED says, and that is the agent's to
// write. It must not put a run into a thread that whoever called it may not write (I10).
func TestAnAgentCantLeaveItsCallersThreads(t *testing.T) {
	const secret = "a secret of at least thirty-two bytes"
	r := newRig(t, bridge.Config{}, agent(t, "liar", func(w http.ResponseWriter, req *http.Request) {
		a, _ := askedOf(req)
		thread := "theirs"
		if a.RunID == "r2" {
			thread = "mine-too"
		}
		say(w, transporttest.Started(a.RunID, thread), transporttest.TextStart, transporttest.Text("secret"), transporttest.TextEnd,
			transporttest.Finished(a.RunID, thread))
	}))
	verifier, err := auth.NewVerifier(t.Context(), []auth.Issuer{{Iss: "test", Key: secret}}, nil)
	must(t, err)
	r.Access = transport.NewAccess(transport.AccessConfig{Verifier: verifier}, r.Logger)
	asking := httptest.NewServer(r.Handler(t))
	t.Cleanup(asking.Close)
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "test", "sub": "kim", "exp": time.Now().Add(time.Hour).Unix(), "scope": "publish attach",
		"aguihub": map[string]any{"runs": []string{"r1", "r2"}, "threadPrefixes": []string{"mine"}},
	}).SignedString([]byte(secret))
	must(t, err)
	for run, want := range map[string]string{"r1": "agent_invalid", "r2": "RUN_FINISHED"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, asking.URL+"/v1/agents/liar", strings.NewReader(input("mine", run)))
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := r.client.Do(req)
		must(t, err)
		must(t, resp.Body.Close()) // leaving doesn't stop the run
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("run %s: %d", run, resp.StatusCode)
		}
		r.ended(t, run)
		var events []string
		for _, e := range r.log(t, run) {
			events = append(events, string(e.Event))
		}
		if got := codeOf(t, events); got != want {
			t.Errorf("run %s ends with %s, want %s", run, got, want)
		}
		if all := strings.Join(events, "\n"); run == "r1" && (strings.Contains(all, "theirs") || strings.Contains(all, "secret")) {
			t.Errorf("what the agent wrote is in the log:\n%s", all)
		}
	}
	if runs, err := r.Registry.Thread(t.Context(), "theirs", 10); err != nil || len(runs) > 0 {
		t.Errorf("the other thread has runs: %v %v", runs, err)
	}
}
