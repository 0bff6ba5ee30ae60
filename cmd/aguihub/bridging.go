package main

import (
	"fmt"
	"os"

	"github.com/aguihub/aguihub/bridge"
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
