package agui

import "testing"

func TestOtherSpellingsOfANameThatIsMissingAreTold(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]string{
		`{"type":"RUN_STARTED","thread_id":"t","run_id":"r"}`:                                                 `/threadId: expected a value, got nothing: "thread_id" isn't its name`,
		`{"type":"TEXT_MESSAGE_END","MessageID":"m"}`:                                                         `/messageId: expected a value, got nothing: "MessageID" isn't its name`,
		`{"type":"TEXT_MESSAGE_END","message":"m"}`:                                                           `/messageId: expected a value, got nothing`,
		`{"type":"TEXT_MESSAGE_END","message\u005fid":"m"}`:                                                   `/messageId: expected a value, got nothing`,
		`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"tool","content":"x","tool-call-id":"c"}]}`: `/messages/0/toolCallId: expected a value, got nothing: "tool-call-id" isn't its name`,
	} {
		var e Event
		if err := e.Parse([]byte(event)); err != nil {
			t.Fatalf("%s: %v", event, err)
		}
		if p := checkEvent(&e); p == nil || p.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", event, p, want)
		}
	}
}

func TestMisspeltTypes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"text_message_content": "TEXT_MESSAGE_CONTENT", "TextMessageContent": "TEXT_MESSAGE_CONTENT", "run-started": "RUN_STARTED",
		"RUN_STARTED": "", "": "", "MINE": "", "_": "",
	} {
		if got := Misspelt(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
