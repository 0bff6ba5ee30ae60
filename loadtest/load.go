package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/aguihub/aguihub/loadtest/load"
	"github.com/aguihub/aguihub/loadtest/process"
)

func putLoad(ctx context.Context, args []string) error {
	var w load.Workload
	var o load.HubOptions
	flags := flag.NewFlagSet("loadtest load", flag.ContinueOnError)
	flags.IntVar(&w.Runs, "runs", 10, "runs")
	flags.Float64Var(&w.Rate, "rate", 20, "events a second of each run")
	flags.IntVar(&w.Subscribers, "subscribers", 10, "subscribers of each run")
	flags.IntVar(&w.Hubs, "hubs", 1, "hubs")
	flags.IntVar(&w.Size, "size", 230, "bytes of an event")
	flags.DurationVar(&w.Warmup, "warmup", time.Second, "of publishing before what is measured")
	flags.DurationVar(&w.Duration, "duration", 10*time.Second, "of what is measured")
	flags.IntVar(&w.Window, "window", 0, "publish as fast as subscribers read, with so many events under way, instead of at -rate")
	flags.Float64Var(&w.Joins, "joins", 0, "subscribers a second that attach afresh, each in the place of one that leaves")
	flags.IntVar(&w.Slow, "slow", 0, "how many of each run's subscribers rest after each message")
	flags.IntVar(&w.Judged, "judged", 2, "further subscribers of each run whom the checker judges; every other one leaves, comes back and pauses")
	flags.IntVar(&w.History, "history", 0, "events that each run has before; then nobody is judged")
	flags.BoolVar(&w.Settle, "settle", false, "wait until hubs have given memory back before measuring")
	flags.BoolVar(&o.Bare, "bare", false, "attach on ag-ui.v1.json instead of ag-ui.hub.v1.json")
	flags.BoolVar(&o.Quiet, "quiet", false, "publish with XADD alone, without saying so on agui:wake")
	keyspace := flags.Bool("keyspace", false, "have Redis tell of each XADD: the hub's wake-ups of the better kind")
	flags.StringVar(&o.Program, "hub", "", "program of the hub (built)")
	profile := flags.String("profile", "", "file for a profile of the first hub's processor time")
	report := flags.String("json", "", "file for the figures")
	keep := flags.String("dir", "", "folder for files, kept afterwards (a temporary one)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if w.History > 0 {
		w.Judged = 0
	}
	if *keyspace {
		o.Redis = load.KeyspaceEvents
	}
	if *profile != "" {
		w.Profile = load.CPU
	}
	dir, remove, err := folder(*keep)
	if err != nil {
		return err
	}
	defer remove()
	if o.Program == "" {
		if o.Program, err = process.BuildHub(ctx, dir); err != nil {
			return err
		}
	}
	o.Name, o.Flags = "aguihub", flags.Args()
	result, err := load.Bench{Dir: dir}.Measure(ctx, load.Hub(o), w)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(os.Stdout, result); err != nil {
		return err
	}
	if *profile != "" {
		if err := os.WriteFile(*profile, result.Profile, 0o600); err != nil {
			return err
		}
	}
	if *report != "" {
		text, err := json.MarshalIndent(result, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(*report, text, 0o600); err != nil {
			return err
		}
	}
	if len(result.Violations) > 0 {
		return errViolations
	}
	return nil
}
