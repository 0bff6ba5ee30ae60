package stream

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// publishWaker hears the channel on which publishers announce that they appended (contract, "agui:wake"). Whoever appends
// without is not heard of. On a cluster a message on it reaches all nodes.
type publishWaker struct {
	client redis.UniversalClient
	keys   Keys
}

func (w *publishWaker) probe(ctx context.Context) error {
	sub, err := subscribe(ctx, w.client, w.keys.Wake())
	if err != nil {
		return err
	}
	return sub.Close()
}

func (w *publishWaker) listen(ctx context.Context, to ears) error {
	sub, err := subscribe(ctx, w.client, w.keys.Wake())
	if err != nil {
		return err
	}
	to.up()
	heard := func(m any) {
		if m, ok := m.(*redis.Message); ok {
			to.woke(w.keys.Run(RunID(m.Payload))) // of a run that nobody follows, or no run at all: nothing happens
		}
	}
	return attend(ctx, []*redis.PubSub{sub}, nil, heard, func(context.Context) error { return nil })
}

func (*publishWaker) hear(string, bool) {}
