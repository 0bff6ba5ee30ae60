package compare

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// micro is a benchmark of the code, run by `go test`.
type micro struct {
	name      string // of the figure
	pkg       string
	benchmark string // its full name, without the number of cores
	unit      string // of the metric, as the benchmark reports it
	text      string // of the goal
	limit     float64
	atLeast   bool
}

func (m micro) command() string {
	return fmt.Sprintf("go test -run '^$' -bench '%s' -benchmem %s", pattern(m.benchmark), m.pkg)
}

// pattern selects one benchmark among its siblings.
func pattern(benchmark string) string {
	parts := strings.Split(benchmark, "/")
	for i, p := range parts {
		parts[i] = "^" + strings.ReplaceAll(p, "_", "[ _]") + "$"
	}
	return strings.Join(parts, "/")
}

func microRow() row {
	return row{
		name: "code", figure: "Benchmarks of the code",
		micro: []micro{
			{
				name: "Allocations per delivered event in the fan-out path in steady state", pkg: "./transport/ws",
				benchmark: "BenchmarkDelivery", unit: "allocs/delivery", text: "0", limit: 0.005,
			},
			{
				name: "Preamble of a 1 MiB conversation, deflated", pkg: "./transport/ws",
				benchmark: "BenchmarkDeflatedPreamble/first", unit: "deflated/raw", text: "≤ 0.35 × raw", limit: 0.35,
			},
			{
				name: "Fold: small events on one core", pkg: "./agui",
				benchmark: "BenchmarkFold/text_deltas", unit: "events/s", text: "≥ 1,000,000/s", limit: 1e6, atLeast: true,
			},
		},
	}
}

// microLimit bounds one benchmark, its compilation included.
const microLimit = 3 * time.Minute

func (r *Row) measureMicro(ctx context.Context, config Config, m micro) {
	ctx, cancel := context.WithTimeout(ctx, microLimit)
	defer cancel()
	_, _ = fmt.Fprintf(config.Log, "%s: %s\n", r.Name, m.command())
	out, err := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", pattern(m.benchmark), "-benchmem", m.pkg).CombinedOutput() //nolint:gosec // of the list above
	if err != nil {
		r.fail(m.name, fmt.Errorf("%s: %w: %s", m.command(), err, out))
		return
	}
	v, err := metric(out, m.unit)
	if err != nil {
		r.fail(m.name, fmt.Errorf("%s: %w", m.command(), err))
		return
	}
	r.Goals = append(r.Goals, Outcome{
		Text: m.name + " " + m.text, Reached: v, Met: m.atLeast == (v >= m.limit) || v == m.limit, Command: m.command(), Unit: m.unit,
	})
}

// metric finds a metric in what a benchmark prints.
func metric(out []byte, unit string) (float64, error) {
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		for i := 1; i < len(fields); i++ {
			if fields[i] == unit {
				return strconv.ParseFloat(fields[i-1], 64)
			}
		}
	}
	return 0, fmt.Errorf("no %s in %q", unit, out)
}
