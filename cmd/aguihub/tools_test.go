package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aguihub/aguihub/stream/streamtest"
)

func TestTools(t *testing.T) {
	t.Parallel()
	h := startHub(t, "--attach-wait", "100ms")
	t.Run("what publish posts is what attach prints, and check finds it clean", func(t *testing.T) {
		t.Parallel()
		input := write(t, `{"threadId":"t-p1","runId":"p1","messages":[{"id":"u1","role":"user","content":"hi"}],"tools":[],"context":[]}`)
		code, stdout, _ := run(t, events("p1"), "publish", "p1", "--url", h.base, "--input", input)
		if code != 0 || !strings.HasPrefix(stdout, "accepted 5, rejected 0") {
			t.Fatalf("publish: exit code %d: %s", code, stdout)
		}
		code, stdout, _ = run(t, "", "attach", "p1", "--url", h.base)
		for _, want := range []string{`"content":"hi"`, `"content":"Hello"`, "RUN_FINISHED"} {
			if code != 0 || !strings.Contains(stdout, want) {
				t.Errorf("attach: exit code %d, without %s:\n%s", code, want, stdout)
			}
		}
		code, stdout, _ = run(t, "", "attach", "p1", "--url", h.base, "--from", "start")
		if code != 0 || stdout != events("p1") {
			t.Errorf("attach from the start: exit code %d:\n%s", code, stdout)
		}
		code, stdout, _ = run(t, "", "check", "p1", "--url", h.base)
		if code != 0 || !strings.Contains(stdout, "clean") || strings.Contains(stdout, "note:") {
			t.Errorf("check: exit code %d: %s", code, stdout)
		}
	})
	t.Run("check of a run tells of camelCase, though the hub doesn't keep the event", func(t *testing.T) {
		t.Parallel()
		agent := streamtest.Client(t, h.redis)
		for _, event := range []string{`{"type":"RUN_STARTED","threadId":"t-c1","runId":"c1"}`, `{"type":"TEXT_MESSAGE_START","message_id":"m","role":"assistant"}`} {
			xadd(t, agent, "c1", event)
		}
		if code, stdout, stderr := run(t, "", "check", "c1", "--url", h.base); code != 1 || !strings.Contains(stdout, "camelCase") {
			t.Errorf("exit code %d: %s%s", code, stdout, stderr)
		}
	})
	t.Run("check of a run tells of a type in another spelling, which nobody withholds", func(t *testing.T) {
		t.Parallel()
		agent := streamtest.Client(t, h.redis)
		for _, event := range []string{`{"type":"RUN_STARTED","threadId":"t-c2","runId":"c2"}`, `{"type":"text_message_start","messageId":"m","role":"assistant"}`, `{"type":"OURS"}`} {
			xadd(t, agent, "c2", event)
		}
		code, stdout, stderr := run(t, "", "check", "c2", "--url", h.base)
		if code != 1 || !strings.Contains(stdout, ": text_message_start: unknown_type: the type is TEXT_MESSAGE_START") || !strings.Contains(stdout, ", 1 finding\n") {
			t.Errorf("exit code %d: %s%s", code, stdout, stderr)
		}
	})
	t.Run("attach tells of entries none of which begins the run, at once and at the end", func(t *testing.T) {
		t.Parallel()
		xadd(t, streamtest.Client(t, h.redis), "nb1", `{"type":"RUN_STARTED","runId":"nb1"}`)
		code, stdout, stderr := run(t, "", "attach", "nb1", "--url", h.base)
		if code != 1 || stdout != "" {
			t.Errorf("exit code %d: %s", code, stdout)
		}
		for _, want := range []string{
			"nb1: entries are there, but none begins it; waiting for a RUN_STARTED that the client takes", ": malformed (aguihub check nb1 --url " + h.base,
			"run nb1: entries are there, but none begins it (4404 the run has entries, but none that begins it", "Try aguihub check nb1 --url " + h.base + ".",
		} {
			if !strings.Contains(stderr, want) {
				t.Errorf("without %q:\n%s", want, stderr)
			}
		}
		if status, body, err := get(t.Context(), h.base+"/v1/runs/nb1/sse"); err != nil || status != 404 || !strings.Contains(body, `"code":"run_not_begun"`) {
			t.Errorf("over SSE: %d %s %v", status, body, err)
		}
	})
	t.Run("what is missing of a history is told of where it is missing", func(t *testing.T) {
		t.Parallel()
		input := write(t, `{"threadId":"t-h","runId":"h2","messages":[],"tools":[],"context":[]}`)
		of := func(id string) string {
			return fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t-h","runId":%q}`+"\n"+`{"type":"RUN_FINISHED","threadId":"t-h","runId":%q}`+"\n", id, id)
		}
		for _, args := range [][]string{{"publish", "h1"}, {"publish", "h2", "--input", input}} {
			if code, _, stderr := run(t, of(args[1]), append(args, "--url", h.base)...); code != 0 {
				t.Fatal(code, stderr)
			}
		}
		if _, stdout, _ := run(t, "", "check", "h1", "--url", h.base); !strings.Contains(stdout, "note: no input recorded") {
			t.Error(stdout)
		}
		if _, stdout, _ := run(t, "", "check", "h2", "--url", h.base); !strings.Contains(stdout, "note: the run's input is recorded, but that of an earlier run") {
			t.Error(stdout)
		}
	})
	t.Run("attach tells why a key is no run", func(t *testing.T) {
		t.Parallel()
		if err := streamtest.Client(t, h.redis).Set(t.Context(), "agui:run:w1", "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if code, _, stderr := run(t, "", "attach", "w1", "--url", h.base); code != 1 || !strings.Contains(stderr, "run w1: the run's key in Redis is no stream (4404)") {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	})
	t.Run("publish refuses an event stream, and says how to publish it", func(t *testing.T) {
		t.Parallel()
		lines := strings.SplitAfter(events("p9"), "\n")
		framed := "data: " + strings.Join(lines, "\ndata: ")
		code, stdout, stderr := run(t, framed, "publish", "p9", "--url", h.base)
		if code != 1 || !strings.HasPrefix(stdout, "accepted 0") || !strings.Contains(stderr, "line 1 is of an event stream") || !strings.Contains(stderr, "sed -n 's/^data: *//p'") || strings.Contains(stderr, "standard input?") {
			t.Errorf("exit code %d: %s%s", code, stdout, stderr)
		}
		code, stdout, stderr = run(t, lines[0]+framed, "publish", "p9", "--url", h.base)
		if code != 1 || !strings.HasPrefix(stdout, "accepted 1") || !strings.Contains(stderr, "line 2 is of an event stream") {
			t.Errorf("exit code %d: %s%s", code, stdout, stderr)
		}
	})
	t.Run("publish says where nothing was read", func(t *testing.T) {
		t.Parallel()
		if code, stdout, stderr := run(t, "", "publish", "p0", "--url", h.base); code != 0 || !strings.HasPrefix(stdout, "accepted 0") || !strings.Contains(stderr, "no event") {
			t.Errorf("exit code %d: %s%s", code, stdout, stderr)
		}
	})
	t.Run("publish refuses a run that has entries, unless told to append", func(t *testing.T) {
		t.Parallel()
		all := strings.SplitAfter(events("p2"), "\n")
		if code, _, stderr := run(t, strings.Join(all[:3], ""), "publish", "p2", "--url", h.base); code != 0 {
			t.Fatalf("publish: exit code %d: %s", code, stderr)
		}
		if code, _, stderr := run(t, strings.Join(all[3:], ""), "publish", "p2", "--url", h.base); code != 1 || !strings.Contains(stderr, "--append") {
			t.Errorf("publish again: exit code %d: %s", code, stderr)
		}
		if code, _, stderr := run(t, strings.Join(all[3:], ""), "publish", "p2", "--url", h.base, "--append"); code != 0 {
			t.Errorf("publish --append: exit code %d: %s", code, stderr)
		}
		if code, stdout, _ := run(t, "", "attach", "p2", "--url", h.base, "--from", "start"); code != 0 || stdout != events("p2") {
			t.Errorf("attach: exit code %d:\n%s", code, stdout)
		}
	})
	t.Run("publish says which line was rejected", func(t *testing.T) {
		t.Parallel()
		bad := `{"type":"RUN_STARTED","threadId":"t-p3","runId":"p3"}` + "\n\n" + `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"x"}` + "\n"
		code, stdout, stderr := run(t, bad, "publish", "p3", "--url", h.base)
		if code != 1 || !strings.Contains(stdout, "accepted 1, rejected 1") || !strings.Contains(stdout, "line 3: illegal") || !strings.Contains(stderr, "aguihub check FILE tells how to mend it") {
			t.Errorf("exit code %d: %s%s", code, stdout, stderr)
		}
	})
	t.Run("publish --rate paces", func(t *testing.T) {
		t.Parallel()
		before := time.Now()
		if code, _, stderr := run(t, events("p4"), "publish", "p4", "--url", h.base, "--rate", "20"); code != 0 {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		if took := time.Since(before); took < 200*time.Millisecond {
			t.Errorf("five events at 20 a second took %v", took)
		}
	})
	t.Run("attach to an unknown run exits with 1 and says so", func(t *testing.T) {
		t.Parallel()
		if code, _, stderr := run(t, "", "attach", "nobody", "--url", h.base); code != 1 || !strings.Contains(stderr, "unknown run nobody") {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	})
	t.Run("attach --after something that is no cursor exits with 2 and says what one looks like", func(t *testing.T) {
		t.Parallel()
		for _, after := range []string{"garbage", "1764512345678-0", "1764512345678-0.1a2b"} {
			code, stdout, stderr := run(t, "", "attach", "p1", "--url", h.base, "--after", after)
			if code != 2 || stdout != "" || !strings.Contains(stderr, after) || !strings.Contains(stderr, "<entry id>.<8 hex digits>") {
				t.Errorf("%s: exit code %d: %s%s", after, code, stdout, stderr)
			}
		}
	})
	t.Run("attach to a thread goes on from run to run", func(t *testing.T) {
		t.Parallel()
		a := h.attach("--thread", "t9", "--lines")
		for _, id := range []string{"n1", "n2"} {
			text := strings.ReplaceAll(events(id), `"t-`+id+`"`, `"t9"`)
			if code, _, stderr := run(t, text, "publish", id, "--url", h.base); code != 0 {
				t.Fatalf("publish: exit code %d: %s", code, stderr)
			}
			a.stdout.waitLine(t, `"ended","run":"`+id+`"`)
		}
		a.terminate()
		if code := a.exit(); code != 130 {
			t.Errorf("exit code %d, want 130 when a signal ends it", code)
		}
	})
	t.Run("no hub at the URL is said in words", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{{"attach", "r1"}, {"publish", "r1"}, {"check", "r1"}} {
			code, _, stderr := run(t, "", append(args, "--url", "http://127.0.0.1:1")...)
			if code != 1 || !strings.Contains(stderr, "no hub at http://127.0.0.1:1") {
				t.Errorf("%s: exit code %d: %s", args[0], code, stderr)
			}
		}
	})
	t.Run("an id that no run can have is refused before anybody is asked", func(t *testing.T) {
		t.Parallel()
		for _, tool := range []string{"attach", "publish", "check"} {
			if code, _, stderr := run(t, "", tool, "a/b"); code != 2 || !strings.Contains(stderr, "id") {
				t.Errorf("%s: exit code %d: %s", tool, code, stderr)
			}
		}
	})
}

func TestCheckOfAFile(t *testing.T) {
	t.Parallel()
	const started = `{"type":"RUN_STARTED","threadId":"t","runId":"r"}` + "\n"
	const finished = `{"type":"RUN_FINISHED","threadId":"t","runId":"r"}` + "\n"
	for name, c := range map[string]struct {
		in    string
		code  int
		wants []string
	}{
		"a whole run is clean, with a note about its input": {started + finished, 0, []string{"clean", "note: no input"}},
		"a run with its input is clean": {
			`{"input":{"threadId":"t","runId":"r","messages":[],"tools":[],"context":[]}}` + "\n" + started + finished, 0,
			[]string{"2 events in 1 run, clean"},
		},
		"two runs are told apart":      {started + finished + strings.ReplaceAll(started+finished, `"r"`, `"r2"`), 0, []string{"4 events in 2 runs"}},
		"content without a start":      {started + `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x"}` + "\n" + finished, 1, []string{"line 2: TEXT_MESSAGE_CONTENT: illegal", "TEXT_MESSAGE_START"}},
		"snake case":                   {`{"type":"RUN_STARTED","thread_id":"t","run_id":"r"}` + "\n", 1, []string{"run_id → runId", "by_alias"}},
		"null in an optional field":    {started + `{"type":"STEP_STARTED","stepName":"s","timestamp":null}` + "\n" + finished, 1, []string{"line 2", "null"}},
		"a terminal event without ids": {started + `{"type":"RUN_FINISHED","runId":"r"}` + "\n", 1, []string{"invalid_end", "needs threadId and runId"}},
		"something left open":          {started + `{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}` + "\n" + finished, 1, []string{"line 3", "unclosed", `"m"`}},
		"no terminal event":            {started, 1, []string{"no_end"}},
		"events after the end":         {started + finished + `{"type":"CUSTOM","name":"a","value":1}` + "\n" + `{"type":"CUSTOM","name":"b","value":1}` + "\n", 1, []string{"lines 3 to 4", "after_end", "1 finding"}},
		"a run that starts twice":      {started + started + finished, 1, []string{"line 2", "restarted"}},
		"pretty-printed JSON":          {"{\n\"type\":\"RUN_STARTED\"\n}\n", 1, []string{"not_json", "one line"}},
		"nothing":                      {"", 1, []string{"empty"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(t, c.in, "check", "-")
			if code != c.code {
				t.Errorf("exit code %d, want %d: %s", code, c.code, stderr)
			}
			for _, want := range c.wants {
				if !strings.Contains(stdout, want) {
					t.Errorf("it doesn't say %q:\n%s", want, stdout)
				}
			}
		})
	}
	t.Run("--json is one object", func(t *testing.T) {
		t.Parallel()
		code, stdout, _ := run(t, "", "check", write(t, started), "--json")
		var res struct {
			Findings []struct {
				Line   int
				Reason string
			}
		}
		if err := json.Unmarshal([]byte(stdout), &res); err != nil || code != 1 || len(res.Findings) != 1 || res.Findings[0].Reason != "no_end" {
			t.Errorf("exit code %d, %v: %s", code, err, stdout)
		}
	})
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
