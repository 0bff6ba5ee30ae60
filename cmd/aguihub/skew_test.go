package main_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/stream/streamtest"
)

// TestClocksThatAreSet has the clock of Redis an hour ahead of the hubs', and sets it on and back while runs go on, so that
// leases lapse at once, or not for an hour: no run is ended while its hub lives, nor is its thread let go of, whether the
// agent has begun or not; and those of a hub that is lost are ended all the same.
func TestClocksThatAreSet(t *testing.T) {
	t.Parallel()
	eager, silent := newSlowAgent(t), newSlowAgent(t)
	close(eager.begin)
	server, clock := streamtest.StartSkewed(t, time.Hour)
	client := server.Client(t)
	const ttl = 9 * time.Second
	args := []string{"--redis", server.URL(), "--lease-ttl", ttl.String(), "--agent", "eager=" + eager.URL, "--agent", "silent=" + silent.URL}
	doomed, other := startHub(t, args...), startHub(t, args...)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	names := []string{"eager", "silent"}
	for _, name := range names {
		go func() { _, _ = askAgent(ctx, doomed, name, "1") }()
	}
	eventually(t, "both agents are asked", func() bool {
		silent.mu.Lock()
		defer silent.mu.Unlock()
		return silent.active["t-silent"] == 1 && client.XLen(ctx, "agui:run:eager1").Val() == 1
	})
	// Longer than the grace, and the second time until a claim of a thread was renewed.
	for i, step := range []struct{ ahead, wait time.Duration }{{2 * time.Hour, ttl}, {-time.Hour, ttl}} {
		clock.Set(t, step.ahead)
		time.Sleep(step.wait)
		for _, name := range names {
			if got := ends(t, client, name+"1"); len(got) > 0 {
				t.Fatalf("clock %d: %s1 ends with %q", i, name, got)
			}
			if status, err := askAgent(ctx, other, name, fmt.Sprintf("-beside%d", i)); err != nil || status != http.StatusConflict {
				t.Fatalf("clock %d: beside %s1: %d %v", i, name, status, err)
			}
		}
	}
	if err := doomed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	clock.Set(t, -2*time.Hour)
	if left := client.PTTL(ctx, "{agui:run:eager1}:lease").Val(); left < time.Hour/2 {
		t.Fatalf("the lease has %v left: the clock wasn't set", left)
	}
	for _, name := range names {
		eventually(t, name+" is ended", func() bool { return len(ends(t, client, name+"1")) > 0 })
		if got := ends(t, client, name+"1"); len(got) != 1 || got[0] != "RUN_ERROR producer_lost" {
			t.Errorf("%s1 ends with %q", name, got)
		}
	}
	t.Logf("ended %v after the hub was killed, with a lease of %v", time.Since(killed).Round(100*time.Millisecond), ttl)
	inOrder(ctx, t, client, "eager1")
}

// askAgent starts a run of an agent in the agent's own thread, and returns when it has ended or was refused.
func askAgent(ctx context.Context, h *hub, agent, run string) (status int, err error) {
	const input = `{"threadId":"t-%[1]s","runId":"%[1]s%[2]s","state":{},"messages":[],"tools":[],"context":[],"forwardedProps":{}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.base+"/v1/agents/"+agent, strings.NewReader(fmt.Sprintf(input, agent, run)))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// inOrder checks that the clock didn't get into the order of a run's entries.
func inOrder(ctx context.Context, t *testing.T, client *redis.Client, run string) {
	t.Helper()
	entries := client.XRange(ctx, "agui:run:"+run, "-", "+").Val()
	if len(entries) < 2 || !strings.Contains(entries[0].Values["event"].(string), "RUN_STARTED") {
		t.Errorf("%s has %v", run, entries)
	}
}
