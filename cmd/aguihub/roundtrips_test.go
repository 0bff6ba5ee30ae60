package main_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aguihub/aguihub/stream/streamtest"
)

// monitor gives what a Redis server is asked, as MONITOR shows it, until the test ends.
func monitor(t *testing.T, redis *streamtest.Server) *bufio.Reader {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(2 * patience))
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(conn)
	if line, err := lines.ReadString('\n'); err != nil || line != "+OK\r\n" {
		t.Fatalf("MONITOR: %q, %v", line, err)
	}
	return lines
}

// monitored is a line of MONITOR: who asks, the command and its first three arguments.
var monitored = regexp.MustCompile(`^\+[0-9.]+ \[0 ([^]]+)\] "([^"]*)"(?: "([^"]*)")?(?: "([^"]*)")?(?: "([^"]*)")?`)

// TestFirstEventTakesFewRoundTrips counts what Redis is asked for between an input and the first event that its caller gets:
// each command stands for a round trip that the caller waits for, those after a plus aside.
func TestFirstEventTakesFewRoundTrips(t *testing.T) {
	t.Parallel()
	want := []string{
		"evalsha {agui:thread:t-q2}:active", // the thread is claimed
		"zrevrange agui:thread:t-q2",        // nothing else goes on there
		"evalsha agui:run:q2",               // the run is claimed
		"xadd agui:runs",                    // + which the registry hears while the agent is called
		"xadd agui:runs",                    // it has begun
		"zadd agui:thread:t-q2",             // + in its thread
		"evalsha agui:run:q2",               // its first event
		"xrange agui:run:q2",                // the caller's feed
		"zadd agui:thread:t-q2",             // what it goes on from
		"zrevrange agui:thread:t-q2",        // + likewise
	}
	agent := newHTTPAgent(t)
	redis := streamtest.StartRedis(t)
	h := startHub(t, "--redis", redis.URL(), "--agent", "a="+agent.URL)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, run := range []string{"q1", "q2"} { // the first one has the scripts loaded
		var lines *bufio.Reader
		if run == "q2" {
			lines = monitor(t, redis)
		}
		_, closeBody, err := call(ctx, http.DefaultClient, h.base+"/v1/agents/a", run)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = closeBody() })
		if lines == nil {
			continue
		}
		if err := redis.Client(t).Echo(ctx, "over").Err(); err != nil {
			t.Fatal(err)
		}
		got := askedFor(t, lines, run)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("Redis was asked\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	close(agent.goOn)
}

// askedFor are the commands that concern a run, up to an ECHO: without those of tails, which are blocked reads and what
// follows them, wake-ups, for which nobody waits, and what is done once in a while.
func askedFor(t *testing.T, lines *bufio.Reader, run string) (commands []string) {
	t.Helper()
	tails := map[string]bool{}
	type asked struct{ who, what string }
	var all []asked
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		m := monitored.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("line %q", line)
		}
		who, verb, key := m[1], m[2], m[3]
		switch verb {
		case "echo":
			for _, a := range all {
				if !tails[a.who] {
					commands = append(commands, a.what)
				}
			}
			return commands
		case "xread":
			tails[who] = true
		case "evalsha":
			key = m[5] // behind the hash and the number of keys
		}
		periodic := verb == "publish" || verb == "xrange" && strings.HasSuffix(key, ":control") || verb == "hmget" && strings.HasSuffix(key, ":producer") || verb == "exists"
		if who != "lua" && !periodic && strings.Contains(line, run) {
			all = append(all, asked{who, verb + " " + key})
		}
	}
}
