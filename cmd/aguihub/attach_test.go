package main_test

import (
	"strings"
	"testing"

	"github.com/aguihub/aguihub/stream/streamtest"
)

// The rule: an attach says what it waits for; one whose hub is killed comes back with its cursor, and prints each event once.
func TestAttachComesBackWhereItsHubWasKilled(t *testing.T) {
	t.Parallel()
	server := streamtest.StartRedis(t)
	client := server.Client(t)
	all := strings.Split(strings.TrimSpace(events("again")), "\n")
	first := startHub(t, "--redis", server.URL())
	tool := first.attach("again")
	tool.stderr.waitLine(t, "waiting for again") // the run isn't there yet, and the silence is explained
	xadd(t, client, "again", all[0])
	xadd(t, client, "again", all[1])
	tool.stdout.waitLine(t, "TEXT_MESSAGE_START")
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.done
	xadd(t, client, "again", all[2])
	tool.stderr.waitLine(t, "coming back")
	startHub(t, "--redis", server.URL(), "--listen", strings.TrimPrefix(first.base, "http://"))
	tool.stdout.waitLine(t, "TEXT_MESSAGE_CONTENT")
	xadd(t, client, "again", all[3])
	xadd(t, client, "again", all[4])
	if code := tool.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	printed := tool.stdout.all()
	for _, typ := range []string{"RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"} {
		if n := strings.Count(printed, `"type":"`+typ+`"`); n != 1 {
			t.Errorf("%s was printed %d times:\n%s", typ, n, printed)
		}
	}
}
