package agui

import (
	"encoding/json"
	"fmt"
)

// Input is a RunAgentInput as far as it is read: what a client posts to start a run.
type Input struct {
	ThreadID    string
	RunID       string
	ParentRunID string // "" where absent
	// Resume are the ids of the interrupts that it answers, in order; nil where it answers none.
	Resume []string
}

// ParseInput reads a RunAgentInput and judges it as the official client judges one within RUN_STARTED. The error says in
// words what is wrong, with a JSON Pointer in front where one place is.
func ParseInput(raw []byte) (Input, error) {
	if err := checkInput(raw); err != nil {
		return Input{}, err
	}
	var in struct {
		ThreadID    string  `json:"threadId"`
		RunID       string  `json:"runId"`
		ParentRunID *string `json:"parentRunId"`
		Resume      []struct {
			InterruptID string `json:"interruptId"`
		} `json:"resume"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return Input{}, fmt.Errorf("input: %w", err)
	}
	out := Input{ThreadID: in.ThreadID, RunID: in.RunID}
	if in.ParentRunID != nil {
		out.ParentRunID = *in.ParentRunID
	}
	for _, entry := range in.Resume {
		out.Resume = append(out.Resume, entry.InterruptID)
	}
	return out, nil
}
