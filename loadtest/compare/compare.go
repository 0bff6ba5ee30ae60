// Package compare measures hubs beside their peers and beside what is physically possible, in one run on one machine, and
// says which goals were reached. Within a row the parties take turns, round by round, or go at the same time, so that
// whatever else the machine does meets all of them; a figure is compared as the median of the rounds' ratios.
package compare

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aguihub/aguihub/loadtest/load"
)

// trial is one party with one workload, measured once in each round of its row.
type trial struct {
	name     string
	party    load.Party
	workload load.Workload
	once     bool // in the first round only: no goal is about it
}

// goal is what a row shows.
type goal struct {
	text     string
	value    func(*load.Result) float64 // nil is the row's
	of, over string                     // trials; over is "" where the value itself is compared
	limit    float64
	atLeast  bool // the limit is a lower one
	bound    bool // it tells how near the possible is, and nobody asked for it
}

// row is one figure of the table of goals.
type row struct {
	name   string
	figure string
	unit   string
	value  func(*load.Result) float64
	trials []trial
	rounds int
	goals  []goal
	also   []column
	note   string
	micro  []micro // in place of trials
	// together has those trials of a round measured at the same time that goals are about, where what a party takes depends
	// on what else the machine does.
	together bool
}

// column is another figure that is told beside a row's.
type column struct {
	name  string
	value func(*load.Result) float64
}

// Config of a comparison.
type Config struct {
	Hub        string        // program of the hub
	Self       string        // this program, which has the command raw
	Centrifugo string        // program of the peer; "" leaves it out
	Dir        string        // for files; must be there
	Rows       []string      // names; none for all
	Quick      bool          // a fiftieth of everything: it shows that the comparison works, and nothing else
	Rounds     int           // of each row instead of its own; 0 for those
	Limit      time.Duration // of the whole; what wasn't measured by then is said
	Log        io.Writer     // what is being measured
}

// Names are the rows that there are.
func Names() []string {
	var names []string
	for _, r := range rows(Config{}) {
		names = append(names, r.name)
	}
	return names
}

// Run measures all rows. Its error says that it was interrupted; what couldn't be measured is in the report.
func Run(ctx context.Context, config Config) (*Report, error) {
	began := time.Now()
	report := &Report{Machine: describe(ctx, config), Quick: config.Quick}
	limited, cancel := context.WithTimeout(ctx, config.Limit)
	defer cancel()
	for _, r := range rows(config) {
		if len(config.Rows) > 0 && !slices.Contains(config.Rows, r.name) {
			continue
		}
		if config.Quick {
			r.shrink()
		}
		if config.Rounds > 0 {
			r.rounds = config.Rounds
		}
		report.Rows = append(report.Rows, measureRow(limited, config, r))
		if ctx.Err() != nil {
			return report, ctx.Err()
		}
	}
	profileMissed(limited, config, report)
	report.Took = time.Since(began)
	return report, nil
}

// shrink makes a row small.
func (r *row) shrink() {
	r.rounds = 1
	for i := range r.trials {
		w := &r.trials[i].workload
		w.Subscribers, w.Runs = (w.Subscribers+49)/50, (w.Runs+49)/50
		w.History, w.Joins = w.History/50, w.Joins/10
		w.Warmup, w.Duration, w.Patience = 100*time.Millisecond, 400*time.Millisecond, time.Minute
	}
}

// trialLimit bounds one trial beyond its own times: it starts programs and attaches up to ten thousand subscribers.
const trialLimit = 45 * time.Second

func measureRow(ctx context.Context, config Config, r row) *Row {
	out := &Row{Name: r.name, Figure: r.figure, row: r, Results: map[string][]*load.Result{}}
	for _, m := range r.micro {
		out.measureMicro(ctx, config, m)
	}
	for round := range r.rounds {
		for _, trials := range r.heats(round) {
			if ctx.Err() != nil {
				out.fail(trials[0].name, context.DeadlineExceeded)
				break
			}
			results, errs := measureHeat(ctx, config, trials)
			for i, t := range trials {
				result, err := results[i], errs[i]
				if err != nil {
					out.fail(t.name, err)
				}
				out.Results[t.name] = append(out.Results[t.name], result) // nil where there is none, so that rounds stay together
				if result != nil {
					result.Profile = nil
					_, _ = fmt.Fprintf(config.Log, "%s, round %d, %s: %.4g %s, machine %.0f %% busy\n",
						r.name, round+1, t.name, r.value(result), r.unit, 100*result.Busy)
				}
			}
		}
	}
	out.conclude()
	return out
}

// heats are the trials of a round in their order, those together that are measured at the same time.
func (r *row) heats(round int) [][]trial {
	var heats [][]trial
	var together []trial
	for _, t := range r.trials {
		switch {
		case t.once && round > 0:
		case r.together && !t.once:
			together = append(together, t)
		default:
			heats = append(heats, []trial{t})
		}
	}
	if len(together) > 0 {
		heats = append([][]trial{together}, heats...)
	}
	return heats
}

// measureHeat measures trials at the same time: none publishes before all have attached.
func measureHeat(ctx context.Context, config Config, trials []trial) ([]*load.Result, []error) {
	results, errs := make([]*load.Result, len(trials)), make([]error, len(trials))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := startingLine(len(trials))
	var wg sync.WaitGroup
	for i, t := range trials {
		wg.Go(func() {
			if results[i], errs[i] = measureTrial(ctx, config, t, begin); errs[i] != nil {
				cancel() // the others would wait for it
			}
		})
	}
	wg.Wait()
	return results, errs
}

// startingLine lets nobody pass before n have come.
func startingLine(n int) func(context.Context) error {
	var missing atomic.Int64
	missing.Store(int64(n))
	all := make(chan struct{})
	return func(ctx context.Context) error {
		if missing.Add(-1) == 0 {
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func measureTrial(ctx context.Context, config Config, t trial, begin func(context.Context) error) (*load.Result, error) {
	limit := trialLimit + t.workload.Warmup + t.workload.Duration
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return load.Bench{Dir: config.Dir, Begin: begin}.Measure(ctx, t.party, t.workload)
}
