package streamtest

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// StartCluster starts three masters that share the slots, and returns the URL for stream.Connect and a client.
func StartCluster(tb testing.TB) (url string, client *redis.ClusterClient) {
	tb.Helper()
	const nodes, slots = 3, 16384
	var all []*Server
	var addrs []string
	for n := range nodes {
		s := StartRedis(tb, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1")
		c := s.Client(tb)
		if err := c.ClusterAddSlotsRange(tb.Context(), n*slots/nodes, (n+1)*slots/nodes-1).Err(); err != nil {
			tb.Fatal(err)
		}
		if err := c.Do(tb.Context(), "CLUSTER", "SET-CONFIG-EPOCH", n+1).Err(); err != nil {
			tb.Fatal(err)
		}
		if n > 0 {
			if err := c.ClusterMeet(tb.Context(), "127.0.0.1", all[0].port).Err(); err != nil {
				tb.Fatal(err)
			}
		}
		all, addrs = append(all, s), append(addrs, s.Addr())
	}
	for _, s := range all {
		c := s.Client(tb)
		Eventually(tb, "a node of the cluster serves", func() bool {
			info, err := c.ClusterInfo(tb.Context()).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3")
		})
	}
	client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, DisableIdentity: true})
	tb.Cleanup(func() { _ = client.Close() })
	return "redis+cluster://" + addrs[0], client
}
