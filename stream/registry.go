package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
)

// RunState is what a registry entry says of a run. Agents write it too: a state that isn't among the constants
// is handed on as it is, and readers ignore it.
type RunState string

// The states of the contract, section 1.
const (
	RunClaimed     RunState = "claimed" // nothing is written yet
	RunStarted     RunState = "started"
	RunFinished    RunState = "finished"
	RunError       RunState = "error"
	RunCancelled   RunState = "cancelled"
	RunInterrupted RunState = "interrupted"
	RunAbandoned   RunState = "abandoned"
	RunDeleted     RunState = "deleted"
)

// Known reports whether the state is one of the contract.
func (s RunState) Known() bool {
	switch s {
	case RunClaimed, RunStarted, RunFinished, RunError, RunCancelled, RunInterrupted, RunAbandoned, RunDeleted:
		return true
	default:
		return false
	}
}

const (
	// maxStateBytes bounds a state that is handed on. The longest known one has 11 bytes.
	maxStateBytes = 64
	// maxListLimit bounds one answer of List and Thread.
	maxListLimit = 10_000
)

// RunInfo is one registry entry: a run, and what became of it.
type RunInfo struct {
	Run    RunID
	Thread ThreadID // empty if unknown
	Parent RunID    // empty if there is none or it is unknown
	State  RunState
}

// RunEvent is a RunInfo at its place in the registry.
type RunEvent struct {
	ID ID
	RunInfo
}

// ThreadRun is a run of a thread.
type ThreadRun struct {
	Run     RunID
	StartMs int64 // milliseconds since 1970; a hint until the run's start was read
}

// Registry says which runs there are and which belong to a thread. Entries come from anybody who may write to
// Redis: those whose ids break the contract are skipped and counted (Skipped), never handed on. It is
// bounded, so that old runs fall out; which runs exist is for the runs' keys to say.
// All methods may be called by any number of goroutines at once.
type Registry struct {
	store   registryStore
	tail    *Tail
	keys    Keys
	cfg     Config
	skipped atomic.Uint64
}

// registryStore is the registry's share of a log. Thread keys come whole.
type registryStore interface {
	// announce adds an entry of these fields, names and values in turn, and, where thread isn't empty, the run
	// to that set unless it is there.
	announce(ctx context.Context, fields []any, thread string, run RunID, score float64) error
	// correct changes the score of a member that is there.
	correct(ctx context.Context, thread string, run RunID, score float64) error
	// members returns the members with the highest scores, the highest first. Where run isn't empty its score is changed
	// before, if it is there.
	members(ctx context.Context, thread string, limit int, run RunID, score float64) ([]member, error)
	// newest returns entries from behind before (zero: from the end), the newest first.
	newest(ctx context.Context, before ID, limit int) ([]message, error)
}

// member is a member of a sorted set.
type member struct {
	name  string
	score float64
}

// Announce adds an entry, and the run to its thread where it started and the thread is given. The two are no
// transaction: after an error either may have happened, and announcing again is harmless for readers, who
// take the newest entry of a run.
func (r *Registry) Announce(ctx context.Context, info RunInfo) error {
	if _, err := ParseRunID(string(info.Run)); err != nil {
		return err
	}
	fields := []any{"run", string(info.Run), "state", string(info.State)}
	if info.Thread != "" {
		if _, err := ParseThreadID(string(info.Thread)); err != nil {
			return err
		}
		fields = append(fields, "thread", string(info.Thread))
	}
	if info.Parent != "" {
		if _, err := ParseRunID(string(info.Parent)); err != nil {
			return fmt.Errorf("parent: %w", err)
		}
		fields = append(fields, "parent", string(info.Parent))
	}
	thread := ""
	if info.Thread != "" && info.State == RunStarted {
		thread = r.keys.Thread(info.Thread)
	}
	return r.store.announce(ctx, fields, thread, info.Run, float64(r.cfg.Now().UnixMilli()))
}

// Correct sets a run's start, in milliseconds since 1970, once it was read from the run's own stream. A run
// that isn't in the thread's set stays out: it may have been deleted.
func (r *Registry) Correct(ctx context.Context, thread ThreadID, run RunID, startMs int64) error {
	return r.store.correct(ctx, r.keys.Thread(thread), run, float64(startMs))
}

// Thread returns the runs of a thread, the one that started last first. limit is at most 10,000, which is also
// what 0 means. A thread that nobody knows has none.
func (r *Registry) Thread(ctx context.Context, thread ThreadID, limit int) ([]ThreadRun, error) {
	return r.thread(ctx, thread, limit, "", 0)
}

// ThreadWith is Correct and then Thread, in one round trip.
func (r *Registry) ThreadWith(ctx context.Context, thread ThreadID, run RunID, startMs int64, limit int) ([]ThreadRun, error) {
	return r.thread(ctx, thread, limit, run, startMs)
}

func (r *Registry) thread(ctx context.Context, thread ThreadID, limit int, run RunID, startMs int64) ([]ThreadRun, error) {
	members, err := r.store.members(ctx, r.keys.Thread(thread), clampLimit(limit), run, float64(startMs))
	if err != nil {
		return nil, err
	}
	runs := make([]ThreadRun, 0, len(members))
	for _, m := range members {
		run, err := ParseRunID(m.name)
		if err != nil || math.IsNaN(m.score) || math.Abs(m.score) > 1<<53 {
			r.skipped.Add(1)
			continue
		}
		runs = append(runs, ThreadRun{Run: run, StartMs: int64(m.score)})
	}
	return runs, nil
}

// Follow calls sink with the entries after after, those that are there and those that come, under the
// contract of [Tail.Follow], but for two errors. That the registry lost the entry at the follower's position is told by a
// call without entries, and what comes then are its entries from the first on. An error that concerns the registry alone
// (its key is of another type) isn't told here: List and Last return it. Following goes on when the key is well again.
func (r *Registry) Follow(after ID, sink func([]RunEvent)) (stop func()) {
	return r.tail.followKey(r.keys.Runs(), after, true, func(ms []message, err error) {
		switch events := r.events(ms); {
		case errors.Is(err, ErrLost):
			sink(nil)
		case len(events) > 0:
			sink(events)
		}
	})
}

// List returns up to limit entries before before, zero meaning from the newest on, the newest first; limit as
// for Thread. next is what to ask before for more, and zero where there is no more. Skipped entries count
// towards limit, so that a page may be short or even empty with more to come.
func (r *Registry) List(ctx context.Context, before ID, limit int) (events []RunEvent, next ID, err error) {
	limit = clampLimit(limit)
	ms, err := r.store.newest(ctx, before, limit)
	if err != nil {
		return nil, ID{}, err
	}
	if len(ms) == limit {
		next = ms[len(ms)-1].id
	}
	return r.events(ms), next, nil
}

// Last returns the ID of the newest entry, zero if there is none. Following from it misses nothing.
func (r *Registry) Last(ctx context.Context) (ID, error) {
	ms, err := r.store.newest(ctx, ID{}, 1)
	if err != nil || len(ms) == 0 {
		return ID{}, err
	}
	return ms[0].id, nil
}

// Skipped returns how many entries and members broke the contract since start. Reading one again counts again.
func (r *Registry) Skipped() uint64 { return r.skipped.Load() }

// events converts what is valid of ms.
func (r *Registry) events(ms []message) []RunEvent {
	events := make([]RunEvent, 0, len(ms))
	for _, m := range ms {
		info, err := infoOf(m.fields)
		if err != nil {
			r.skipped.Add(1)
			continue
		}
		events = append(events, RunEvent{ID: m.id, RunInfo: info})
	}
	return events
}

// infoOf reads a registry entry's fields.
func infoOf(fields map[string]any) (RunInfo, error) {
	text := func(name string) string {
		s, _ := fields[name].(string)
		return s
	}
	var info RunInfo
	var err error
	if info.Run, err = ParseRunID(text("run")); err != nil {
		return RunInfo{}, err
	}
	if thread := text("thread"); thread != "" {
		if info.Thread, err = ParseThreadID(thread); err != nil {
			return RunInfo{}, err
		}
	}
	if parent := text("parent"); parent != "" {
		if info.Parent, err = ParseRunID(parent); err != nil {
			return RunInfo{}, err
		}
	}
	state := text("state")
	if state == "" || len(state) > maxStateBytes {
		return RunInfo{}, fmt.Errorf("stream: state of %d bytes", len(state))
	}
	info.State = RunState(state)
	return info, nil
}

func clampLimit(limit int) int {
	if limit <= 0 || limit > maxListLimit {
		return maxListLimit
	}
	return limit
}
