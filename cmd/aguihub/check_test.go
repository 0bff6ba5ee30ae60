package main_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestCheckReadsWhatPeopleHave(t *testing.T) {
	t.Parallel()
	const start, end = `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`, `{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`
	check := func(t *testing.T, lines ...string) (int, string) {
		t.Helper()
		code, stdout, stderr := run(t, strings.Join(lines, "\n"), "check", "-")
		if stderr != "" {
			t.Error(stderr)
		}
		return code, stdout
	}
	t.Run("tells of a type in another spelling, whose events the client drops in silence", func(t *testing.T) {
		t.Parallel()
		code, said := check(t, start, `{"type":"text_message_start","messageId":"m","role":"assistant"}`, `{"type":"OURS"}`, end)
		if code != 1 || !strings.Contains(said, "line 2: text_message_start: unknown_type: the type is TEXT_MESSAGE_START") || !strings.Contains(said, ", 1 finding\n") {
			t.Errorf("exit code %d: %s", code, said)
		}
	})
	t.Run("reads an event stream as an agent answers it", func(t *testing.T) {
		t.Parallel()
		code, said := check(t, ": hello", "event: message", "id: 7", "data: "+start, "", "data:"+end, "")
		if code != 0 || !strings.Contains(said, "2 events in 1 run, clean") || !strings.Contains(said, "note: the file is an event stream") {
			t.Errorf("exit code %d: %s", code, said)
		}
		code, said = check(t, "data: "+start, "", `data: {"type":"TEXT_MESSAGE_END","messageId":"m"}`, "", "data: "+end)
		if code != 1 || !strings.Contains(said, "line 3: TEXT_MESSAGE_END: illegal") {
			t.Errorf("exit code %d: %s", code, said)
		}
	})
	t.Run("joins the lines of data of one event, and takes the input that an event stream names", func(t *testing.T) {
		t.Parallel()
		code, said := check(t, "event: input", `data: {"threadId":"t","runId":"r","messages":[],`, `data:  "tools":[],"context":[]}`, "", "data: {", `data: "type":"RUN_STARTED","threadId":"t","runId":"r"`, "data: }", "", "data: "+end)
		if code != 0 || !strings.Contains(said, "2 events in 1 run, clean") || strings.Contains(said, "no input") {
			t.Errorf("exit code %d: %s", code, said)
		}
	})
	t.Run("says that events run into each other where no empty line parts them", func(t *testing.T) {
		t.Parallel()
		code, said := check(t, "data: "+start, "data: "+end)
		if code != 1 || !strings.Contains(said, "line 1: not_json: 2 lines of data without an empty line") || !strings.Contains(said, "2 events in 1 run, 1 finding\n") {
			t.Errorf("exit code %d: %s", code, said)
		}
	})
	t.Run("knows the end mark of another API", func(t *testing.T) {
		t.Parallel()
		for _, lines := range [][]string{{"data: " + start, "", "data: [DONE]", "", "data: " + end, ""}, {"data: " + start, "", "data: " + end, "", "data: [DONE]", ""}} {
			code, said := check(t, lines...)
			if code != 1 || !strings.Contains(said, "[DONE] ends streams of another API") || !strings.Contains(said, ", 1 finding\n") {
				t.Errorf("exit code %d: %s", code, said)
			}
		}
	})
	t.Run("says once what is wrong in the same way several times", func(t *testing.T) {
		t.Parallel()
		content, other := `{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"x"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"b","delta":"x"}`
		code, said := check(t, start, content, content, other, content, end)
		if code != 1 || !strings.Contains(said, `line 2, and 2 more up to line 5: TEXT_MESSAGE_CONTENT: illegal: no text message "a"`) || !strings.Contains(said, ", 2 findings\n") {
			t.Errorf("exit code %d: %s", code, said)
		}
		_, said, _ = run(t, strings.Join([]string{start, content, content, end}, "\n"), "check", "-", "--json")
		var res struct {
			Findings []struct{ Line, Last, Count int }
		}
		if err := json.Unmarshal([]byte(said), &res); err != nil || len(res.Findings) != 1 || res.Findings[0] != struct{ Line, Last, Count int }{2, 3, 2} {
			t.Errorf("%v: %s", err, said)
		}
	})
	t.Run("says which lines come before the start", func(t *testing.T) {
		t.Parallel()
		code, said := check(t, `{"type":"STEP_STARTED","stepName":"a"}`, `{"type":"STEP_FINISHED","stepName":"a"}`, start, end)
		if code != 1 || !strings.Contains(said, "lines 1 to 2: STEP_STARTED: before_start") {
			t.Errorf("exit code %d: %s", code, said)
		}
	})
}

func TestHelpIsACommand(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"help"}, {"help", "check"}, {"help", "help"}, {"help", "help", "check"}} {
		named := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "help" })
		_, want, _ := run(t, "", append(named, "--help")...)
		if code, said, _ := run(t, "", args...); code != 0 || said != want || !strings.Contains(said, "Usage: aguihub") {
			t.Errorf("%v: exit code %d: %s", args, code, said)
		}
	}
}
