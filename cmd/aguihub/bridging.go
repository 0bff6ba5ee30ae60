package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/bridge"
	"github.com/aguihub/aguihub/stream"
)

// agents are the agents of --agent and --agents-file.
func (c *serveCommand) agents() ([]bridge.Agent, error) {
	var agents []bridge.Agent
	for _, text := range c.Agent {
		a, err := bridge.ParseAgent(text)
		if err != nil {
			return nil, fmt.Errorf("--agent: %w", err)
		}
		agents = append(agents, a)
	}
	if c.AgentsFile != "" {
		f, err := os.Open(c.AgentsFile)
		if err != nil {
			return nil, fmt.Errorf("--agents-file: %w", err)
		}
		defer func() { _ = f.Close() }()
		more, err := bridge.ReadAgents(f)
		if err != nil {
			return nil, fmt.Errorf("--agents-file: %w", err)
		}
		agents = append(agents, more...)
	}
	seen := map[string]bool{}
	for _, a := range agents {
		if seen[a.Name] {
			return nil, fmt.Errorf("--agent: two agents are called %s", a.Name)
		}
		seen[a.Name] = true
	}
	return agents, nil
}

// threads tells the bridge what goes on in a thread: bridge.Threads over the service.
type threads struct{ service *backfill.Service }

// Active implements bridge.Threads.
func (t threads) Active(ctx context.Context, thread string) ([]string, error) {
	runs, err := t.service.Active(ctx, stream.ThreadID(thread))
	names := make([]string, len(runs))
	for i, run := range runs {
		names[i] = string(run)
	}
	return names, err
}

// Pending implements bridge.Threads.
func (t threads) Pending(ctx context.Context, thread, parent string) ([]string, error) {
	return t.service.Pending(ctx, stream.ThreadID(thread), stream.RunID(parent))
}

// Cancel implements bridge.Threads. A run that has ended meanwhile needs no cancel.
func (t threads) Cancel(ctx context.Context, run, reason string) error {
	err := t.service.Cancel(ctx, stream.RunID(run), reason, hubName())
	if errors.Is(err, stream.ErrRunEnded) || errors.Is(err, backfill.ErrUnknownRun) {
		return nil
	}
	return err
}

// Wait implements bridge.Threads.
func (t threads) Wait(ctx context.Context, run string) error {
	session := t.service.Watch(stream.RunID(run))
	defer session.Close()
	for {
		_, err := session.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
