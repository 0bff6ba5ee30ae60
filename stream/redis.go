package stream

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Redis is the log in a Redis or Valkey server, ≥ 7.0. All methods may be called by any number of goroutines
// at once. They block until Redis answers, their context ends, or the client's timeout (5 s unless the URL
// says otherwise) makes it [ErrUnavailable].
type Redis struct {
	// static after Connect
	cfg      Config
	keys     Keys
	dialer   *dialer
	commands redis.UniversalClient
	appends  redis.UniversalClient
	observed map[use]*observer

	mute    atomic.Bool              // the user may not publish wake-ups
	readers atomic.Pointer[observer] // of the newest tail
	server  atomic.Pointer[Server]   // as it last told
}

// Keys returns the names of the log's keys.
func (l *Redis) Keys() Keys { return l.keys }

// Ping asks the server whether it is there.
func (l *Redis) Ping(ctx context.Context) error {
	return classify(ctx, "ping", l.commands.Ping(ctx).Err())
}

// Close closes the log's connections; what is under way fails with [ErrClosed]. Tails have connections of
// their own, which end with their Run.
func (l *Redis) Close() error {
	return errors.Join(l.commands.Close(), l.appends.Close())
}

// Append adds recs to run's stream in order, one XADD each, and returns their IDs. Several are one
// transaction: all or none of them, and a blocked reader wakes once. It is never repeated behind the caller's
// back; every error is an [*AppendError], which says what is known to be there. A limit on the number and
// size of recs is the caller's to keep. No recs is no error.
func (l *Redis) Append(ctx context.Context, run RunID, recs ...Record) ([]ID, error) {
	if len(recs) == 0 {
		return nil, nil
	}
	key := l.keys.Run(run)
	var cmds []*redis.StringCmd
	err := l.appending(ctx, key, func(client redis.Cmdable) (err error) {
		cmds, err = l.appendAll(ctx, client, run, recs)
		return err
	})
	if err != nil && len(cmds) == 0 {
		return nil, &AppendError{Err: classify(ctx, "append", err)}
	}
	return collectIDs(ctx, cmds, err)
}

// appendAll sends the XADDs, more than one within MULTI and EXEC, and wakes the run's readers.
func (l *Redis) appendAll(ctx context.Context, client redis.Cmdable, run RunID, recs []Record) ([]*redis.StringCmd, error) {
	key, pipe := l.keys.Run(run), client.Pipeline()
	if len(recs) == 1 {
		cmd, wake := pipe.XAdd(ctx, xaddArgs(key, recs[0])), l.addWake(ctx, pipe, run)
		_, _ = pipe.Exec(ctx) // each command has its own error
		l.noteWake(ctx, wake)
		return []*redis.StringCmd{cmd}, cmd.Err()
	}
	cmds := make([]*redis.StringCmd, len(recs))
	_, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for i, rec := range recs {
			cmds[i] = p.XAdd(ctx, xaddArgs(key, rec))
		}
		return nil
	})
	if why := cmds[0].Err(); err != nil && why != nil {
		err = why // EXECABORT alone says nothing
	}
	if wake := l.addWake(ctx, pipe, run); err == nil && wake != nil {
		_, _ = pipe.Exec(ctx) // a wake-up that is lost is made up for by those who wait
		l.noteWake(ctx, wake)
	}
	return cmds, err
}

// collectIDs returns the IDs of the commands up to the first that failed, and why.
func collectIDs(ctx context.Context, cmds []*redis.StringCmd, err error) ([]ID, error) {
	ids := make([]ID, 0, len(cmds))
	for _, cmd := range cmds {
		text, cmdErr := cmd.Result()
		if cmdErr == nil {
			var id ID
			if id, cmdErr = ParseID(text); cmdErr == nil {
				ids = append(ids, id)
				continue
			}
		}
		return ids, &AppendError{Appended: len(ids), IDs: ids, Err: classify(ctx, "append", errors.Join(cmdErr, notSame(err, cmdErr)))}
	}
	if err != nil {
		return ids, &AppendError{Appended: len(ids), IDs: ids, Err: classify(ctx, "append", err)}
	}
	return ids, nil
}

// notSame returns err unless it says what other says.
func notSame(err, other error) error {
	if err == nil || errors.Is(other, err) || err.Error() == other.Error() {
		return nil
	}
	return err
}

func xaddArgs(key string, rec Record) *redis.XAddArgs {
	values := []any{"event", rec.Event}
	if rec.Input != nil {
		values = append(values, "input", rec.Input)
	}
	return &redis.XAddArgs{Stream: key, Values: values}
}

// appender returns the client for appends to key: on a cluster that of the key's node, since the cluster
// client would repeat a command whose answer was lost.
func (l *Redis) appender(ctx context.Context, key string) (redis.Cmdable, error) {
	cluster, ok := l.appends.(*redis.ClusterClient)
	if !ok {
		return l.appends, nil
	}
	node, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, classify(ctx, "cluster node", err)
	}
	return node, nil
}

// appending appends, again where a server refused that since it isn't the one, and so nothing was appended.
func (l *Redis) appending(ctx context.Context, key string, do func(redis.Cmdable) error) error {
	for try := 1; ; try++ {
		client, err := l.appender(ctx, key)
		if err != nil {
			return err
		}
		err = do(client)
		if err == nil || try > staleConns || !isMoved(err) && !isNoMaster(err) {
			return err
		}
		if isNoMaster(err) { // the client doesn't close the connection where it was a transaction
			_ = l.appends.Expire(ctx, l.probeKey(), controlTTL).Err()
		}
	}
}

// isMoved reports whether a cluster's node said that the key is elsewhere.
func isMoved(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	return ok && strings.HasPrefix(reply.Error(), "MOVED ")
}

// Range returns entries of run behind after, in order; zero means from the first on. The read includes the
// entry after itself, and the page says whether it is still there ([Anchor]).
//
// A page has at most maxEntries entries (1 to 10,000) and ends before its payload passes maxBytes (0 means
// 1 MiB), but has at least one entry if there is any, however large. It may take several commands; should the
// stream be trimmed in between the page ends before the gap and the next one's anchor is missing.
// A run without a key gives an empty page.
func (l *Redis) Range(ctx context.Context, run RunID, after ID, maxEntries, maxBytes int) (Page, error) {
	key := l.keys.Run(run)
	page, err := readPage(after, maxEntries, maxBytes, func(from ID, count int) ([]Entry, error) {
		ms, err := readOne(ctx, l, func(pipe redis.Pipeliner) *redis.XMessageSliceCmd {
			return pipe.XRangeN(ctx, key, from.String(), "+", int64(count))
		}).Result()
		if err != nil {
			return nil, classify(ctx, "range", err)
		}
		messages, err := messagesOf(ms)
		return entriesOf(messages), err
	})
	if err != nil {
		return Page{}, err
	}
	err = settleAnchor(&page, after, func() (Trimmed, error) { return l.trimMark(ctx, run) })
	return page, err
}

// messagesOf converts the client's messages.
func messagesOf(ms []redis.XMessage) ([]message, error) {
	messages := make([]message, len(ms))
	for i, m := range ms {
		id, err := ParseID(m.ID)
		if err != nil {
			return nil, err
		}
		messages[i] = message{id: id, fields: m.Values}
	}
	return messages, nil
}

// Trim removes the entries below first and returns how many they were. It is exact and may be repeated.
func (l *Redis) Trim(ctx context.Context, run RunID, first ID) (int64, error) {
	n, err := l.commands.XTrimMinID(ctx, l.keys.Run(run), first.String()).Result()
	return n, classify(ctx, "trim", err)
}

// NewTail returns a tail of this log with connections of its own: one for up to
// [TailConfig.KeysPerConn] runs, or one for all that wait for wake-ups and one for these. They are closed when Run ends: a
// tail that isn't run opens none.
func (l *Redis) NewTail(cfg TailConfig) *Tail {
	client := l.dialer.client(useReaders)
	l.readers.Store(observe(client, true))
	process := randomHex()
	drivers := []*driver{
		{name: "keyspace", covers: true, waker: newKeyspaceWaker(client, l.keys, process, l.dialer.db)},
		{name: "publish", waker: &publishWaker{client: client, keys: l.keys}},
	}
	if single, ok := client.(connClient); ok && !cfg.Poll {
		return newTail(newBlockSource(single, l.keys, process, l.dialer.maxAge), l.keys, cfg, drivers...)
	}
	if cfg.By != TailXRead {
		cfg.By = TailWake // from the first run on: a sweep over all of them is dear
	}
	return newTail(newSweepSource(client), l.keys, cfg, drivers...) // on a cluster always
}

// WithoutWakeUps says in a word how a tail of this log learns of new entries where no wake-ups come: "xread", blocked reads, or
// "sweep", a look at all followed runs every 100 ms, on a cluster, where one read can't span slots.
func (l *Redis) WithoutWakeUps() string {
	if l.dialer.cluster {
		return "sweep"
	}
	return "xread"
}

// randomHex returns 64 random bits: a name that no other process has.
func randomHex() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, by its contract
	return hex.EncodeToString(b[:])
}

// NewRegistry returns the registry of this log. tail may be nil if Follow isn't needed.
func (l *Redis) NewRegistry(tail *Tail) *Registry {
	return &Registry{store: redisRegistry{l}, tail: tail, keys: l.keys, cfg: l.cfg}
}

// redisRegistry is the registry's store in Redis.
type redisRegistry struct{ log *Redis }

func (r redisRegistry) announce(ctx context.Context, fields []any, thread string, run RunID, score float64) error {
	pipe := r.log.commands.Pipeline() // no MULTI: the keys live in different slots
	pipe.XAdd(ctx, &redis.XAddArgs{Stream: r.log.keys.Runs(), MaxLen: r.log.cfg.RegistryMaxLen, Approx: true, Values: fields})
	if thread != "" {
		pipe.ZAddNX(ctx, thread, redis.Z{Score: score, Member: string(run)})
	}
	_, err := pipe.Exec(ctx)
	return classify(ctx, "announce", err)
}

func (r redisRegistry) correct(ctx context.Context, thread string, run RunID, score float64) error {
	err := r.log.commands.ZAddXX(ctx, thread, redis.Z{Score: score, Member: string(run)}).Err()
	return classify(ctx, "correct", err)
}

func (r redisRegistry) members(ctx context.Context, thread string, limit int, run RunID, score float64) ([]member, error) {
	zs, err := readOne(ctx, r.log, func(pipe redis.Pipeliner) *redis.ZSliceCmd {
		if run != "" { // where it fails, so does what follows
			pipe.ZAddXX(ctx, thread, redis.Z{Score: score, Member: string(run)})
		}
		return pipe.ZRevRangeWithScores(ctx, thread, 0, int64(limit)-1)
	}).Result()
	if err != nil {
		return nil, classify(ctx, "thread", err)
	}
	members := make([]member, len(zs))
	for i, z := range zs {
		name, _ := z.Member.(string)
		members[i] = member{name: name, score: z.Score}
	}
	return members, nil
}

func (r redisRegistry) newest(ctx context.Context, before ID, limit int) ([]message, error) {
	from := "+"
	if !before.IsZero() {
		from = "(" + before.String()
	}
	ms, err := readOne(ctx, r.log, func(pipe redis.Pipeliner) *redis.XMessageSliceCmd {
		return pipe.XRevRangeN(ctx, r.log.keys.Runs(), from, "-", int64(limit))
	}).Result()
	if err != nil {
		return nil, classify(ctx, "registry", err)
	}
	return messagesOf(ms)
}
