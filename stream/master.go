package stream

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// staleConns is how many connections to a replica one call uses up before it gives in: as many as a pool has on a machine
// of two cores. Those that are left belong to the master.
const staleConns = 20

// clientTries is how often the client library tries by itself.
const clientTries = 4

// isNoMaster reports whether a server refused to write since it is a replica: nothing was written.
func isNoMaster(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	return ok && strings.HasPrefix(reply.Error(), "READONLY ")
}

// read sends commands that only read, in one pipeline, to the master. A planned change of roles leaves connections open to
// what is a replica then: it goes on answering reads, but may lag behind or hold what is lost. So the pipeline begins with
// a write that does nothing, which a replica refuses: the client closes that connection, and another one is tried. It
// costs Redis a microsecond. A user who may not write to the key isn't protected; the nodes of a cluster redirect by
// themselves.
//
// add adds the commands, and may be called again: what it added last has the answers, each command with its own error. The
// first of these is returned.
func (l *Redis) read(ctx context.Context, add func(pipe redis.Pipeliner)) error {
	pipe := l.commands.Pipeline()
	if l.dialer.cluster {
		add(pipe)
		_, err := pipe.Exec(ctx)
		return err
	}
	var cmds []redis.Cmder
	for range staleConns/clientTries + 1 {
		pipe.Expire(ctx, l.probeKey(), controlTTL)
		add(pipe)
		cmds, _ = pipe.Exec(ctx)
		if !isNoMaster(cmds[0].Err()) {
			return firstError(cmds[1:])
		}
	}
	for _, cmd := range cmds[1:] {
		cmd.SetErr(cmds[0].Err())
	}
	return cmds[0].Err()
}

// probeKey is never there, so that an EXPIRE is a write that does nothing.
func (l *Redis) probeKey() string { return l.keys.tailControl("probe", 0) }

func firstError(cmds []redis.Cmder) error {
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}

// readOne is read with one command.
func readOne[C redis.Cmder](ctx context.Context, l *Redis, add func(pipe redis.Pipeliner) C) C {
	var cmd C
	_ = l.read(ctx, func(pipe redis.Pipeliner) { cmd = add(pipe) }) // the command has the error
	return cmd
}
