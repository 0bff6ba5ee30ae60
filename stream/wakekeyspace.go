package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// keyspaceWaker hears the server's own notice of each change to a key, where notify-keyspace-events has it: for every
// XADD of any agent. Each followed run is a channel of its own, so that a hub is told of its runs only, and needs no right
// to more. Such events are local to a node: on a cluster each master is listened to for all runs, so that a slot may move.
type keyspaceWaker struct {
	// static
	client  redis.UniversalClient
	keys    Keys
	process string
	channel string        // "__keyspace@<db>__:", what comes before the key
	kick    chan struct{} // holds one token while there is something in asked

	// guarded by mu
	mu    sync.Mutex
	asked map[string]bool // keys to be listened for, and no longer; nil while nobody listens
}

func newKeyspaceWaker(client redis.UniversalClient, keys Keys, process string, db int) *keyspaceWaker {
	return &keyspaceWaker{
		client: client, keys: keys, process: process, channel: fmt.Sprintf("__keyspace@%d__:", db), kick: make(chan struct{}, 1),
	}
}

// errNoKeyspaceEvents says that a server sends none for XADD.
var errNoKeyspaceEvents = errors.New("stream: the server sends no keyspace events for XADD")

// probe appends to a stream of its own on each server and waits for the event.
func (w *keyspaceWaker) probe(ctx context.Context) error {
	nodes, err := w.masters(ctx)
	if err != nil {
		return err
	}
	for addr, node := range nodes {
		key, err := w.probeKey(ctx, addr)
		if err != nil {
			return err
		}
		if err := w.probeNode(ctx, node, key); err != nil {
			return err
		}
	}
	return nil
}

func (w *keyspaceWaker) probeNode(ctx context.Context, node *redis.Client, key string) (err error) {
	sub, err := subscribe(ctx, node, w.channel+key)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sub.Close()) }()
	pipe := node.Pipeline()
	pipe.XAdd(ctx, &redis.XAddArgs{Stream: key, MaxLen: 1, Values: []any{"probe", "1"}})
	pipe.Expire(ctx, key, controlTTL)
	if _, err := pipe.Exec(ctx); err != nil {
		return classify(ctx, "probe", err)
	}
	for {
		message, err := sub.ReceiveTimeout(ctx, probeTime/4)
		if err != nil {
			return errors.Join(errNoKeyspaceEvents, classify(ctx, "probe", err))
		}
		if m, ok := message.(*redis.Message); ok && m.Payload == "xadd" {
			return nil
		}
	}
}

// masters are the servers by address; where there is no cluster it is one, without an address.
func (w *keyspaceWaker) masters(ctx context.Context) (map[string]*redis.Client, error) {
	cluster, ok := w.client.(*redis.ClusterClient)
	if !ok {
		single, ok := w.client.(*redis.Client)
		if !ok {
			return nil, errNoKeyspaceEvents
		}
		return map[string]*redis.Client{"": single}, nil
	}
	var mu sync.Mutex
	nodes := make(map[string]*redis.Client)
	err := cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes[node.Options().Addr] = node
		return nil
	})
	return nodes, classify(ctx, "masters", err)
}

// probeKey is a stream that lives on the server at addr.
func (w *keyspaceWaker) probeKey(ctx context.Context, addr string) (string, error) {
	const tries = 10_000 // many more than there are servers
	for n := range tries {
		key := w.keys.tailControl(fmt.Sprintf("%s-wake-%d", w.process, n), 0)
		cluster, ok := w.client.(*redis.ClusterClient)
		if !ok {
			return key, nil
		}
		node, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return "", classify(ctx, "probe", err)
		}
		if node.Options().Addr == addr {
			return key, nil
		}
	}
	return "", fmt.Errorf("%w: a server has no slots", errNoKeyspaceEvents)
}

func (w *keyspaceWaker) listen(ctx context.Context, to ears) error {
	nodes, err := w.masters(ctx)
	if err != nil {
		return err
	}
	var subs []*redis.PubSub
	for addr, node := range nodes {
		key, err := w.probeKey(ctx, addr)
		if err == nil {
			var sub *redis.PubSub
			if sub, err = subscribe(ctx, node, w.channel+key); err == nil {
				subs = append(subs, sub)
				continue
			}
		}
		for _, sub := range subs {
			_ = sub.Close() // only to be rid of it
		}
		return err
	}
	w.mu.Lock()
	w.asked = make(map[string]bool)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked = nil
	}()
	to.up()
	heard := func(message any) {
		switch m := message.(type) {
		case *redis.Message:
			to.woke(strings.TrimPrefix(m.Channel, w.channel))
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				to.heard(strings.TrimPrefix(m.Channel, w.channel))
			}
		}
	}
	return attend(ctx, subs, w.kick, heard, func(ctx context.Context) error {
		if err := w.changeChannels(ctx, subs); err != nil {
			return err
		}
		return w.sameMasters(ctx, nodes)
	})
}

// errMastersChanged ends a listening, which begins anew with those that there are.
var errMastersChanged = errors.New("stream: the cluster has other masters")

func (w *keyspaceWaker) sameMasters(ctx context.Context, nodes map[string]*redis.Client) error {
	if len(nodes) == 1 && nodes[""] != nil {
		return nil
	}
	now, err := w.masters(ctx)
	if err == nil && !maps.Equal(nodes, now) {
		err = errMastersChanged
	}
	return err
}

func (w *keyspaceWaker) hear(key string, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked == nil {
		return
	}
	w.asked[key] = on
	select {
	case w.kick <- struct{}{}:
	default: // a token is there already
	}
}

// channelsPerCommand bounds one SUBSCRIBE.
const channelsPerCommand = 500

// changeChannels subscribes to what was asked for.
func (w *keyspaceWaker) changeChannels(ctx context.Context, subs []*redis.PubSub) error {
	w.mu.Lock()
	asked := w.asked
	w.asked = make(map[string]bool)
	w.mu.Unlock()
	var on, off []string
	for key, wanted := range asked {
		if wanted {
			on = append(on, w.channel+key)
		} else {
			off = append(off, w.channel+key)
		}
	}
	for _, sub := range subs {
		for part := range slices.Chunk(on, channelsPerCommand) {
			if err := sub.Subscribe(ctx, part...); err != nil {
				return classify(ctx, "subscribe", err)
			}
		}
		for part := range slices.Chunk(off, channelsPerCommand) {
			if err := sub.Unsubscribe(ctx, part...); err != nil {
				return classify(ctx, "unsubscribe", err)
			}
		}
	}
	return nil
}
