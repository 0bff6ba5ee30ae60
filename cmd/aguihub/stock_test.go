package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/aguihub/aguihub/oracle"
	"github.com/aguihub/aguihub/stream/streamtest"
)

// madeUp are ids that the SDK makes up anew for each run, and times.
var madeUp = regexp.MustCompile(`msg-\d+-\w+|\d{4}-\d\d-\d\dT[\d:.]+Z`)

// TestAStockAgentThroughTheBridge calls an agent that no one here wrote, with two versions of the official client, straight and
// through hubs of which the first is killed while an interrupt is open. What the client holds in the end is the same.
func TestAStockAgentThroughTheBridge(t *testing.T) {
	t.Parallel()
	agent, clients := oracle.StartStock(t, "tanstack.mjs"), oracle.StartHTTPAgents(t)
	redis := streamtest.StartRedis(t)
	args := []string{"--redis", redis.URL(), "--agent", "a=" + agent}
	first, second := startHub(t, args...), startHub(t, args...)
	said := func(id, text string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`[{"id":%q,"role":"user","content":%q}]`, id, text))
	}
	versions := []string{oracle.V1, oracle.V059}
	talk := func(url, version, thread string) oracle.HTTPResult {
		got := clients.Run(t, oracle.HTTPJob{Version: version, URL: url, ThreadID: thread, Turns: []oracle.HTTPTurn{
			{RunID: thread + "-1", Messages: said("u1", "hello")},
			{RunID: thread + "-2", Messages: said("u2", "fail")},
			{RunID: thread + "-3", Messages: said("u3", "ask")},
		}})
		for i, turn := range got.Turns {
			if !turn.OK || (turn.RunError != "") != (i == 1) {
				t.Errorf("%s %s: turn %d: %+v", url, version, i, turn)
			}
		}
		return got
	}
	answer := func(url, version, thread string, held oracle.HTTPResult, run, resume string) oracle.HTTPResult {
		return clients.Run(t, oracle.HTTPJob{
			Version: version, URL: url, ThreadID: thread,
			Initial: &oracle.Initial{Messages: json.RawMessage(held.Messages), State: json.RawMessage(held.State)},
			Turns:   []oracle.HTTPTurn{{RunID: run, Resume: json.RawMessage(resume)}},
		})
	}
	approve := func(thread string) string {
		return fmt.Sprintf(`[{"interruptId":"approval_call-%s-3","status":"resolved","payload":{"approved":true}}]`, thread)
	}
	same := func(what string, direct, bridged oracle.HTTPResult) {
		t.Helper()
		for _, x := range [][2]string{{direct.Messages, bridged.Messages}, {direct.State, bridged.State}, {direct.Pending, bridged.Pending}} {
			if a, b := madeUp.ReplaceAllString(x[0], "…"), madeUp.ReplaceAllString(x[1], "…"); a != b {
				t.Errorf("%s: straight\n%s\nbridged\n%s", what, a, b)
			}
		}
	}
	bridge := func(h *hub) string { return h.base + "/v1/agents/a" }
	direct, bridged := map[string]oracle.HTTPResult{}, map[string]oracle.HTTPResult{}
	for _, version := range versions {
		thread := "t-" + version
		direct[version], bridged[version] = talk(agent, version, thread), talk(bridge(first), version, thread)
		same(version+" up to the interrupt", direct[version], bridged[version])
		if !strings.Contains(bridged[version].Pending, "approval_call") && version == oracle.V1 {
			t.Errorf("%s: pending %s", version, bridged[version].Pending)
		}
	}
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for i, version := range versions {
		thread := "t-" + version
		// The interrupt has outlived the hub: an answer that misses it is refused before anything runs.
		missed := answer(bridge(second), version, thread, bridged[version], thread+"-x", `[{"interruptId":"another","status":"cancelled"}]`)
		if turn := missed.Turns[0]; turn.OK || (turn.Status != 409 && !strings.Contains(turn.Error, "409")) {
			t.Errorf("%s: an answer to another interrupt: %+v", version, turn)
		}
		if n := redis.Client(t).Exists(t.Context(), "agui:run:"+thread+"-x").Val(); n != 0 {
			t.Errorf("%s: it was begun", version)
		}
		d := answer(agent, version, thread, direct[version], thread+"-4", approve(thread))
		b := answer(bridge(second), version, thread, bridged[version], thread+"-4", approve(thread))
		// The SDK wants parentRunId with it, which this client doesn't send: it says so, and the thread has that, too.
		if !b.Turns[0].OK || b.Turns[0].RunError == "" || b.Turns[0].RunError != d.Turns[0].RunError {
			t.Errorf("%s: the answer: %+v, straight %+v", version, b.Turns[0], d.Turns[0])
		}
		same(version+" in the end", d, b)
		resumed := fmt.Sprintf(`{"threadId":%q,"runId":"%[1]s-5","parentRunId":"%[1]s-3","state":{},"messages":%s,"tools":[],"context":[],"forwardedProps":{},"resume":%s}`,
			thread, bridged[version].Messages, approve(thread))
		status, body, err := postInput(t.Context(), second, resumed, "")
		if err != nil || status != http.StatusOK || !strings.Contains(body, `the tool said {\"sum\":5}`) || !strings.Contains(body, "RUN_FINISHED") {
			t.Errorf("%s: the interrupted run goes on: %d %s %v", version, status, body, err)
		}
		// It sends the tool's result before RUN_STARTED, for which the client would throw its whole answer away.
		second.stderr.wait(t, func(s string) bool {
			return strings.Count(s, `"first": "before_start"`) == i+1
		})
	}
}
