package main_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/stream/streamtest"
)

// The ACLs of docs/security.md: an agent may write its runs and nothing else, and a hub needs no more than its role.
func TestRolesInRedis(t *testing.T) {
	t.Parallel()
	server := streamtest.StartRedis(t)
	admin := server.Client(t)
	for _, rules := range []string{
		"agent on >agentpw resetkeys %W~agui:run:* resetchannels &agui:wake -@all +xadd +publish",
		"hub on >hubpw resetkeys ~agui:* ~{agui:* resetchannels &agui:wake &__keyspace@* -@all +@all -@admin -@dangerous +info",
	} {
		args := []any{"ACL", "SETUSER"}
		for word := range strings.FieldsSeq(rules) {
			args = append(args, word)
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	host := strings.TrimPrefix(server.URL(), "redis://")
	h := startHub(t, "--redis", "redis://hub:hubpw@"+host)
	agent := redis.NewClient(&redis.Options{Addr: strings.TrimSuffix(host, "/"), Username: "agent", Password: "agentpw"})
	defer func() { _ = agent.Close() }()
	for line := range strings.Lines(events("r1")) {
		xadd(t, agent, "r1", strings.TrimSpace(line))
	}
	if code, stdout, stderr := run(t, "", "attach", "r1", "--url", h.base); code != 0 || !strings.Contains(stdout, "Hello") {
		t.Errorf("attach: exit code %d: %s %s", code, stdout, stderr)
	}
	if code, _, stderr := run(t, events("r2"), "publish", "r2", "--url", h.base); code != 0 {
		t.Errorf("publish through the hub: exit code %d: %s", code, stderr)
	}
	for name, err := range map[string]error{
		"reading a run":      agent.XRange(t.Context(), "agui:run:r1", "-", "+").Err(),
		"writing a lease":    agent.Do(t.Context(), "XADD", "{agui:run:r1}:lease", "*", "a", "b").Err(),
		"the registry":       agent.Do(t.Context(), "XADD", "agui:runs", "*", "a", "b").Err(),
		"another tenant":     agent.Do(t.Context(), "XADD", "agui-acme:run:r1", "*", "event", "{}").Err(),
		"deleting":           agent.Del(t.Context(), "agui:run:r1").Err(),
		"another's channel":  agent.Publish(t.Context(), "other", "x").Err(),
		"the server's state": agent.ConfigGet(t.Context(), "*").Err(),
	} {
		if err == nil || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("an agent may do what it shouldn't: %s: %v", name, err)
		}
	}
	if strings.Contains(h.stderr.all(), "NOPERM") || strings.Contains(h.stderr.all(), "hubpw") {
		t.Error("the hub lacks a right, or tells its password")
	}
}
