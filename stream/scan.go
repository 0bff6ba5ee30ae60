package stream

import (
	"context"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// scanCount is how many keys Redis looks at per SCAN: a page costs it well under a millisecond (Redis docs, SCAN).
const scanCount = 500

// Scan calls page with the runs whose stream exists, page by page, until it has seen them all or page returns an error.
// A run may be given twice; one that comes or goes meanwhile may be missed. Keys whose run id breaks the contract are left
// out. On a cluster every master is scanned. page is called by one goroutine at a time and may take its time.
func (l *Redis) Scan(ctx context.Context, page func([]RunID) error) error {
	return l.scanKeys(ctx, l.keys.Run(""), func(names []string) error {
		if runs := runsOf(names, ""); len(runs) > 0 {
			return page(runs)
		}
		return nil
	})
}

// scanKeys calls page with what follows prefix in the names of keys.
func (l *Redis) scanKeys(ctx context.Context, prefix string, page func([]string) error) error {
	cluster, ok := l.commands.(*redis.ClusterClient)
	if !ok {
		return scanNode(ctx, l.commands, prefix, page)
	}
	var one sync.Mutex
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		return scanNode(ctx, node, prefix, func(names []string) error {
			one.Lock()
			defer one.Unlock()
			return page(names)
		})
	})
}

func scanNode(ctx context.Context, node redis.Cmdable, prefix string, page func([]string) error) error {
	for cursor := uint64(0); ; {
		keys, next, err := node.Scan(ctx, cursor, prefix+"*", scanCount).Result()
		if err != nil {
			return classify(ctx, "scan", err)
		}
		for i := range keys {
			keys[i] = strings.TrimPrefix(keys[i], prefix)
		}
		if len(keys) > 0 {
			if err := page(keys); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// Scan calls page as [Redis.Scan] does.
func (m *Memory) Scan(_ context.Context, page func([]RunID) error) error {
	m.mu.Lock()
	err := m.fault
	keys := make([]string, 0, len(m.streams))
	for key := range m.streams {
		keys = append(keys, key)
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return page(runsOf(keys, m.keys.Run("")))
}

func runsOf(keys []string, prefix string) []RunID {
	var runs []RunID
	for _, key := range keys {
		id, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		if run, err := ParseRunID(id); err == nil {
			runs = append(runs, run)
		}
	}
	return runs
}
