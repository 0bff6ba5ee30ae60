package stream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// controlTTL is how long a shard's control stream outlives its last interrupt. It may well expire while the
// shard is read: the next interrupt creates it anew.
const controlTTL = time.Minute

// blockSource reads with XREAD BLOCK, one connection a shard. Each shard has a private stream, read along with
// its runs, and an entry there interrupts the read: the only way that needs no rights beyond those on
// streams and works with any server.
//
// What a shard reads and what it is verified by come over one connection, so from one server: a client's pool may hold
// connections to two of them while a failover is under way, and what the one has says nothing of the other's.
type blockSource struct {
	// static
	client  connClient
	keys    Keys
	process string
	maxAge  time.Duration // of a connection; 0 is any

	// guarded by mu
	mu      sync.Mutex
	control map[uint64]ID        // newest control entry seen, by shard
	conns   map[uint64]shardConn // by shard, until an error or the age
}

// shardConn is a connection and since when it is in use.
type shardConn struct {
	*redis.Conn
	since time.Time
}

// connClient is a client that gives connections away.
type connClient interface {
	redis.UniversalClient
	Conn() *redis.Conn
}

// pipeliner is a client or one of its connections.
type pipeliner interface{ Pipeline() redis.Pipeliner }

func newBlockSource(client connClient, keys Keys, process string, maxAge time.Duration) *blockSource {
	return &blockSource{
		client: client, keys: keys, process: process, maxAge: maxAge, control: make(map[uint64]ID), conns: make(map[uint64]shardConn),
	}
}

// conn is the shard's connection. One that has come of age is given back first, and the pool makes a new one.
func (s *blockSource) conn(shard uint64) *redis.Conn {
	s.mu.Lock()
	c := s.conns[shard]
	s.mu.Unlock()
	if c.Conn != nil && s.maxAge > 0 && time.Since(c.since) > s.maxAge {
		s.drop(shard)
		c.Conn = nil
	}
	if c.Conn == nil {
		c = shardConn{Conn: s.client.Conn(), since: time.Now()}
		s.mu.Lock()
		s.conns[shard] = c
		s.mu.Unlock()
	}
	return c.Conn
}

// drop gives the shard's connection back.
func (s *blockSource) drop(shard uint64) {
	s.mu.Lock()
	c := s.conns[shard]
	delete(s.conns, shard)
	s.mu.Unlock()
	if c.Conn != nil {
		_ = c.Close() // it fails where the client was closed before it
	}
}

func (s *blockSource) read(ctx context.Context, shard uint64, keys []position, count int, block time.Duration) ([]reply, error) {
	replies, err := s.readOver(ctx, s.conn(shard), shard, keys, count, block)
	if err != nil {
		s.drop(shard)
	}
	return replies, err
}

func (s *blockSource) readOver(
	ctx context.Context, conn *redis.Conn, shard uint64, keys []position, count int, block time.Duration,
) ([]reply, error) {
	// Fresh keys are read singly first: an XREAD fails as a whole when one of its keys is of another type,
	// and miniredis then even says nothing.
	replies, err := readSingly(ctx, conn, keys, count, func(k position) bool { return k.fresh })
	if err != nil || len(replies) > 0 {
		return replies, err
	}
	replies, err = s.readBlocked(ctx, conn, shard, keys, count, block)
	if err == nil || !concernsKey(err) {
		return replies, err
	}
	replies, probeErr := readSingly(ctx, conn, keys, count, func(position) bool { return true })
	if probeErr != nil || len(replies) > 0 {
		return replies, probeErr
	}
	return nil, err
}

// concernsKey reports whether a read's error may be due to a single key.
func concernsKey(err error) bool {
	return errors.Is(err, ErrWrongType) || errors.Is(err, ErrDenied)
}

// readSingly reads keys one by one in a pipeline, so that each has an error of its own.
func readSingly(
	ctx context.Context, client pipeliner, keys []position, count int, pick func(position) bool,
) ([]reply, error) {
	pipe := client.Pipeline()
	cmds := make([]*redis.XMessageSliceCmd, len(keys))
	for i, k := range keys {
		if pick(k) {
			cmds[i] = pipe.XRangeN(ctx, k.key, k.after.Next().String(), "+", int64(count))
		}
	}
	if pipe.Len() == 0 {
		return nil, nil
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	var replies []reply
	for i, cmd := range cmds {
		if cmd == nil {
			continue
		}
		err := classify(ctx, "read", cmd.Err())
		if err != nil && !concernsKey(err) {
			return nil, err
		}
		messages, parseErr := messagesOf(cmd.Val())
		if parseErr != nil {
			return nil, parseErr
		}
		if err != nil || len(messages) > 0 {
			replies = append(replies, reply{key: i, messages: messages, err: err})
		}
	}
	return replies, nil
}

// readBlocked reads all keys and the control stream, waiting for up to block.
func (s *blockSource) readBlocked(
	ctx context.Context, conn *redis.Conn, shard uint64, keys []position, count int, block time.Duration,
) ([]reply, error) {
	control := s.keys.tailControl(s.process, shard)
	n := len(keys) + 1
	streams := make([]string, 2*n)
	for i, k := range keys {
		streams[i], streams[n+i] = k.key, k.after.String()
	}
	streams[n-1], streams[2*n-1] = control, s.controlSeen(shard).String()
	found, err := conn.XRead(ctx, &redis.XReadArgs{Streams: streams, Count: int64(count), Block: block}).Result()
	if err != nil {
		return nil, classify(ctx, "tail", err)
	}
	replies := make([]reply, 0, len(found))
	i := 0
	for _, stream := range found { // in the order that was asked for
		messages, err := messagesOf(stream.Messages)
		if err != nil {
			return nil, err
		}
		if stream.Stream == control {
			s.sawControl(shard, messages)
			continue
		}
		for i < len(keys) && keys[i].key != stream.Stream {
			i++
		}
		if i == len(keys) {
			return nil, errors.New("stream: tail: a stream that wasn't asked for")
		}
		replies = append(replies, reply{key: i, messages: messages})
	}
	return replies, nil
}

// anchors writes first, though nothing: a server that became a replica while the connection stayed open refuses it,
// and the client then closes the connection.
func (s *blockSource) anchors(ctx context.Context, shard uint64, at []position) ([]anchor, error) {
	pipe := s.conn(shard).Pipeline()
	probe := pipe.Expire(ctx, s.keys.tailControl(s.process, shard), controlTTL)
	out, err := readAnchors(ctx, pipe, at)
	if err == nil {
		err = trimAnchors(ctx, s.client.Pipeline(), at, out)
	}
	if refused := classify(ctx, "verify", probe.Err()); errors.Is(refused, ErrUnavailable) {
		err = refused
	}
	if err != nil {
		s.drop(shard)
		return nil, err
	}
	return out, nil
}

// behind is one XREAD, which answers with those only that have something, and one EXISTS, which tells whether one of those
// that had something is gone: then all are named. It writes first, as anchors does.
func (s *blockSource) behind(ctx context.Context, shard uint64, keys []position) ([]int, error) {
	streams := make([]string, 2*len(keys))
	begun := make([]string, 0, len(keys))
	for i, k := range keys {
		streams[i], streams[len(keys)+i] = k.key, k.after.String()
		if !k.after.IsZero() {
			begun = append(begun, k.key)
		}
	}
	pipe := s.conn(shard).Pipeline()
	probe := pipe.Expire(ctx, s.keys.tailControl(s.process, shard), controlTTL)
	look := pipe.XRead(ctx, &redis.XReadArgs{Streams: streams, Count: 1, Block: -1})
	var there *redis.IntCmd
	if len(begun) > 0 {
		there = pipe.Exists(ctx, begun...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	err := classify(ctx, "look", look.Err())
	if refused := classify(ctx, "look", probe.Err()); errors.Is(refused, ErrUnavailable) {
		err = refused
	}
	gone := there != nil && there.Err() == nil && there.Val() < int64(len(begun))
	found := look.Val()
	var which []int
	for i, k := range keys { // in the order that was asked for
		switch {
		case concernsKey(err), gone: // one of them, which reading them singly shows
			which = append(which, i)
		case len(found) > 0 && found[0].Stream == k.key:
			which, found = append(which, i), found[1:]
		}
	}
	if err != nil && !concernsKey(err) {
		s.drop(shard)
		return nil, err
	}
	return which, nil
}

// readAnchored writes first, as anchors does.
func (s *blockSource) readAnchored(ctx context.Context, shard uint64, keys []position, count int) ([]reply, []anchor, error) {
	pipe := s.conn(shard).Pipeline()
	probe := pipe.Expire(ctx, s.keys.tailControl(s.process, shard), controlTTL)
	replies, out, err := readAnchored(ctx, pipe, s.client, keys, count)
	if refused := classify(ctx, "wake-up", probe.Err()); errors.Is(refused, ErrUnavailable) {
		err = refused
	}
	if err != nil {
		s.drop(shard)
		return nil, nil, err
	}
	return replies, out, nil
}

// readAnchored reads what there is from positions on, and looks once more at those where nothing stands.
func readAnchored(
	ctx context.Context, pipe redis.Pipeliner, client pipeliner, keys []position, count int,
) ([]reply, []anchor, error) {
	cmds := make([]*redis.XMessageSliceCmd, len(keys))
	for i, k := range keys {
		from, n := k.after, count+1
		if from.IsZero() {
			from, n = from.Next(), count
		}
		cmds[i] = pipe.XRangeN(ctx, k.key, from.String(), "+", int64(n))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	out := make([]anchor, len(keys))
	var replies []reply
	for i, cmd := range cmds {
		err := classify(ctx, "read", cmd.Err())
		if err != nil && !concernsKey(err) {
			return nil, nil, err
		}
		messages, parseErr := messagesOf(cmd.Val())
		if parseErr != nil {
			return nil, nil, parseErr
		}
		switch {
		case err != nil, keys[i].after.IsZero():
			out[i].unread = true
		case len(messages) > 0 && messages[0].id == keys[i].after:
			out[i], messages = anchorOf(messages), messages[1:]
		}
		if err != nil || len(messages) > 0 {
			replies = append(replies, reply{key: i, messages: messages, err: err})
		}
	}
	return replies, out, trimAnchors(ctx, client.Pipeline(), keys, out)
}

// readAnchors reads what stands at positions.
func readAnchors(ctx context.Context, pipe redis.Pipeliner, at []position) ([]anchor, error) {
	cmds := make([]*redis.XMessageSliceCmd, len(at))
	for i, k := range at {
		id := k.after.String()
		cmds[i] = pipe.XRange(ctx, k.key, id, id)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	out := make([]anchor, len(at))
	for i, cmd := range cmds {
		switch err := classify(ctx, "verify", cmd.Err()); {
		case concernsKey(err):
			out[i].unread = true // the next read says why
			continue
		case err != nil:
			return nil, err
		}
		messages, err := messagesOf(cmd.Val())
		if err != nil {
			return nil, err
		}
		out[i] = anchorOf(messages)
	}
	return out, nil
}

func (s *blockSource) controlSeen(shard uint64) ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.control[shard]
}

func (s *blockSource) sawControl(shard uint64, ms []message) {
	if len(ms) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.control[shard] = ms[len(ms)-1].id
}

func (s *blockSource) interrupt(ctx context.Context, shards []uint64) error {
	pipe := s.client.Pipeline()
	for _, shard := range shards {
		key := s.keys.tailControl(s.process, shard)
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: key, MaxLen: 1, Values: []any{"wake", "1"}})
		pipe.Expire(ctx, key, controlTTL)
	}
	_, err := pipe.Exec(ctx)
	return classify(ctx, "interrupt", err)
}

func (s *blockSource) forget(shard uint64) {
	s.drop(shard)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.control, shard)
}

func (s *blockSource) close() error { return s.client.Close() }
