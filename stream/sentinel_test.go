package stream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/loadtest/process"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
)

// startSentinel starts a sentinel that watches a master, which has its replica already, and ends it with the test. It has much
// patience: a master that is only slow isn't replaced.
func startSentinel(t *testing.T, master *streamtest.Server) (addr string, sentinel *redis.SentinelClient) {
	t.Helper()
	port, err := process.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	addr = net.JoinHostPort("127.0.0.1", port)
	_, watched, _ := net.SplitHostPort(master.Addr())
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\nsentinel monitor m 127.0.0.1 %s 1\n"+
		"sentinel down-after-milliseconds m 60000\nsentinel failover-timeout m 30000\n", port, watched)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "redis-server", file, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	sentinel = redis.NewSentinelClient(&redis.Options{Addr: addr, DisableIdentity: true})
	t.Cleanup(func() { _ = sentinel.Close() })
	streamtest.Eventually(t, "the sentinel knows of the replica", func() bool {
		replicas, err := sentinel.Replicas(t.Context(), "m").Result()
		return err == nil && len(replicas) == 1 && replicas[0]["master-link-status"] == "ok"
	})
	return addr, sentinel
}

// replicate makes b a replica of a and waits until it has what that has.
func replicate(t *testing.T, a, b *streamtest.Server) {
	t.Helper()
	_, port, _ := net.SplitHostPort(a.Addr())
	if err := b.Client(t).ReplicaOf(t.Context(), "127.0.0.1", port).Err(); err != nil {
		t.Fatal(err)
	}
	client := a.Client(t)
	streamtest.Eventually(t, "the replica follows", func() bool { return client.Wait(t.Context(), 1, 0).Val() == 1 })
}

func signal(t *testing.T, s *streamtest.Server, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(s.Pid(), sig); err != nil {
		t.Fatal(err)
	}
}

// TestFailoversBySentinel: one that is asked for loses nothing and costs nothing; one after the master's death goes on
// with what had reached the replica, and what hadn't is told.
func TestFailoversBySentinel(t *testing.T) {
	t.Parallel()
	a, b := streamtest.StartRedis(t, "--repl-diskless-sync-delay", "0"), streamtest.StartRedis(t, "--repl-diskless-sync-delay", "0")
	replicate(t, a, b)
	addr, sentinel := startSentinel(t, a)
	url := "redis+sentinel://" + addr + "?master_name=m"
	log := connect(t, url)
	put := func(event string) {
		t.Helper()
		streamtest.Eventually(t, "an append", func() bool {
			_, err := log.Append(t.Context(), "r", stream.Record{Event: []byte(event)})
			return err == nil
		})
	}
	put("1")
	c := followsBy(t, stream.TailAuto, url, "r", 1)
	// A sentinel doesn't wait for what is on its way to the replica.
	next := b.Client(t)
	streamtest.Eventually(t, "it has reached the replica", func() bool { return next.XLen(t.Context(), "agui:run:r").Val() == 1 })
	if err := sentinel.Failover(t.Context(), "m").Err(); err != nil {
		t.Fatal(err)
	}
	leads := func(s *streamtest.Server) func() bool {
		return func() bool {
			at, err := sentinel.GetMasterAddrByName(t.Context(), "m").Result()
			return err == nil && net.JoinHostPort(at[0], at[1]) == s.Addr()
		}
	}
	streamtest.Eventually(t, "the replica leads", leads(b))
	old := a.Client(t)
	streamtest.Eventually(t, "the old master follows", func() bool {
		info, err := old.InfoMap(t.Context(), "replication").Result()
		return err == nil && info["Replication"]["role"] == "slave" && info["Replication"]["master_link_status"] == "up"
	})
	put("2")
	c.Wait(t, 2)
	streamtest.Eventually(t, "it has reached the replica", func() bool { return old.XLen(t.Context(), "agui:run:r").Val() == 2 })
	if errs := c.Errs(); len(errs) > 0 {
		t.Fatal(errs)
	}

	// What comes now doesn't reach the replica: it is halted, and the link to it is cut.
	signal(t, a, syscall.SIGSTOP)
	if err := b.Client(t).ClientKillByFilter(t.Context(), "TYPE", "replica").Err(); err != nil {
		t.Fatal(err)
	}
	put("lost")
	c.Wait(t, 3)
	for option, ms := range map[string]string{"down-after-milliseconds": "1000", "failover-timeout": "2000"} {
		if err := sentinel.Set(t.Context(), "m", option, ms).Err(); err != nil {
			t.Fatal(err)
		}
	}
	b.Kill()
	signal(t, a, syscall.SIGCONT)
	streamtest.Eventually(t, "the other one leads", leads(a))
	if err := c.WaitErr(t, 1)[0]; !errors.Is(err, stream.ErrLost) || len(c.Entries()) != 3 {
		t.Errorf("%d entries, %v", len(c.Entries()), err)
	}
	put("3")
	page, err := log.Range(t.Context(), "r", stream.ID{}, 10, 0)
	if err != nil || len(page.Entries) != 3 || string(page.Entries[2].Event) != "3" {
		t.Errorf("%+v, %v", page.Entries, err)
	}
}
