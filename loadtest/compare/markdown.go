package compare

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/aguihub/aguihub/loadtest/load"
)

// Markdown writes the report as a document.
func (r *Report) Markdown(b *bytes.Buffer) {
	b.WriteString(`# Benchmarks

` + "`make bench`" + ` measures this hub beside Centrifugo and beside what is physically possible, in one run on one machine, and writes this page. It needs
what the tests need, and builds Centrifugo from its Go module (` + "`loadtest/peers`" + `) first. Figures compare only within one run: within a row the
parties take turns round by round, and a ratio is the median of the rounds' ratios. [profiles.md](profiles.md) says what was tried and what stands
between a figure and its bound.

Publishers follow a schedule, and latencies count from when an event was due, so that a stalled party is charged for what it held up. Processor time is
that of the party's own processes. Publishers and subscribers share the machine: how busy all of it was is told where that matters. Every
subscriber counts what it gets; a gap or a repeat is an error of the row.

`)
	m := r.Machine
	fmt.Fprintf(b, "| | |\n|---|---|\n")
	for _, line := range [][2]string{
		{"machine", fmt.Sprintf("%s, %d cores, %s", m.Processor, m.Cores, m.Memory)},
		{"kernel", m.Kernel},
		{"Go", m.Go},
		{"Redis", m.Redis},
		{"Centrifugo", cmp.Or(m.Centrifugo, "left out")},
		{"commit", m.Commit},
		{"load before", m.Load},
		{"took", r.Took.Round(time.Second).String()},
	} {
		fmt.Fprintf(b, "| %s | %s |\n", line[0], line[1])
	}
	if r.Quick {
		b.WriteString("\nThis was a quick run, of a fiftieth of everything: its figures say nothing.\n")
	}
	b.WriteString("\n## Goals\n\nA bound is no goal: it tells how near a figure is to what is possible.\n\n| figure | goal | reached | | command |\n|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		for _, o := range row.Goals {
			fmt.Fprintf(b, "| %s | %s | %s %s | %s | `%s` |\n", row.Figure, o.Text, number(o.Reached), o.Unit, r.verdict(o), o.Command)
		}
	}
	for _, row := range r.Rows {
		row.markdown(b)
	}
}

// verdict is what an outcome comes to, in a word or two.
func (r *Report) verdict(o Outcome) string {
	switch {
	case r.Quick:
		return "not comparable"
	case o.Bound && o.Met:
		return "within the bound"
	case o.Bound:
		return "above the bound"
	case o.Met:
		return "met"
	default:
		return "missed"
	}
}

// number has three digits that count, of what is a thousandth at least.
func number(v float64) string {
	switch {
	case math.Abs(v) < 0.0005:
		return "0"
	case v != 0 && v < 100:
		return fmt.Sprintf("%.3g", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}

func (r *Row) markdown(b *bytes.Buffer) {
	if len(r.row.trials) == 0 && len(r.Errors) == 0 {
		return // the table of goals has all of it
	}
	fmt.Fprintf(b, "\n## %s\n\n%s.", r.Name, r.Figure)
	if r.row.note != "" {
		b.WriteString(" " + r.row.note)
	}
	b.WriteByte('\n')
	if len(r.row.trials) > 0 {
		r.table(b)
	}
	if len(r.Errors) > 0 {
		b.WriteString("\nWhat went wrong, or wasn't measured:\n\n")
		for _, e := range r.Errors {
			fmt.Fprintf(b, "- %s\n", strings.Join(strings.Fields(e), " "))
		}
	}
	if r.Profile != "" {
		fmt.Fprintf(b, "\nThe hub's profile (%s), from a further run:\n\n```text\n%s```\n", r.row.trials[0].name, r.Profile)
	}
}

func (r *Row) table(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n| | %s | rounds |", cmp.Or(r.row.unit, "each"))
	for _, c := range r.row.also {
		fmt.Fprintf(b, " %s |", c.name)
	}
	b.WriteString(" what Redis did for an event |\n|---|---|---|" + strings.Repeat("---|", len(r.row.also)+1) + "\n")
	for _, t := range r.row.trials {
		values := r.values(t.name, r.row.value)
		if len(values) == 0 {
			continue
		}
		fmt.Fprintf(b, "| %s | %s | %s – %s |", t.name, number(median(values)), number(slices.Min(values)), number(slices.Max(values)))
		for _, c := range r.row.also {
			fmt.Fprintf(b, " %s |", number(median(r.values(t.name, c.value))))
		}
		at := slices.IndexFunc(r.Results[t.name], func(res *load.Result) bool { return res != nil })
		fmt.Fprintf(b, " %s |\n", commandsOf(r.Results[t.name][at]))
	}
}
