// Command loadtest puts hubs under load and misfortune:
//
//	go run ./loadtest chaos -seed 1 -duration 2m
//	go run ./loadtest load -runs 20 -rate 20 -subscribers 10 -hubs 2
//
// It needs redis-server in PATH, starts everything by itself on free ports, prints figures and ends with exit code 1
// where a subscriber got anything else than docs/contract.md promises.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aguihub/aguihub/loadtest/chaos"
	"github.com/aguihub/aguihub/loadtest/load"
	"github.com/aguihub/aguihub/loadtest/process"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "loadtest:", err)
		os.Exit(1)
	}
}

var errViolations = errors.New("the contract was broken")

const usage = "usage: loadtest chaos|load [flags]; loadtest chaos -h lists them"

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	switch args[0] {
	case "chaos":
		return makeTrouble(ctx, args[1:])
	case "load":
		return putLoad(ctx, args[1:])
	case "raw": // what load.RawTCP starts
		return load.RunRaw(ctx, args[1])
	default:
		return errors.New(usage)
	}
}

// folder is where files go: dir, or a temporary one that is removed.
func folder(dir string) (name string, remove func(), err error) {
	if dir != "" {
		return dir, func() {}, nil
	}
	name, err = os.MkdirTemp("", "aguihub-loadtest")
	return name, func() { _ = os.RemoveAll(name) }, err
}

func makeTrouble(ctx context.Context, args []string) error {
	config := chaos.Config{Log: os.Stderr, Feeds: true}
	flags := flag.NewFlagSet("loadtest chaos", flag.ContinueOnError)
	flags.Uint64Var(&config.Seed, "seed", 1, "of the schedule of faults")
	flags.DurationVar(&config.Duration, "duration", 2*time.Minute, "of the faults; what is open then comes to its end")
	flags.DurationVar(&config.Every, "every", 0, "mean time between two faults (2s)")
	flags.IntVar(&config.Hubs, "hubs", 0, "hubs (2)")
	flags.IntVar(&config.Runs, "runs", 0, "runs at once (4)")
	flags.IntVar(&config.Threads, "threads", 0, "threads at once, of three runs each (2)")
	flags.IntVar(&config.Readers, "readers", 0, "subscribers of each run (5)")
	flags.Float64Var(&config.Rate, "rate", 0, "events a second of each run (40)")
	flags.IntVar(&config.Length, "length", 0, "events of a run (600); hubs trim those of more than 2,000")
	flags.IntVar(&config.Long, "long", 1, "how many of the runs at once are six times as long and as fast")
	flags.BoolVar(&config.Cluster, "cluster", false, "three nodes of a Redis Cluster, whose slots move")
	flags.StringVar(&config.Binary, "hub", "", "program of the hub (built)")
	keep := flags.String("dir", "", "folder for data and logs, kept afterwards (a temporary one)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dir, remove, err := folder(*keep)
	if err != nil {
		return err
	}
	defer remove()
	config.Dir = dir
	report, err := chaos.Run(ctx, config)
	if err != nil {
		return err
	}
	fmt.Print(report)
	if len(report.Violations) > 0 {
		return errViolations
	}
	return nil
}

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
	w.Profile = *profile != ""
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
	fmt.Print(result)
	if w.Profile {
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
