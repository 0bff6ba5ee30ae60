package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/loadtest/process"
)

// backend is the Redis of a chaos run.
type backend interface {
	url() string
	client() redis.UniversalClient
	strike(ctx context.Context, fault Fault, down time.Duration, rng *rand.Rand) error
	close()
}

// pair is a master with a replica behind one address.
type pair struct {
	master, replica *server
	proxy           *proxy
}

func newPair(ctx context.Context, dir string) (backend, error) {
	p := &pair{}
	var err error
	if p.master, err = newServer(ctx, filepath.Join(dir, "redis-a")); err != nil {
		return nil, err
	}
	if p.replica, err = newServer(ctx, filepath.Join(dir, "redis-b")); err == nil {
		err = p.replica.replicate(ctx, p.master)
	}
	if err == nil {
		p.proxy, err = newProxy(ctx, p.master.addr())
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *pair) url() string { return "redis://" + p.proxy.addr() }

func (p *pair) client() redis.UniversalClient { return plainClient(p.proxy.addr()) }

func (p *pair) close() {
	for _, s := range []*server{p.master, p.replica} {
		if s != nil {
			s.kill()
			_ = s.client.Close()
		}
	}
	if p.proxy != nil {
		p.proxy.close()
	}
}

func (p *pair) strike(ctx context.Context, fault Fault, down time.Duration, _ *rand.Rand) error {
	switch fault {
	case CutRedis:
		p.proxy.lead(p.master.addr(), true)
		return nil
	case Restart, Wipe:
		return p.restart(ctx, fault == Wipe, down)
	case splitOff:
		return p.replica.client.ReplicaOf(ctx, "NO", "ONE").Err()
	case Failover:
		return p.failover(ctx)
	case Swap:
		return p.swap(ctx)
	default:
		return errors.New("not with a pair")
	}
}

func (p *pair) restart(ctx context.Context, wipe bool, down time.Duration) error {
	p.master.kill()
	if wipe {
		if err := p.master.wipe(); err != nil {
			return err
		}
	}
	process.Pause(ctx, down)
	if err := p.master.start(ctx); err != nil {
		return err
	}
	return p.replica.synced(ctx)
}

// failover kills the master; the replica, split off before, takes over, and the master comes back as its replica.
func (p *pair) failover(ctx context.Context) error {
	p.master.kill()
	p.proxy.lead(p.replica.addr(), true)
	if err := p.master.wipe(); err != nil {
		return err
	}
	p.master, p.replica = p.replica, p.master
	if err := p.replica.start(ctx); err != nil {
		return err
	}
	return p.replica.replicate(ctx, p.master)
}

// swap has master and replica change places. Connections to the old master stay open.
func (p *pair) swap(ctx context.Context) error {
	if err := p.master.client.Wait(ctx, 1, time.Second).Err(); err != nil {
		return err
	}
	if err := p.replica.client.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
		return err
	}
	p.proxy.lead(p.replica.addr(), false)
	p.master, p.replica = p.replica, p.master
	return p.replica.replicate(ctx, p.master)
}
