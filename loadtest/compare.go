package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/aguihub/aguihub/loadtest/compare"
	"github.com/aguihub/aguihub/loadtest/process"
)

var errUnmeasured = errors.New("not all could be measured, or subscribers missed something")

// comparePeers measures the table of goals. Goals that are missed are a matter of the report, not of the exit code.
func comparePeers(ctx context.Context, args []string) error {
	config := compare.Config{Log: os.Stderr}
	flags := flag.NewFlagSet("loadtest compare", flag.ContinueOnError)
	flags.StringVar(&config.Hub, "hub", "", "program of the hub (built)")
	flags.StringVar(&config.Centrifugo, "centrifugo", "", "program of the peer (left out)")
	names := flags.String("rows", "", "rows, parted by commas: "+strings.Join(compare.Names(), ", ")+" (all)")
	flags.BoolVar(&config.Quick, "quick", false, "a fiftieth of everything: shows that it works, and nothing else")
	flags.IntVar(&config.Rounds, "rounds", 0, "rounds of each row (its own)")
	flags.DurationVar(&config.Limit, "limit", 14*time.Minute, "of the whole; what wasn't measured by then is said")
	out := flags.String("out", "", "file for the report in Markdown (standard output)")
	figures := flags.String("json", "", "file for all figures")
	keep := flags.String("dir", "", "folder for files, kept afterwards (a temporary one)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *names != "" {
		config.Rows = strings.Split(*names, ",")
		for _, name := range config.Rows {
			if !slices.Contains(compare.Names(), name) {
				return fmt.Errorf("there is no row %s", name)
			}
		}
	}
	dir, remove, err := folder(*keep)
	if err != nil {
		return err
	}
	defer remove()
	config.Dir = dir
	if config.Hub == "" {
		if config.Hub, err = process.BuildHub(ctx, dir); err != nil {
			return err
		}
	}
	if config.Self, err = os.Executable(); err != nil {
		return err
	}
	report, err := compare.Run(ctx, config)
	if err != nil {
		return err
	}
	if *figures != "" {
		text, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(*figures, text, 0o600); err != nil {
			return err
		}
	}
	var text bytes.Buffer
	report.Markdown(&text)
	if *out == "" {
		if _, err := os.Stdout.Write(text.Bytes()); err != nil {
			return err
		}
	} else if err := os.WriteFile(*out, text.Bytes(), 0o644); err != nil { //nolint:gosec // a document
		return err
	}
	if len(report.Wrong()) > 0 {
		return errUnmeasured
	}
	return nil
}
