package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/oracle"
	"github.com/aguihub/aguihub/stream/streamtest"
)

// Attaches go to either of two hubs on one Redis, by turns.
func TestTwoHubsOnOneRedisServeTheSame(t *testing.T) {
	m := newMeasure(t, 2)
	var jobs []job
	for _, s := range generated(oracle.V1, 6, false) {
		n := len(s.Lines)
		jobs = append(jobs, job{stream: s, versions: versions[:1], wires: []oracle.Wire{wires[0], wires[1], wires[0], wires[1]}, ks: []int{1, n / 3, n / 2, n}})
	}
	m.all(jobs, m.single)
	m.report()
}

// plain is a run of one message whose text comes in pieces.
type plain struct {
	t     *testing.T
	redis *redis.Client
	run   string
}

func (p plain) add(lines ...string) {
	p.t.Helper()
	for _, line := range lines {
		if err := p.redis.XAdd(p.t.Context(), &redis.XAddArgs{Stream: "agui:run:" + p.run, Values: []string{"event", line}}).Err(); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p plain) start() string {
	return fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t-%s","runId":%q}`, p.run, p.run)
}

func (p plain) finish() string {
	return fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":"t-%s","runId":%q}`, p.run, p.run)
}

const (
	opened = `{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`
	closed = `{"type":"TEXT_MESSAGE_END","messageId":"m"}`
)

func piece(i int) string {
	return `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"` + strconv.Itoa(i) + ` "}`
}

var calls = regexp.MustCompile(`cmdstat_(x[a-z]+|get|evalsha|eval|fcall[a-z_]*|zrange[a-z]*|exists|type):calls=(\d+)`)

// reads are the commands by which a hub reads, so far.
func reads(t *testing.T, client *redis.Client) int {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, found := range calls.FindAllStringSubmatch(info, -1) {
		n, err := strconv.Atoi(found[2])
		if err != nil {
			t.Fatal(err)
		}
		if found[1] != "xadd" {
			sum += n
		}
	}
	return sum
}

// The rule (I7): with everybody attached, reads for N events with 1,000 subscribers are at most 1.1 times those with one.
func TestAThousandSubscribersCostOneTail(t *testing.T) {
	const events = 300
	server := streamtest.StartRedis(t)
	h, client := startHub(t, server.URL()), server.Client(t)
	cost, took := map[int]int{}, map[int]time.Duration{}
	for _, n := range []int{1, 1000} {
		p := plain{t, client, fmt.Sprintf("crowd-%d", n)}
		p.add(p.start(), opened)
		guard, err := watch(t.Context(), h.base, "runs/"+p.run)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(guard.close)
		var crowd sync.WaitGroup
		joined := make(chan error, n)
		got := make(chan string, n)
		for range n - 1 {
			crowd.Go(func() { got <- follow(t.Context(), h.base, p.run, joined) })
		}
		for range n - 1 {
			if err := <-joined; err != nil {
				t.Fatal(err)
			}
		}
		before, began := reads(t, client), time.Now()
		var want strings.Builder
		for i := range events { // one at a time, so that batches don't depend on the crowd
			id, err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: "agui:run:" + p.run, Values: []string{"event", piece(i)}}).Result()
			if err != nil {
				t.Fatal(err)
			}
			if err := guard.reached(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			want.WriteString(piece(i))
		}
		cost[n], took[n] = reads(t, client)-before, time.Since(began)
		p.add(closed, p.finish())
		crowd.Wait()
		want.WriteString(closed + p.finish())
		for range n - 1 {
			if g := <-got; g != want.String() {
				t.Fatalf("one of %d got\n%.2000s", n, g)
			}
		}
	}
	t.Logf("reads for %d events: %d with 1 attached, %d with 1,000", events, cost[1], cost[1000])
	// A slow machine takes longer over a thousand, and meanwhile a hub looks at its positions and blocks anew: once in two or
	// three seconds each, whatever there is to read.
	quiet := 2 * max(took[1000]-took[1], 0).Seconds()
	if cost[1] == 0 || float64(cost[1000])-quiet > 1.1*float64(cost[1]) {
		t.Errorf("reads for %d events: %d with 1 attached, %d with 1,000", events, cost[1], cost[1000])
	}
}

// follow subscribes, says when the past has come, and returns all events after it as one text.
func follow(ctx context.Context, base, run string, joined chan<- error) string {
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	conn, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(base, "http")+"/v1/runs/"+run+"/ws", &websocket.DialOptions{Subprotocols: []string{"ag-ui.v1.json"}})
	if err != nil {
		joined <- err
		return ""
	}
	if resp.Body != nil {
		_ = resp.Body.Close()
	}
	defer func() { _ = conn.CloseNow() }()
	var all strings.Builder
	live := false
	for {
		_, message, err := conn.Read(ctx)
		switch {
		case err != nil && !live:
			joined <- err
			return err.Error()
		case websocket.CloseStatus(err) == websocket.StatusNormalClosure:
			return all.String()
		case err != nil:
			return err.Error()
		case live:
			all.Write(message)
		case eventOf(message).Type == "TEXT_MESSAGE_START": // the last event of this run's past
			live = true
			joined <- nil
		}
	}
}

// The rule (I8): what an attach costs is what the conversation weighs, however many events made it.
func TestALongRunOfASmallConversationAttachesCheaply(t *testing.T) {
	const events, most = 100_000, 1.3
	server := streamtest.StartRedis(t)
	h, client := startHub(t, server.URL()), server.Client(t)
	p := plain{t, client, "long"}
	p.add(p.start(), opened, `{"type":"STATE_SNAPSHOT","snapshot":{"n":0}}`)
	text := 0
	for from := 0; from < events; from += 1000 {
		_, err := client.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
			for i := from; i < from+1000; i++ {
				line := fmt.Sprintf(`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/n","value":%d}]}`, i)
				if i%5 == 0 {
					text++
					line = `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x"}`
				}
				pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: "agui:run:long", Values: []string{"event", line}})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	network := oracle.StartNetwork(t)
	for _, turn := range []string{"cold", "warm"} {
		for _, wire := range wires {
			before := time.Now()
			sub, err := network.Attach(oracle.Subscribe{Base: h.base, Target: "runs/long", Wire: wire, Version: oracle.V1, Quiet: quiet})
			if err != nil {
				t.Fatal(err)
			}
			took, size := time.Since(before), 0
			for _, line := range sub.Past {
				size += len(line)
			}
			t.Logf("%s over %s: %d bytes in %d events, %v with up to %v of quiet", turn, wire, size, len(sub.Past), took.Round(time.Millisecond), quiet)
			if float64(size) > most*float64(text) {
				t.Errorf("%s over %s: %d bytes for a conversation of %d", turn, wire, size, text)
			}
			if err := sub.Leave(0); err != nil {
				t.Fatal(err)
			}
			got, err := sub.End(0)
			if err != nil || !got.OK || !strings.Contains(got.Messages, strings.Repeat("x", text)) || got.State != fmt.Sprintf(`{"n":%d}`, events-1) {
				t.Errorf("%s over %s: %v, %+.300v", turn, wire, err, got)
			}
		}
	}
}
