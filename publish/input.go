package publish

import (
	"fmt"
	"strings"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/stream"
)

// ReadInput says which run a RunAgentInput asks for: the Run, Parent, Input and ClaimIn of the result are set, Thread
// isn't, since it is the run's RUN_STARTED that says which thread it belongs to. limit is the largest input in bytes.
// Errors: *InvalidError, and those of stream.ParseRunID and ParseThreadID for ids that can't be used.
func ReadInput(input []byte, limit int) (rc RunConfig, asked agui.Input, err error) {
	if err := checkInput(input, limit); err != nil {
		return RunConfig{}, asked, err
	}
	if asked, err = agui.ParseInput(input); err != nil {
		bad := &InvalidError{Path: "/input", Reason: agui.ReasonMalformed, Detail: err.Error()}
		if path, _, found := strings.Cut(err.Error(), ": "); found && strings.HasPrefix(path, "/") {
			bad.Path += path
		}
		return RunConfig{}, asked, bad
	}
	if rc.Run, err = stream.ParseRunID(asked.RunID); err != nil {
		return RunConfig{}, asked, fmt.Errorf("runId: %w", err)
	}
	if rc.ClaimIn, err = stream.ParseThreadID(asked.ThreadID); err != nil {
		return RunConfig{}, asked, fmt.Errorf("threadId: %w", err)
	}
	if asked.ParentRunID != "" {
		if rc.Parent, err = stream.ParseRunID(asked.ParentRunID); err != nil {
			return RunConfig{}, asked, fmt.Errorf("parentRunId: %w", err)
		}
	}
	rc.Input = input
	return rc, asked, nil
}
