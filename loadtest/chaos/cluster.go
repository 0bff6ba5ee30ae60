package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/loadtest/process"
)

// slots is how many a cluster has.
const slots = 16384

// cluster is three masters that share the slots, each with a replica.
type cluster struct {
	nodes    []*server
	replicas []*server // of the node of the same place
	ids      []string
	owner    [slots]int
}

// nodeTimeout has a node that was killed be found out soon, in milliseconds.
const nodeTimeout = "2000"

func newCluster(ctx context.Context, dir string) (backend, error) {
	c := &cluster{}
	for n := range 6 {
		s, err := newServer(ctx, filepath.Join(dir, fmt.Sprintf("node-%d", n)),
			"--cluster-enabled", "yes", "--cluster-node-timeout", nodeTimeout, "--cluster-replica-no-failover", "yes")
		if err != nil {
			c.close()
			return nil, err
		}
		if n < 3 {
			c.nodes = append(c.nodes, s)
		} else {
			c.replicas = append(c.replicas, s)
		}
	}
	err := c.form(ctx)
	for n := 0; n < len(c.replicas) && err == nil; n++ {
		err = c.attach(ctx, n)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// form has the nodes meet and share the slots, and waits until all know.
func (c *cluster) form(ctx context.Context) error {
	for n, s := range c.nodes {
		first, last := slots/3*n, slots/3*(n+1)-1
		if n == len(c.nodes)-1 {
			last = slots - 1
		}
		for i := first; i <= last; i++ {
			c.owner[i] = n
		}
		if err := s.client.ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
			return err
		}
		if err := s.client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", n+1).Err(); err != nil {
			return err
		}
		if n > 0 {
			if err := s.client.ClusterMeet(ctx, "127.0.0.1", c.nodes[0].port).Err(); err != nil {
				return err
			}
		}
		id, err := s.client.Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return err
		}
		c.ids = append(c.ids, id)
	}
	for _, s := range c.nodes {
		err := process.WaitFor(ctx, "cluster", func(ctx context.Context) error {
			info, err := s.client.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:3") {
				return errors.New("it isn't whole yet")
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// attach makes the replica of node n one.
func (c *cluster) attach(ctx context.Context, n int) error {
	s := c.replicas[n]
	if err := s.client.ClusterMeet(ctx, "127.0.0.1", c.nodes[0].port).Err(); err != nil {
		return err
	}
	err := process.WaitFor(ctx, "cluster", func(ctx context.Context) error { // until it knows the node
		return s.client.ClusterReplicate(ctx, c.ids[n]).Err()
	})
	if err != nil {
		return err
	}
	return s.synced(ctx)
}

// promote kills a node and has its replica take over, with what had reached it. The node comes back as its replica.
func (c *cluster) promote(ctx context.Context, n int) error {
	dead, next := c.nodes[n], c.replicas[n]
	dead.kill()
	if err := next.client.Do(ctx, "CLUSTER", "FAILOVER", "TAKEOVER").Err(); err != nil {
		return err
	}
	id, err := next.client.Do(ctx, "CLUSTER", "MYID").Text()
	if err != nil {
		return err
	}
	c.nodes[n], c.replicas[n], c.ids[n] = next, dead, id
	for _, s := range c.nodes {
		err := process.WaitFor(ctx, "takeover", func(ctx context.Context) error {
			nodes, err := s.client.ClusterNodes(ctx).Result()
			if err != nil {
				return err
			}
			for line := range strings.SplitSeq(nodes, "\n") {
				if strings.HasPrefix(line, id) && strings.Contains(line, "master") && strings.Contains(line, "connected ") {
					return nil
				}
			}
			return errors.New("a node doesn't know of it yet")
		})
		if err != nil {
			return err
		}
	}
	if err := dead.start(ctx); err != nil {
		return err
	}
	return dead.synced(ctx)
}

func (c *cluster) url() string {
	return "redis+cluster://" + c.nodes[0].addr() + "?addr=" + c.nodes[1].addr() + "&addr=" + c.nodes[2].addr()
}

func (c *cluster) client() redis.UniversalClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{c.nodes[0].addr(), c.nodes[1].addr(), c.nodes[2].addr()}, DisableIdentity: true,
	})
}

func (c *cluster) close() {
	for _, s := range slices.Concat(c.nodes, c.replicas) {
		s.kill()
		_ = s.client.Close()
	}
}

func (c *cluster) strike(ctx context.Context, fault Fault, _ time.Duration, rng *rand.Rand) error {
	switch fault {
	case MoveSlots:
	case Promote:
		return c.promote(ctx, rng.IntN(len(c.nodes)))
	default:
		return errors.New("not with a cluster")
	}
	// A slot with a run in it, so that somebody notices.
	for _, n := range rng.Perm(len(c.nodes)) {
		keys, _, err := c.nodes[n].client.Scan(ctx, 0, "agui:run:*", 1000).Result()
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			slot, err := c.nodes[n].client.ClusterKeySlot(ctx, keys[rng.IntN(len(keys))]).Result()
			if err != nil {
				return err
			}
			return c.move(ctx, int(slot), n, (n+1)%len(c.nodes))
		}
	}
	return nil
}

// move moves a slot with its keys, as redis-cli --cluster reshard does.
func (c *cluster) move(ctx context.Context, slot, from, to int) error {
	src, dst := c.nodes[from], c.nodes[to]
	if err := dst.client.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.ids[from]).Err(); err != nil {
		return err
	}
	if err := src.client.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", c.ids[to]).Err(); err != nil {
		return err
	}
	for {
		keys, err := src.client.ClusterGetKeysInSlot(ctx, slot, 100).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		args := []any{"MIGRATE", "127.0.0.1", dst.port, "", 0, 5000, "KEYS"}
		for _, k := range keys {
			args = append(args, k)
		}
		if err := src.client.Do(ctx, args...).Err(); err != nil {
			return err
		}
	}
	for _, s := range []*server{dst, src, c.nodes[3-from-to]} {
		if err := s.client.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", c.ids[to]).Err(); err != nil {
			return err
		}
	}
	c.owner[slot] = to
	return nil
}
