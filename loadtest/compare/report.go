package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aguihub/aguihub/loadtest/load"
)

// Report is what a comparison came to.
type Report struct {
	Machine Machine       `json:"machine"`
	Quick   bool          `json:"quick"`
	Rows    []*Row        `json:"rows"`
	Took    time.Duration `json:"took"`
}

// Row is one row of the report.
type Row struct {
	Name    string                    `json:"name"`
	Figure  string                    `json:"figure"`
	Goals   []Outcome                 `json:"goals"`
	Results map[string][]*load.Result `json:"results"` // by trial, a round each; null where it couldn't be measured
	Errors  []string                  `json:"errors"`  // why not
	Profile string                    `json:"profile"` // where a goal was missed: what the hub did meanwhile

	row row
}

// Outcome is a goal and what was reached.
type Outcome struct {
	Text    string  `json:"text"`
	Reached float64 `json:"reached"`
	Unit    string  `json:"unit"` // "×" for a ratio
	Met     bool    `json:"met"`
	Bound   bool    `json:"bound"` // it is no goal, but what is possible
	Command string  `json:"command"`
}

func (r *Row) fail(what string, err error) {
	r.Errors = append(r.Errors, fmt.Sprintf("%s: %v", what, err))
}

// median is the middle of values, and NaN of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// values are a trial's figures, one of each round that has one.
func (r *Row) values(trial string, value func(*load.Result) float64) []float64 {
	var out []float64
	for _, res := range r.Results[trial] {
		if res != nil {
			out = append(out, value(res))
		}
	}
	return out
}

// ratios are those of two trials, round by round.
func (r *Row) ratios(of, over string, value func(*load.Result) float64) []float64 {
	var out []float64
	for i, a := range r.Results[of] {
		if i < len(r.Results[over]) && a != nil && r.Results[over][i] != nil {
			if b := value(r.Results[over][i]); b > 0 {
				out = append(out, value(a)/b)
			}
		}
	}
	return out
}

// conclude compares what was measured with the goals, and takes over what the load generator found wrong.
func (r *Row) conclude() {
	for _, g := range r.row.goals {
		value := g.value
		if value == nil {
			value = r.row.value
		}
		o := Outcome{Text: g.text, Command: "go run ./loadtest compare -rows " + r.Name, Unit: r.row.unit, Bound: g.bound}
		if g.over == "" {
			o.Reached = median(r.values(g.of, value))
		} else {
			o.Reached, o.Unit = median(r.ratios(g.of, g.over, value)), "×"
		}
		if math.IsNaN(o.Reached) {
			r.fail(g.text, errors.New("not measured"))
			continue
		}
		o.Met = g.atLeast == (o.Reached >= g.limit) || o.Reached == g.limit
		r.Goals = append(r.Goals, o)
	}
	for _, t := range r.row.trials {
		for i, res := range r.Results[t.name] {
			if res != nil && len(res.Violations) > 0 {
				r.fail(t.name, fmt.Errorf("round %d: %s", i+1, strings.Join(res.Violations, "; ")))
			}
		}
	}
}

// missed says whether a goal wasn't reached.
func (r *Row) missed() bool {
	return slices.ContainsFunc(r.Goals, func(o Outcome) bool { return !o.Met && !o.Bound })
}

// profileMissed measures the hub once more where it missed a goal, with a profile.
func profileMissed(ctx context.Context, config Config, report *Report) {
	if config.Quick {
		return
	}
	for _, r := range report.Rows {
		if !r.missed() || len(r.row.trials) == 0 || ctx.Err() != nil {
			continue
		}
		t := r.row.trials[0] // the hub's, in all rows
		if t.workload.Profile = load.CPU; r.row.name == memoryRow {
			t.workload.Profile = load.Heap
		}
		text, err := profileOf(ctx, config, t)
		if err != nil {
			r.fail("profile", err)
		}
		r.Profile = text
	}
}

// top is how many functions a profile names.
const top = "14"

func profileOf(ctx context.Context, config Config, t trial) (string, error) {
	result, err := measureTrial(ctx, config, t, nil)
	if err != nil {
		return "", err
	}
	file := filepath.Join(config.Dir, "profile")
	if err := os.WriteFile(file, result.Profile, 0o600); err != nil {
		return "", fmt.Errorf("profile: %w", err)
	}
	out, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-nodecount="+top, config.Hub, file).Output() //nolint:gosec // programs of ours
	if err != nil {
		return "", fmt.Errorf("pprof: %w", err)
	}
	return string(out), nil
}

// Wrong is what was found wrong, or couldn't be measured, in all rows.
func (r *Report) Wrong() []string {
	var all []string
	for _, row := range r.Rows {
		for _, e := range row.Errors {
			all = append(all, row.Name+": "+e)
		}
	}
	return all
}

// commandsOf are the commands that Redis spent most in: how often for an event, or a second where there were none, and how
// long in each.
func commandsOf(r *load.Result) string {
	per, unit := float64(r.Events), ""
	if r.Events == 0 {
		per, unit = r.Seconds, "/s"
	}
	names := slices.SortedFunc(maps.Keys(r.Commands), func(a, b string) int { return cmp.Compare(r.InThem[b], r.InThem[a]) })
	var parts []string
	for _, n := range names[:min(len(names), 4)] {
		calls := float64(r.Commands[n])
		parts = append(parts, fmt.Sprintf("%s %.2f%s × %.1f µs", n, calls/per, unit, float64(r.InThem[n])/calls))
	}
	return strings.Join(parts, " · ")
}
