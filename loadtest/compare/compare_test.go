package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aguihub/aguihub/loadtest/load"
	"github.com/aguihub/aguihub/loadtest/process"
)

// The tests' program is also the one that load.RawTCP starts.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "raw" {
		if err := load.RunRaw(context.Background(), os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// The rule: the comparison runs through and judges its goals. What its figures are worth, a test can't say.
func TestAQuickComparison(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not in PATH, and these tests don't skip without it: scripts/setup installs it")
	}
	program, err := process.BuildHub(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), Config{
		Hub: program, Self: os.Args[0], Dir: t.TempDir(), Rows: []string{"fanout", "reads"}, Quick: true, Limit: 10 * time.Minute, Log: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	report.Markdown(&text)
	for _, want := range []string{"| lines subprotocol |", "| bare subprotocol |", "| raw TCP |", "lines ≤ 1.25 × a bare TCP write |", "| 1,000 subscribers |", "quick run", "× | not comparable |", "other commands per event", " GiB of memory |"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "| met |") || strings.Contains(text.String(), "| missed |") {
		t.Errorf("a quick run judges:\n%s", text.String())
	}
	for _, wrong := range report.Wrong() {
		if !strings.Contains(wrong, "Centrifugo: not measured") {
			t.Error(wrong)
		}
	}
}

func TestGoalsAreMediansOfTheRoundsRatios(t *testing.T) {
	result := func(seconds float64, n int64) *load.Result { return &load.Result{HubCPU: seconds, Deliveries: n} }
	r := Row{
		row: row{name: "r", value: hubMicros, unit: "µs", goals: []goal{
			{text: "met", of: "a", over: "b", limit: 0.5},
			{text: "missed", of: "a", over: "b", limit: 0.49},
			{text: "at least", of: "b", over: "a", limit: 2, atLeast: true},
			{text: "itself", of: "a", limit: 2},
			{text: "bound", of: "a", over: "b", limit: 0.1, bound: true},
			{text: "nothing to compare with", of: "a", over: "c", limit: 1},
		}},
		Results: map[string][]*load.Result{
			"a": {result(1, 1e6), result(2, 1e6), nil, result(9, 1e6)},
			"b": {result(2, 1e6), result(4, 1e6), result(1, 1e6), result(9, 1e6)},
		},
	}
	r.conclude()
	want := "met 0.5 true, missed 0.5 false, at least 2 true, itself 2 true, bound 0.5 false, "
	var told strings.Builder
	for _, o := range r.Goals {
		fmt.Fprintf(&told, "%s %v %v, ", o.Text, o.Reached, o.Met)
	}
	got := told.String()
	if got != want || len(r.Errors) != 1 || !r.missed() {
		t.Errorf("%s and %q, want %s", got, r.Errors, want)
	}
}

func TestReportsAreForPeople(t *testing.T) {
	micros := &Row{Name: "code", Figure: "code", Goals: []Outcome{{Text: "no allocations", Reached: -5.01e-05, Unit: "allocs", Met: true}}}
	bounds := &Row{Name: "b", Figure: "b", row: row{value: hubMicros, trials: []trial{{name: "a"}}}, Goals: []Outcome{
		{Text: "above", Reached: 1.2, Bound: true}, {Text: "within", Reached: 0.8, Bound: true, Met: true}, {Text: "goal", Reached: 0.0123},
	}}
	report := Report{Rows: []*Row{micros, bounds}}
	var text bytes.Buffer
	report.Markdown(&text)
	for _, want := range []string{"| no allocations | 0 allocs | met |", "| above | 1.2  | above the bound |", "| within | 0.8  | within the bound |", "| goal | 0.0123  | missed |", "## b"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "## code") {
		t.Errorf("an empty section:\n%s", text.String())
	}
	if bounds.Goals = bounds.Goals[:2]; bounds.missed() {
		t.Error("a bound is a goal that was missed")
	}
	if got := gibibytes("24683620 kB"); got != "23.5 GiB of memory" {
		t.Error(got)
	}
}

func TestMetricsOfBenchmarksAreRead(t *testing.T) {
	out := []byte("goos: linux\nBenchmarkFold/text_deltas-2   \t 61\t 18 ns/op\t 553.5 events/s\t 12 B/op\nPASS\n")
	if v, err := metric(out, "events/s"); err != nil || v != 553.5 {
		t.Error(v, err)
	}
	if _, err := metric(out, "allocs/op"); err == nil {
		t.Error("a metric that isn't there was found")
	}
	if got := pattern("BenchmarkFold/text_deltas"); got != "^BenchmarkFold$/^text[ _]deltas$" {
		t.Error(got)
	}
}

func TestTrialsWithoutGoalsAreMeasuredOnceAndTheOthersTogether(t *testing.T) {
	r := row{together: true, trials: []trial{{name: "a"}, {name: "aside", once: true}, {name: "b"}}}
	order := func(r row, round int) (out []string) {
		for _, heat := range r.heats(round) {
			var names []string
			for _, t := range heat {
				names = append(names, t.name)
			}
			out = append(out, strings.Join(names, "+"))
		}
		return out
	}
	if got := order(r, 0); !slices.Equal(got, []string{"a+b", "aside"}) {
		t.Errorf("%q", got)
	}
	if got := order(r, 1); !slices.Equal(got, []string{"a+b"}) {
		t.Errorf("%q", got)
	}
	r.together = false
	if got := order(r, 0); !slices.Equal(got, []string{"a", "aside", "b"}) {
		t.Errorf("%q", got)
	}
}

func TestNobodyPassesTheStartingLineAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := startingLine(2)
		ctx, cancel := context.WithCancel(t.Context())
		passed := make(chan error, 2)
		go func() { passed <- line(ctx) }()
		synctest.Wait()
		if len(passed) > 0 {
			t.Fatal("the first didn't wait")
		}
		go func() { passed <- line(ctx) }()
		if err := errors.Join(<-passed, <-passed); err != nil {
			t.Error(err)
		}
		line = startingLine(2)
		cancel()
		if err := line(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("whoever waits for one that failed: %v", err)
		}
	})
}
