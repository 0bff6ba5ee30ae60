package transport_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/stream"
	tt "github.com/aguihub/aguihub/transport/transporttest"
)

// secretive publishes a run whose input, snapshots and raw events hold secrets, up to its end where it is given.
func (g *guarded) secretive(t *testing.T, run, thread string, more ...string) {
	t.Helper()
	time.Sleep(2 * time.Millisecond) // runs start in order
	g.Append(t, run, append([]string{
		fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%[2]q,"runId":%[1]q,"rawEvent":"SECRET","input":{"threadId":%[2]q,"runId":%[1]q,"state":{"seen":true},`+
			`"messages":[{"id":"s","role":"system","content":"SECRET"},{"id":"u-%[1]s","role":"user","content":"asked by %[1]s"}],"tools":[],"context":[{"description":"d","value":"SECRET"}],"forwardedProps":{"key":"PROPS"}}}`, run, thread),
		`{"type":"RAW","event":"SECRET"}`,
		`{"type":"CUSTOM","name":"n","value":1,"rawEvent":"SECRET"}`,
		`{"type":"TEXT_MESSAGE_START","messageId":"d","role":"developer"}`,
		`{"type":"TEXT_MESSAGE_CONTENT","messageId":"d","delta":"SECRET"}`,
		`{"type":"TEXT_MESSAGE_END","messageId":"d"}`,
		`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"d","encryptedValue":"SECRET"}`,
		fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","messageId":"a-%s","role":"assistant","encryptedValue":"SECRET"}`, run),
		fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a-%[1]s","delta":"answer of %[1]s"}`, run),
		fmt.Sprintf(`{"type":"TEXT_MESSAGE_END","messageId":"a-%s"}`, run),
		`{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"f","encryptedValue":"SECRET","of":[{"encryptedValue":"SECRET"}]}`,
		`{"type":"CUSTOM","name":"n","value":[{"encryptedValue":"SECRET"}]}`,
		`{"type":"TOOL_CALL_END","toolCallId":"c"}`,
		`{"type":"TEXT_MESSAGE_START","messageId":"x","role":"SECRET"}`,
	}, more...)...)
	info := stream.RunInfo{Run: stream.RunID(run), Thread: stream.ThreadID(thread), State: stream.RunStarted}
	if err := g.Registry.Announce(t.Context(), info); err != nil {
		t.Fatal(err)
	}
}

// Section 7: who lacks the scope input sees neither what runs started from nor what agents hide; forwardedProps nobody sees.
func TestWhoLacksTheScopeInputSeesNoSecrets(t *testing.T) {
	g := newGuarded(t)
	g.secretive(t, "r1", "t1", tt.Finished("r1", "t1"))
	rights := auth.Rights{Scopes: []auth.Scope{auth.Attach, auth.Read}, Threads: []string{"t1"}}
	viewer := token(t, rights, time.Hour)
	rights.Scopes = append(rights.Scopes, auth.Input)
	owner := token(t, rights, time.Hour)
	for _, path := range []string{
		"/v1/runs/r1/ws", "/v1/runs/r1/ws?raw=1", "/v1/runs/r1/ws?from=start", "/v1/runs/r1/sse", "/v1/runs/r1/sse?raw=1", "/v1/runs/r1/sse?from=start",
		"/v1/runs/r1/events", "/v1/threads/t1/messages", "/v1/runs/r1",
	} {
		read := func(token string) string {
			if strings.Contains(path, "/ws") {
				_, got := g.attach(t, path, bearer(token), "ag-ui.hub.v1.json")
				return got
			}
			_, _, got := g.do(t, "GET", path, token, "")
			return got
		}
		if got := read(viewer); strings.Contains(got, "SECRET") || strings.Contains(got, "PROPS") || path != "/v1/runs/r1" && !strings.Contains(got, "answer of r1") {
			t.Errorf("%s, without the scope:\n%s", path, got)
		}
		if got := read(owner); strings.Contains(got, "PROPS") || path != "/v1/runs/r1" && !strings.Contains(got, "SECRET") {
			t.Errorf("%s, with the scope:\n%s", path, got)
		}
	}
}

// A viewer who is attached when a run starts gets the user's message, which stands in the input, by a snapshot.
func TestAViewerSeesTheUsersMessageOfALiveRun(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.secretive(t, "r1", "t1")
	viewer := token(t, auth.Rights{Scopes: []auth.Scope{auth.Attach}, Threads: []string{"t1"}}, brief)
	got := make(chan string, 2)
	for _, path := range []string{"/v1/threads/t1/ws", "/v1/threads/t1/sse"} {
		go func() {
			text := ""
			defer func() { got <- text }()
			if strings.HasSuffix(path, "/ws") {
				_, text = g.attach(t, path, bearer(viewer), "ag-ui.hub.v1.json")
				return
			}
			_, _, text = g.do(t, "GET", path, viewer, "")
		}()
	}
	for deadline := time.Now().Add(time.Minute); g.Service.Figures().Subscribers < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody is attached")
		}
	}
	g.Append(t, "r1", tt.Finished("r1", "t1"))
	g.secretive(t, "r2", "t1", tt.Finished("r2", "t1"))
	for range 2 {
		text := <-got
		for _, want := range []string{"asked by r1", "answer of r1", "asked by r2", "answer of r2"} {
			if !strings.Contains(text, want) {
				t.Errorf("without %q:\n%s", want, text)
			}
		}
		if strings.Contains(text, "SECRET") || strings.Contains(text, "PROPS") {
			t.Errorf("secrets:\n%s", text)
		}
	}
}

func TestARunStaysInItsThreadWhoeverPublishes(t *testing.T) {
	g := newGuarded(t)
	g.Begin(t, "r1", "t1")
	g.Append(t, "r1", tt.Started("r1", "t2"), tt.TextStart, tt.Text("still here"), tt.TextEnd)
	both := token(t, auth.Rights{Scopes: allScopes, Runs: []string{"r1"}, Threads: []string{"t1", "t2"}}, time.Hour)
	if _, _, text := g.do(t, "GET", "/v1/runs/r1", both, ""); !strings.Contains(text, `"other_thread":1`) || !strings.Contains(text, `"thread":"t1"`) {
		t.Errorf("by XADD: %s", text)
	}
	if status, _, text := g.do(t, "POST", "/v1/runs/r1/events", both, tt.Started("r1", "t2")); status != 422 || !strings.Contains(text, "other_thread") {
		t.Errorf("by HTTP: %d %s", status, text)
	}
	of2 := token(t, auth.Rights{Scopes: allScopes, Threads: []string{"t2"}}, time.Hour)
	if code, got := g.attach(t, "/v1/runs/r1/ws", bearer(of2)); code != 4404 || got != "" {
		t.Errorf("by the thread that it claims: %d %s", code, got)
	}
}
