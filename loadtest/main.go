// Command loadtest puts hubs under load and misfortune:
//
//	go run ./loadtest chaos -seed 1 -duration 2m
//	go run ./loadtest load -runs 20 -rate 20 -subscribers 10 -hubs 2
//	go run ./loadtest compare -centrifugo path -out docs/benchmarks.md
//
// It needs redis-server in PATH, starts everything by itself on free ports, prints figures and ends with exit code 1
// where a subscriber got anything else than docs/contract.md promises.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aguihub/aguihub/loadtest/chaos"
	"github.com/aguihub/aguihub/loadtest/load"
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

const usage = "usage: loadtest chaos|load|compare [flags]; loadtest chaos -h lists them"

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	switch args[0] {
	case "chaos":
		return makeTrouble(ctx, args[1:])
	case "load":
		return putLoad(ctx, args[1:])
	case "compare":
		return comparePeers(ctx, args[1:])
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
