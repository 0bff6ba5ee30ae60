package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Bounds returns the outline of each run's stream, in the order of runs, from one pipeline of XINFO STREAM (two
// pipelines on the embedded server). A key of another type is flagged, and no error. Each outline brings the
// run's first and last entry whole: ask for as many runs at once as a page shows.
func (l *Redis) Bounds(ctx context.Context, runs ...RunID) ([]Bounds, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	cmds := make([]*redis.Cmd, len(runs))
	_ = l.read(ctx, func(pipe redis.Pipeliner) { // each command has its own error
		for i, run := range runs {
			cmds[i] = pipe.Do(ctx, "xinfo", "stream", l.keys.Run(run))
		}
	})
	bounds := make([]Bounds, len(runs))
	var bare []int // without their entries: miniredis tells the length only
	for i, cmd := range cmds {
		b := &bounds[i]
		b.Run = runs[i]
		err := classify(ctx, "bounds", cmd.Err())
		switch {
		case errors.Is(err, ErrWrongType):
			b.Exists, b.WrongType = true, true
			continue
		case err != nil && isNoSuchKey(cmd.Err()):
			continue
		case err != nil:
			return nil, err
		}
		b.Exists = true
		complete, err := b.fill(cmd.Val())
		if err != nil {
			return nil, err
		}
		if !complete && b.Len > 0 {
			bare = append(bare, i)
		}
	}
	return bounds, l.fillEnds(ctx, bounds, bare)
}

// isNoSuchKey reports whether the server said that there is no such key.
func isNoSuchKey(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	return ok && strings.HasPrefix(reply.Error(), "ERR no such key")
}

// fill reads the answer of XINFO STREAM and reports whether it had the first and last entry.
func (b *Bounds) fill(answer any) (complete bool, err error) {
	info, ok := answer.(map[any]any)
	if !ok {
		return false, fmt.Errorf("stream: bounds: answer of type %T", answer)
	}
	if b.Len, ok = info["length"].(int64); !ok {
		return false, errors.New("stream: bounds: answer without length")
	}
	b.Added, _ = info["entries-added"].(int64)
	first, hasFirst := info["first-entry"]
	last, hasLast := info["last-entry"]
	if !hasFirst || !hasLast {
		return false, nil
	}
	if b.First, err = rawEntry(first); err != nil {
		return false, err
	}
	b.Last, err = rawEntry(last)
	return true, err
}

// rawEntry converts an entry as the server sends it, [id, [field, value, …]]; nil is no entry.
func rawEntry(raw any) (Entry, error) {
	if raw == nil {
		return Entry{}, nil
	}
	parts, _ := raw.([]any)
	if len(parts) != 2 {
		return Entry{}, fmt.Errorf("stream: bounds: entry of type %T", raw)
	}
	text, _ := parts[0].(string)
	id, err := ParseID(text)
	if err != nil {
		return Entry{}, err
	}
	values, _ := parts[1].([]any)
	fields := make(map[string]any, len(values)/2)
	for i := 0; i+1 < len(values); i += 2 {
		name, _ := values[i].(string)
		fields[name] = values[i+1]
	}
	return entryOf(message{id: id, fields: fields}), nil
}

// fillEnds reads the first and last entries of the runs that which lists.
func (l *Redis) fillEnds(ctx context.Context, bounds []Bounds, which []int) error {
	if len(which) == 0 {
		return nil
	}
	firsts, lasts := make([]*redis.XMessageSliceCmd, len(which)), make([]*redis.XMessageSliceCmd, len(which))
	err := l.read(ctx, func(pipe redis.Pipeliner) {
		for n, i := range which {
			key := l.keys.Run(bounds[i].Run)
			firsts[n] = pipe.XRangeN(ctx, key, "-", "+", 1)
			lasts[n] = pipe.XRevRangeN(ctx, key, "+", "-", 1)
		}
	})
	if err != nil {
		return classify(ctx, "bounds", err)
	}
	for n, i := range which {
		if bounds[i].First, err = onlyEntry(firsts[n].Val()); err != nil {
			return err
		}
		if bounds[i].Last, err = onlyEntry(lasts[n].Val()); err != nil {
			return err
		}
	}
	return nil
}

// onlyEntry converts the first of ms, zero if there is none.
func onlyEntry(ms []redis.XMessage) (Entry, error) {
	messages, err := messagesOf(ms)
	if err != nil || len(messages) == 0 {
		return Entry{}, err
	}
	return entryOf(messages[0]), nil
}
