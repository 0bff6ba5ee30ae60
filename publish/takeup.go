package publish

import (
	"context"
	"fmt"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/stream"
)

// PastReader reads what the log has of a run, and what stands for the entries that a hub has trimmed.
type PastReader interface {
	Range(ctx context.Context, run stream.RunID, after stream.ID, maxEntries, maxBytes int) (stream.Page, error)
	Checkpoint(ctx context.Context, run stream.RunID) (c stream.Checkpoint, ok, unknown bool, err error)
	Trimmed(ctx context.Context, run stream.RunID) (t stream.Trimmed, ok, unknown bool, err error)
}

// maxCheckpoint bounds what a checkpoint unpacks to, in bytes: that of a hub with eight times the default
// --max-conversation.
const maxCheckpoint = 512 << 20

// takeUp goes on from a checkpoint, where the entry that comes first doesn't begin the run: it was trimmed then. It reports
// whether it did. Where a hub trimmed the run and no checkpoint can be used the past is headless.
func (p *past) takeUp(ctx context.Context, log PastReader, first stream.Entry, maxEvent int) (bool, error) {
	if !first.NoEvent && p.event.Parse(first.Event) == nil && (p.event.Type == agui.RunStarted || p.event.Type.Terminal()) {
		return false, nil
	}
	newest, ok, _, err := log.Checkpoint(ctx, p.info.Run)
	if err != nil {
		return false, err
	}
	if ok {
		if took, err := p.restore(ctx, log, newest, maxEvent); took || err != nil {
			return took, err
		}
	}
	trimmed, ok, unknown, err := log.Trimmed(ctx, p.info.Run)
	if err != nil {
		return false, err
	}
	if ok {
		if took, err := p.restore(ctx, log, trimmed.Checkpoint, maxEvent); took || err != nil {
			return took, err
		}
	}
	p.headless = ok || unknown
	return false, nil
}

// restore takes a checkpoint over, where the entry that it is of is there and the run went on behind it.
func (p *past) restore(ctx context.Context, log PastReader, c stream.Checkpoint, maxEvent int) (bool, error) {
	page, err := log.Range(ctx, p.info.Run, c.At, 1, 1)
	if err != nil || page.Anchor != stream.AnchorHeld || page.AnchorSum != c.Sum {
		return false, err
	}
	run, err := agui.RestoreRun(c.Data, agui.RunConfig{MaxEvent: maxEvent}, maxCheckpoint)
	if err != nil || run.Ended() || !run.Started() {
		return false, nil //nolint:nilerr // damage is a miss: the other checkpoint, or the end of the way
	}
	if err := p.event.Parse(run.StartEvent()); err != nil {
		return false, fmt.Errorf("the start in a checkpoint: %w", err)
	}
	p.adm, p.existed = run.Admission(), true
	p.noteStart()
	p.seen, p.seenSum = c.At, c.Sum
	p.judged += len(c.Data)
	return true, nil
}
