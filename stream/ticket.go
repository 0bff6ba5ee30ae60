package stream

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Ticket is where a ticket is kept until it is used.
func (k Keys) Ticket(id string) string { return k.prefix + ":ticket:" + id }

// PutTicket keeps data under an id for so long.
func (l *Redis) PutTicket(ctx context.Context, id string, data []byte, keep time.Duration) error {
	err := l.commands.Do(ctx, "SET", l.keys.Ticket(id), data, "PX", max(keep.Milliseconds(), 1)).Err()
	return classify(ctx, "put ticket", err)
}

// TakeTicket returns what is kept under an id and removes it, in one step: of two who ask one gets it. It is nil where
// there is nothing.
func (l *Redis) TakeTicket(ctx context.Context, id string) ([]byte, error) {
	data, err := l.commands.GetDel(ctx, l.keys.Ticket(id)).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return data, classify(ctx, "take ticket", err)
}
