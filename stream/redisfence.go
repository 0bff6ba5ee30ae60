package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Names of the keys beside a run.
const (
	auxProducer = "producer"
	auxLease    = "lease"
	auxControl  = "control"
)

// Claim takes a run for a producer: from then on those with an older epoch are refused. It fails with ErrFenced where the
// run has a later epoch, or this one under another name, and with ErrRunEnded or, where it is asked, ErrRunExists. A run without a stream can be claimed.
func (l *Redis) Claim(ctx context.Context, run RunID, c Claim) (Claimed, error) {
	reply, err := l.script(ctx, l.commands, claimScript, "claim", l.keysOf(run)[:3],
		fenceVersion, c.Producer, c.Epoch, c.TTL.Milliseconds(), auxKeep.Milliseconds(), flag(c.Peek), c.Input, flag(c.Fresh))
	if err != nil {
		return Claimed{}, err
	}
	got := Claimed{Fence: Fence{Producer: c.Producer}}
	if got.Epoch, err = reply.number(1); err != nil {
		return Claimed{}, err
	}
	if got.Next, err = reply.number(2); err != nil {
		return Claimed{}, err
	}
	if got.Last, err = reply.id(3); err != nil {
		return Claimed{}, err
	}
	got.Head, err = reply.id(4)
	return got, err
}

// AppendFenced is Append for a producer that has claimed the run: all records or none of them, at once. Records that are
// in the log already, by their sequence numbers, are not appended again, so that a call whose answer was lost may be
// repeated. Every error is an [*AppendError]; beside those of Append its cause may be ErrFenced, ErrRunEnded or a
// *GapError, and nothing was written then. Without records it moves the sequence to Seq.
func (l *Redis) AppendFenced(ctx context.Context, run RunID, a FencedAppend, recs ...Record) (Appended, error) {
	args := make([]any, 0, 9+2*len(recs))
	args = append(args, fenceVersion, a.Producer, a.Epoch, a.Seq, a.Floor, a.TTL.Milliseconds(), auxKeepEnded.Milliseconds(), flag(a.End), flag(a.Late))
	for _, rec := range recs {
		args = append(args, rec.Event, rec.Input)
	}
	keys := l.keysOf(run)
	var reply scriptReply
	err := l.appending(ctx, keys[0], func(client redis.Cmdable) (err error) {
		reply, err = l.scriptAndWake(ctx, client, appendScript, "append", run, keys, args...)
		return err
	})
	if err != nil {
		return Appended{}, &AppendError{Err: err}
	}
	got, err := reply.appended()
	if err != nil {
		return got, &AppendError{Appended: len(got.IDs), IDs: got.IDs, Err: err}
	}
	return got, nil
}

// Keep renews leases and reads control streams, in as few round trips as it takes, in the order of holds. An error means
// that not all of it could be done.
func (l *Redis) Keep(ctx context.Context, holds []Hold) ([]Kept, error) {
	kept := make([]Kept, len(holds))
	for from := 0; from < len(holds); from += pipelineRuns {
		to := min(from+pipelineRuns, len(holds))
		if err := l.keep(ctx, holds[from:to], kept[from:to]); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// pipelineRuns is for how many runs one pipeline asks at once.
const pipelineRuns = 500

func (l *Redis) keep(ctx context.Context, holds []Hold, kept []Kept) error {
	control := make([]*redis.XMessageSliceCmd, len(holds))
	_ = l.read(ctx, func(pipe redis.Pipeliner) { // each command has its own error
		for i, h := range holds {
			control[i] = pipe.XRangeN(ctx, l.keys.Aux(h.Run, auxControl), h.After.Next().String(), "+", maxControl)
		}
	})
	for i, cmd := range control {
		err := classify(ctx, "control", cmd.Err())
		switch {
		case errors.Is(err, ErrWrongType): // the key is anybody's: it concerns this run alone
			continue
		case err != nil:
			return err
		}
		for _, m := range cmd.Val() {
			id, err := ParseID(m.ID)
			if err != nil {
				return err
			}
			text, _ := m.Values["control"].(string)
			kept[i].Signals = append(kept[i].Signals, Signal{ID: id, Control: []byte(text)})
		}
	}
	return l.renew(ctx, holds, kept)
}

// renew renews the leases that are to be renewed.
func (l *Redis) renew(ctx context.Context, holds []Hold, kept []Kept) error {
	var which []int
	for i, h := range holds {
		if h.Renew {
			which = append(which, i)
		}
	}
	cmds, err := l.scripts(ctx, renewScript, len(which), func(n int) ([]string, []any) {
		h := &holds[which[n]]
		keys := l.keysOf(h.Run)
		return keys[1:3], []any{fenceVersion, h.Producer, h.Epoch, h.TTL.Milliseconds(), auxKeep.Milliseconds()}
	})
	if err != nil {
		return err
	}
	for n, cmd := range cmds {
		held, failed := cmd.Int()
		if err := classify(ctx, "renew", failed); err != nil {
			return err
		}
		kept[which[n]].Lost = held == 0
	}
	return nil
}

// RequestCancel writes a signal to the run's control stream. It fails with ErrNoRun where the run has no stream and nobody
// has claimed it.
func (l *Redis) RequestCancel(ctx context.Context, run RunID, control []byte) (ID, error) {
	reply, err := l.script(ctx, l.commands, signalScript, "cancel",
		[]string{l.keys.Run(run), l.keys.Aux(run, auxControl), l.keys.Aux(run, auxProducer)}, maxControl, auxKeep.Milliseconds(), control)
	if err != nil {
		return ID{}, err
	}
	return reply.id(1)
}

// Signals returns the control streams of runs, oldest entries first, each whole.
func (l *Redis) Signals(ctx context.Context, runs ...RunID) ([][]Signal, error) {
	holds := make([]Hold, len(runs))
	for i, run := range runs {
		holds[i].Run = run
	}
	kept, err := l.Keep(ctx, holds)
	if err != nil {
		return nil, err
	}
	signals := make([][]Signal, len(runs))
	for i, k := range kept {
		signals[i] = k.Signals
	}
	return signals, nil
}

// Leases tells how the leases of runs stand, in the order of runs. It changes nothing: see NoteLeases.
func (l *Redis) Leases(ctx context.Context, runs ...RunID) ([]Lease, error) {
	leases := make([]Lease, len(runs))
	claimed, err := l.claimed(ctx, runs)
	if err != nil {
		return nil, err
	}
	for some := range slices.Chunk(claimed, pipelineRuns) {
		hashes, left := make([]*redis.SliceCmd, len(some)), make([]*redis.DurationCmd, len(some))
		_ = l.read(ctx, func(pipe redis.Pipeliner) { // each command has its own error
			for n, i := range some {
				keys := l.keysOf(runs[i])
				hashes[n] = pipe.HMGet(ctx, keys[1], "v", "epoch", "ended", "lapsed")
				left[n] = pipe.PTTL(ctx, keys[2])
			}
		})
		for n, i := range some {
			err := classify(ctx, "leases", errors.Join(hashes[n].Err(), left[n].Err()))
			if err != nil && !errors.Is(err, ErrWrongType) {
				return nil, err
			}
			leases[i] = leaseOf(hashes[n].Val(), left[n].Val())
		}
	}
	return leases, nil
}

// claimedRuns is how many runs one EXISTS looks at.
const claimedRuns = 50

// claimed returns the indexes of those of the runs that may have a lease, or have had one. Many runs never get one, and to
// ask for all of them at once costs a third. On a cluster one command can't span slots, and any run may have one.
func (l *Redis) claimed(ctx context.Context, runs []RunID) (some []int, err error) {
	var exist []*redis.IntCmd
	if !l.dialer.cluster && len(runs) > 1 {
		_ = l.read(ctx, func(pipe redis.Pipeliner) { // each command has its own error
			exist = exist[:0] // it may be tried again
			for part := range slices.Chunk(runs, claimedRuns) {
				keys := make([]string, 0, 2*len(part))
				for _, run := range part {
					keys = append(keys, l.keys.Aux(run, auxProducer), l.keys.Aux(run, auxLease))
				}
				exist = append(exist, pipe.Exists(ctx, keys...))
			}
		})
	}
	for i := range runs {
		if n := i / claimedRuns; n < len(exist) {
			err := classify(ctx, "leases", exist[n].Err())
			if err == nil && exist[n].Val() == 0 {
				continue
			}
			if err != nil && !concernsKey(err) {
				return nil, err
			}
		}
		some = append(some, i)
	}
	return some, nil
}

// leaseOf reads the fields of Leases. left is the answer of PTTL: -2 means that there is no lease, -1 that it never lapses.
func leaseOf(fields []any, left time.Duration) Lease {
	l := Lease{Held: left >= -1, Left: max(left, 0)}
	text := func(i int) string {
		if i >= len(fields) {
			return ""
		}
		s, _ := fields[i].(string)
		return s
	}
	if text(0) != fenceVersion {
		return l
	}
	l.Known = true
	l.Epoch, _ = strconv.ParseUint(text(1), 10, 53)
	l.Ended = text(2) != ""
	l.LapsedMs, _ = strconv.ParseInt(text(3), 10, 64)
	return l
}

// NoteLeases writes down what Leases tells of these runs: that a lease was seen, when one lapsed, that one is back.
func (l *Redis) NoteLeases(ctx context.Context, runs ...RunID) error {
	for from := 0; from < len(runs); from += pipelineRuns {
		part := runs[from:min(from+pipelineRuns, len(runs))]
		cmds, err := l.scripts(ctx, noteScript, len(part), func(n int) ([]string, []any) {
			return l.keysOf(part[n])[1:3], []any{fenceVersion, auxKeep.Milliseconds()}
		})
		if err != nil {
			return err
		}
		for _, cmd := range cmds {
			if err := classify(ctx, "note", cmd.Err()); err != nil && !errors.Is(err, ErrWrongType) {
				return err
			}
		}
	}
	return nil
}

// ShortenLeases has the leases of publishers lapse in most at the latest, as they would if the clock of Redis hadn't been set
// back since they were set. Plain agents choose theirs themselves.
func (l *Redis) ShortenLeases(ctx context.Context, most time.Duration, runs ...RunID) error {
	cmds, err := l.scripts(ctx, shortenScript, len(runs), func(n int) ([]string, []any) {
		return l.keysOf(runs[n])[1:3], []any{fenceVersion, most.Milliseconds()}
	})
	if err != nil {
		return err
	}
	for _, cmd := range cmds {
		if err := classify(ctx, "shorten", cmd.Err()); err != nil && !errors.Is(err, ErrWrongType) {
			return err
		}
	}
	return nil
}

// Reap ends a run with events, the first of which gets the input that a claim without an entry has left, unless it has a lease, or anything is otherwise than it was seen: then it returns no IDs
// and no error. Of several who try one succeeds, and the producer is fenced off.
func (l *Redis) Reap(ctx context.Context, run RunID, r Reap, events ...[]byte) ([]ID, error) {
	args := []any{fenceVersion, r.By, r.Epoch, r.Head.String(), r.Grace.Milliseconds(), r.Idle.Milliseconds(), auxKeepEnded.Milliseconds()}
	for _, e := range events {
		args = append(args, e)
	}
	keys := l.keysOf(run)
	var reply scriptReply
	err := l.appending(ctx, keys[0], func(client redis.Cmdable) (err error) {
		reply, err = l.scriptAndWake(ctx, client, reapScript, "reap", run, keys, args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if reply.word() != "ok" {
		return nil, nil
	}
	return reply.ids(1)
}

// Settle notes that a run has ended, which its stream tells, in the epoch that was seen.
func (l *Redis) Settle(ctx context.Context, run RunID, epoch uint64) error {
	keys := l.keysOf(run)
	err := settleScript.Run(ctx, l.commands, []string{keys[1], keys[2], keys[0]}, fenceVersion, epoch, auxKeepEnded.Milliseconds()).Err()
	return classify(ctx, "settle", err)
}

// keysOf are a run's keys as the scripts take them: stream, producer, lease, control.
func (l *Redis) keysOf(run RunID) []string {
	return []string{l.keys.Run(run), l.keys.Aux(run, auxProducer), l.keys.Aux(run, auxLease), l.keys.Aux(run, auxControl)}
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// scriptReply is what a script answers: a word, and what belongs to it.
type scriptReply []any

// script runs a script and makes errors of the words that are some.
func (l *Redis) script(ctx context.Context, client redis.Scripter, s *redis.Script, step string, keys []string, args ...any) (scriptReply, error) {
	return replyOf(ctx, step, s.Run(ctx, client, keys, args...))
}

func replyOf(ctx context.Context, step string, cmd *redis.Cmd) (scriptReply, error) {
	values, failed := cmd.Slice()
	if err := classify(ctx, step, failed); err != nil {
		return nil, err
	}
	reply := scriptReply(values)
	return reply, reply.fault(step)
}

func (r scriptReply) fault(step string) error {
	switch r.word() {
	case "fenced":
		return fmt.Errorf("%s: %w", step, ErrFenced)
	case "ended":
		return fmt.Errorf("%s: %w", step, ErrRunEnded)
	case "exists":
		return fmt.Errorf("%s: %w", step, ErrRunExists)
	case "none":
		return fmt.Errorf("%s: %w", step, ErrNoRun)
	case "gap":
		next, err := r.number(1)
		if err != nil {
			return err
		}
		return fmt.Errorf("%s: %w", step, &GapError{Next: next})
	case "":
		return fmt.Errorf("stream: %s: answer of %d parts", step, len(r))
	}
	return nil
}

func (r scriptReply) word() string { return r.text(0) }

func (r scriptReply) text(i int) string {
	if i >= len(r) {
		return ""
	}
	s, _ := r[i].(string)
	return s
}

func (r scriptReply) number(i int) (uint64, error) { return strconv.ParseUint(r.text(i), 10, 53) }

// id reads an entry's id; an empty text is none.
func (r scriptReply) id(i int) (ID, error) {
	if r.text(i) == "" {
		return ID{}, nil
	}
	return ParseID(r.text(i))
}

func (r scriptReply) ids(from int) ([]ID, error) {
	var ids []ID
	for i := from; i < len(r); i++ {
		id, err := ParseID(r.text(i))
		if err != nil {
			return ids, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// appended reads what appendScript answers.
func (r scriptReply) appended() (got Appended, err error) {
	if len(r) < 4 {
		return got, fmt.Errorf("stream: append: answer of %d parts", len(r))
	}
	already, _ := r[1].(int64)
	foreign, _ := r[2].(int64)
	got.Already, got.Foreign = int(already), foreign == 1
	if got.IDs, err = r.ids(4); err != nil {
		return got, err
	}
	got.Last, err = r.id(3)
	return got, err
}

// scripts runs a script n times in a pipeline, or two where a server doesn't know it yet.
func (l *Redis) scripts(ctx context.Context, s *redis.Script, n int, call func(n int) (keys []string, args []any)) ([]*redis.Cmd, error) {
	if n == 0 {
		return nil, nil
	}
	pipe := l.commands.Pipeline()
	cmds := make([]*redis.Cmd, n)
	for i := range cmds {
		keys, args := call(i)
		cmds[i] = s.EvalSha(ctx, pipe, keys, args...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	again := l.commands.Pipeline()
	for i, cmd := range cmds {
		if err := cmd.Err(); err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
			keys, args := call(i)
			cmds[i] = s.Eval(ctx, again, keys, args...)
		}
	}
	if again.Len() > 0 {
		_, _ = again.Exec(ctx)
	}
	return cmds, ctx.Err()
}
