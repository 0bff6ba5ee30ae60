package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// cancelCommand asks a run to end.
type cancelCommand struct {
	RunID  string `arg:"" name:"run" help:"The run's id."`
	Reason string `placeholder:"TEXT" help:"Why, for people: the agent gets to see it. At most 1,000 bytes."`
	hubFlag
}

// Run implements the subcommand. It doesn't wait for the run's end.
func (c *cancelCommand) Run(ctx context.Context, con stdio) error {
	if err := checkRun(c.RunID); err != nil {
		return err
	}
	u, err := c.endpoint("runs", c.RunID, "cancel")
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]string{"reason": c.Reason})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	c.show(req.Header)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return c.unreachable(err)
	}
	if resp.StatusCode/100 != 2 {
		return problemOf(resp.StatusCode, answer)
	}
	_, err = fmt.Fprintf(con.out, "run %s is asked to end; its agent decides when\n", c.RunID)
	return err
}
