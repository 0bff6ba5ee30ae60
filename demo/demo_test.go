package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/oracle"
	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(oracle.Keep(m)) }

func newLog(t *testing.T) *stream.Memory {
	t.Helper()
	log, err := stream.NewMemory(stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// start runs an agent in the bubble and returns what stops it and waits for its end.
func start(t *testing.T, log *stream.Memory) (stop func()) {
	t.Helper()
	publisher, err := publish.New(log, log.NewRegistry(nil), publish.Config{})
	if err != nil {
		t.Fatal(err)
	}
	agent, err := New(publisher, Config{}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

func entries(t *testing.T, log *stream.Memory, n int) []stream.Entry {
	t.Helper()
	page, err := log.Range(t.Context(), RunID(n), stream.ID{}, 10_000, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	return page.Entries
}

// lastType is the type of a run's last event, "" where there is none.
func lastType(t *testing.T, log *stream.Memory, n int) string {
	t.Helper()
	all := entries(t, log, n)
	if len(all) == 0 {
		return ""
	}
	var e agui.Event
	if err := e.Parse(all[len(all)-1].Event); err != nil {
		t.Fatal(err)
	}
	return e.TypeName()
}

func TestRunsAreWhatTheOfficialClientTakes(t *testing.T) {
	log := newLog(t)
	synctest.Test(t, func(t *testing.T) {
		stop := start(t, log)
		time.Sleep(4 * time.Minute) // the bubble's time
		stop()
	})
	var conversation *agui.Conversation
	var lines [][]byte
	kinds := map[string]bool{}
	for n := 1; n <= runsPerThread; n++ {
		run := agui.NewRun(conversation, agui.RunConfig{})
		all := entries(t, log, n)
		for i, en := range all {
			if v := run.Apply(agui.Entry{Event: en.Event, Input: en.Input}); v.Reason != "" {
				t.Fatalf("run %d, entry %d: %s: %s", n, i, v.Reason, v.Detail)
			}
			var e agui.Event
			if err := e.Parse(en.Event); err != nil {
				t.Fatal(err)
			}
			kinds[e.TypeName()] = true
			lines = append(lines, en.Event)
		}
		if !run.Ended() || !run.Full() || all[0].Input == nil {
			t.Fatalf("run %d isn't whole", n)
		}
		took := time.Duration(all[len(all)-1].ID.Ms-all[0].ID.Ms) * time.Millisecond
		if took < 15*time.Second || took > 25*time.Second {
			t.Errorf("run %d took %v", n, took)
		}
		if n > 1 && all[0].ID.Ms-entries(t, log, n-1)[0].ID.Ms > 40_000 {
			t.Errorf("run %d came late", n)
		}
		conversation = run.Conversation()
	}
	var messages []string
	for _, m := range conversation.Messages {
		var head struct{ ID, Role string }
		if err := json.Unmarshal(m, &head); err != nil {
			t.Fatal(err)
		}
		messages = append(messages, head.Role)
	}
	each := []string{"user", "reasoning", "assistant", "tool", "tool", "activity", "assistant", "assistant"}
	if !slices.Equal(messages, slices.Repeat(each, runsPerThread)) {
		t.Errorf("the thread holds %q", messages)
	}
	for _, kind := range []string{
		"RUN_STARTED", "RUN_FINISHED", "TEXT_MESSAGE_CONTENT", "TOOL_CALL_ARGS", "TOOL_CALL_RESULT", "REASONING_MESSAGE_CONTENT", "STATE_SNAPSHOT",
		"STATE_DELTA", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "STEP_STARTED", "SUBAGENT_STARTED", "SUBAGENT_FINISHED", "CUSTOM",
	} {
		if !kinds[kind] {
			t.Errorf("no %s", kind)
		}
	}
	job := oracle.NewStream("demo", lines).Job()
	job.Warnings = true
	res := oracle.Start(t).Replay(t, job)
	if !res.OK || len(res.Warnings) > 0 {
		t.Fatalf("event %d, %s: %s, warnings %q", res.At, res.Stage, res.Error, res.Warnings)
	}
	if !strings.Contains(res.State, `"status":"done"`) || !strings.Contains(res.State, "over Mont Royal") {
		t.Fatal(res.State)
	}
}

func TestThreadsAreBounded(t *testing.T) {
	var got []string
	for _, n := range []int{1, 5, 6, 10, 11} {
		got = append(got, string(RunID(n))+"@"+string(ThreadID(n)))
	}
	if want := []string{"demo-1@demo", "demo-5@demo", "demo-6@demo-thread-2", "demo-10@demo-thread-2", "demo-11@demo-thread-3"}; !slices.Equal(got, want) {
		t.Fatal(got)
	}
	if !slices.EqualFunc(scriptOf(7).beats, scriptOf(7).beats, func(a, b beat) bool { return bytes.Equal(a.event, b.event) && a.pause == b.pause }) {
		t.Fatal("a run isn't always the same")
	}
}

func TestTheAgentStopsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLog(t)
		stop := start(t, log)
		time.Sleep(5 * time.Second) // the bubble's time
		began := time.Now()
		stop()
		if time.Since(began) > 0 {
			t.Fatalf("it took %v", time.Since(began))
		}
		all := entries(t, log, 1)
		run := agui.NewRun(nil, agui.RunConfig{})
		for _, en := range all {
			if v := run.Apply(agui.Entry{Event: en.Event, Input: en.Input}); v.Reason != "" {
				t.Fatal(v.Reason, v.Detail)
			}
		}
		if last := string(all[len(all)-1].Event); !run.Ended() || !strings.Contains(last, `"code":"stopped"`) {
			t.Fatal(last)
		}

		// The next process takes a thread of its own.
		stop = start(t, log)
		time.Sleep(5 * time.Second)
		stop()
		if lastType(t, log, 2) != "" || lastType(t, log, 6) != "RUN_ERROR" {
			t.Fatalf("run 2 ends with %q, run 6 with %q", lastType(t, log, 2), lastType(t, log, 6))
		}
	})
}

func TestARunThatIsCancelledEndsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLog(t)
		stop := start(t, log)
		time.Sleep(5 * time.Second) // the bubble's time
		if _, err := log.RequestCancel(t.Context(), RunID(1), []byte(`{"type":"cancel","reason":"enough"}`)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		run := agui.NewRun(nil, agui.RunConfig{})
		all := entries(t, log, 1)
		for _, en := range all {
			if v := run.Apply(agui.Entry{Event: en.Event, Input: en.Input}); v.Reason != "" {
				t.Fatal(v.Reason, v.Detail)
			}
		}
		if last := string(all[len(all)-1].Event); !run.Ended() || !strings.Contains(last, `"outcome":{"type":"cancelled"}`) {
			t.Fatal(last)
		}
		time.Sleep(10 * time.Second)
		if lastType(t, log, 2) == "" {
			t.Fatal("it doesn't go on")
		}
		stop()
	})
}

func TestTheFirstFreeThreadIsFound(t *testing.T) {
	for taken := range 20 {
		log := newLog(t)
		for k := range taken {
			if _, err := log.Append(t.Context(), RunID(k*runsPerThread+1), stream.Record{Event: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		publisher, err := publish.New(log, log.NewRegistry(nil), publish.Config{})
		if err != nil {
			t.Fatal(err)
		}
		agent, err := New(publisher, Config{}, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		if n, err := agent.next(t.Context(), 0); err != nil || n != taken*runsPerThread+1 {
			t.Fatalf("%d threads: run %d, %v", taken, n, err)
		}
	}
}

func TestALogThatIsAwayIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLog(t)
		log.SetFault(stream.ErrUnavailable)
		stop := start(t, log)
		time.Sleep(10 * time.Second) // the bubble's time
		log.SetFault(nil)
		time.Sleep(5 * time.Second)
		if len(entries(t, log, 1)) == 0 {
			t.Fatal("it didn't begin")
		}
		log.SetFault(stream.ErrUnavailable)
		time.Sleep(10 * time.Second)
		log.SetFault(nil)
		time.Sleep(10 * time.Second)
		if lastType(t, log, 1) != "RUN_ERROR" || len(entries(t, log, 2)) == 0 {
			t.Fatalf("run 1 ends with %q, run 2 with %q", lastType(t, log, 1), lastType(t, log, 2))
		}
		stop()
	})
}

func TestConfigIsChecked(t *testing.T) {
	for _, cfg := range []Config{{Rate: -1}, {Pause: -1}} {
		if _, err := New(nil, cfg, zap.NewNop()); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}
