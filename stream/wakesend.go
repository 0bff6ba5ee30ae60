package stream

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// addWake adds the wake-up of a run's readers to a pipeline, behind what they are to be woken for. What becomes of it is for
// noteWake; an append doesn't depend on it.
func (l *Redis) addWake(ctx context.Context, pipe redis.Pipeliner, run RunID) *redis.IntCmd {
	if l.mute.Load() {
		return nil
	}
	return pipe.Publish(ctx, l.keys.Wake(), string(run))
}

// noteWake has no more sent where the user may not.
func (l *Redis) noteWake(ctx context.Context, sent *redis.IntCmd) {
	if sent != nil && errors.Is(classify(ctx, "wake", sent.Err()), ErrDenied) {
		l.mute.Store(true)
	}
}

// scriptAndWake runs a script that appends to a run, and wakes the run's readers with it.
func (l *Redis) scriptAndWake(
	ctx context.Context, client redis.Cmdable, s *redis.Script, step string, run RunID, keys []string, args ...any,
) (scriptReply, error) {
	pipe := client.Pipeline()
	cmd, wake := s.EvalSha(ctx, pipe, keys, args...), l.addWake(ctx, pipe, run)
	_, _ = pipe.Exec(ctx) // each command has its own error
	if err := cmd.Err(); err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		pipe = client.Pipeline()
		cmd, wake = s.Eval(ctx, pipe, keys, args...), l.addWake(ctx, pipe, run)
		_, _ = pipe.Exec(ctx)
	}
	l.noteWake(ctx, wake)
	return replyOf(ctx, step, cmd)
}
