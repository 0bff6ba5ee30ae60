package main_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aguihub/aguihub/stream/streamtest"
)

// TestTheEphemeralModeLeavesNothingOfARun tests docs/security.md, "The ephemeral mode": a minute after a run's end Redis
// has nothing of what was said. Every key that holds a word of it has to have an expiry by then, which is Redis' to keep.
func TestTheEphemeralModeLeavesNothingOfARun(t *testing.T) {
	t.Parallel()
	server := streamtest.StartRedis(t)
	client := server.Client(t)
	h := startHub(t, "--redis", server.URL(), "--retention=0", "--checkpoints=off", "--thread-retention=0")
	const words = "Hello"
	// Enough for a checkpoint, were there any.
	const delta = `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"Hello"}` + "\n"
	body := `{"input":{"threadId":"t-r1","runId":"r1","messages":[{"id":"u1","role":"user","content":"Hello?"}],"state":{},"tools":[],"context":[],"forwardedProps":{}}}` + "\n" +
		strings.Replace(events("r1"), delta, strings.Repeat(strings.Replace(delta, words, strings.Repeat(words, 1200), 1), 16), 1)
	reader := h.attach("--thread", "t-r1")
	if code, stdout, stderr := run(t, body, "publish", "r1", "--url", h.base); code != 0 {
		t.Fatalf("publish: exit code %d: %s %s", code, stdout, stderr)
	}
	reader.stdout.waitLine(t, "RUN_FINISHED")

	ctx := t.Context()
	left := map[string]time.Duration{} // of keys with an expiry
	var stays []string
	// Ids only. Stored small strings are readable in a dump; nothing here is large enough to be compressed.
	want := []string{"agui:runs", "agui:thread:t-r1"}
	defer func() { t.Logf("with an expiry: %v; without: %v", left, stays) }()
	eventually(t, "whatever holds words has an expiry", func() bool {
		keys, err := client.Keys(ctx, "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		clear(left)
		stays = nil
		for _, key := range keys {
			ttl, err := client.PTTL(ctx, key).Result()
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case ttl > 0:
				left[key] = ttl
			case ttl == -1:
				stays = append(stays, key)
			}
		}
		slices.Sort(stays)
		return left["agui:run:r1"] > 0 && slices.Equal(stays, want) // a key that is just being made gets its expiry soon
	})
	for key, ttl := range left {
		if ttl > time.Minute && key != "agui:janitor" { // whose turn it is to tidy up
			t.Errorf("%s stays %v", key, ttl)
		}
	}
	for _, key := range stays {
		if dump, err := client.Dump(ctx, key).Bytes(); err != nil || bytes.Contains(dump, []byte(words)) {
			t.Errorf("%s holds what was said: %v", key, err)
		}
	}
	if strings.Contains(h.stderr.all(), words) {
		t.Error("the log holds what was said")
	}
}
