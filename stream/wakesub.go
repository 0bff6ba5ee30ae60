package stream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A subscription is asked for a sign of life this often, and is taken for lost when there is none for so long: a
// connection may be gone without a word.
const (
	subscriptionPing    = 3 * time.Second
	subscriptionSilence = 10 * time.Second
)

// subscribe opens a subscription and waits until the server has confirmed it. Close it when done.
func subscribe(ctx context.Context, client redis.UniversalClient, channel string) (*redis.PubSub, error) {
	sub := client.Subscribe(ctx, channel)
	if _, err := sub.ReceiveTimeout(ctx, probeTime); err != nil {
		_ = sub.Close()
		return nil, classify(ctx, "subscribe", err)
	}
	return sub, nil
}

// attend hands over what comes until ctx ends or one of the subscriptions is lost, and closes them. meanwhile is called
// every three seconds and whenever kick has a token; its error ends it too.
func attend(ctx context.Context, subs []*redis.PubSub, kick <-chan struct{}, heard func(any), meanwhile func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var receivers sync.WaitGroup
	for _, sub := range subs {
		receivers.Go(func() {
			for ctx.Err() == nil {
				message, err := sub.ReceiveTimeout(ctx, subscriptionSilence)
				if err != nil {
					cancel(classify(ctx, "wake-ups", err))
					return
				}
				heard(message)
			}
		})
	}
	ticker := time.NewTicker(subscriptionPing)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-kick:
		case <-ticker.C:
			for _, sub := range subs {
				if err := sub.Ping(ctx); err != nil {
					cancel(classify(ctx, "wake-ups", err))
				}
			}
		}
		if err := meanwhile(ctx); err != nil {
			cancel(err)
		}
	}
	var errs []error
	for _, sub := range subs { // a blocked receive doesn't see the context
		errs = append(errs, sub.Close())
	}
	receivers.Wait()
	return errors.Join(context.Cause(ctx), errors.Join(errs...))
}
