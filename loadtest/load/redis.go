package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/loadtest/process"
)

// Redis is a redis-server of one workload's own, which keeps nothing on disk.
type Redis struct {
	process *process.Process
	addr    string
	client  *redis.Client
}

func startRedis(ctx context.Context, log io.Writer, extra ...string) (*Redis, error) {
	port, err := process.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	r := &Redis{addr: "127.0.0.1:" + port}
	r.process, err = process.Start(ctx, log, "redis-server", append([]string{
		"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction",
		"--loglevel", "warning", "--maxclients", "9000",
	}, extra...)...)
	if err != nil {
		return nil, err
	}
	r.client = redis.NewClient(&redis.Options{Addr: r.addr, MaxRetries: -1, DisableIdentity: true})
	err = r.process.Serving(ctx, func(ctx context.Context) error {
		return r.process.Answers(r.client.Info(ctx, "server", "persistence").Result())
	})
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *Redis) url() string { return "redis://" + r.addr }

func (r *Redis) close() {
	_ = r.client.Close()
	r.process.Kill()
}

var commandLine = regexp.MustCompile(`cmdstat_([^:]+):calls=(\d+),usec=(\d+)`)

// commands is how often each command was called so far, and how many microseconds Redis spent in it: time that passed,
// without its reading, parsing and writing.
func (r *Redis) commands(ctx context.Context) (calls, micros map[string]int, err error) {
	info, err := r.client.Info(ctx, "commandstats").Result()
	if err != nil {
		return nil, nil, fmt.Errorf("figures of Redis: %w", err)
	}
	calls, micros = map[string]int{}, map[string]int{}
	for _, m := range commandLine.FindAllStringSubmatch(info, -1) {
		var errs [2]error
		calls[m[1]], errs[0] = strconv.Atoi(m[2])
		micros[m[1]], errs[1] = strconv.Atoi(m[3])
		if err := errors.Join(errs[:]...); err != nil {
			return nil, nil, fmt.Errorf("figures of Redis: %s: %w", m[0], err)
		}
	}
	return calls, micros, nil
}

// since is what came to each command between two looks, without the looks themselves.
func since(before, after map[string]int) map[string]int {
	d := maps.Clone(after)
	for name := range d {
		if d[name] -= before[name]; d[name] == 0 || name == "info" {
			delete(d, name)
		}
	}
	return d
}

// written are the commands by which something is published, reading those that only read. All others keep what is read
// alive, or see to it that who reads is asked by a master.
var (
	written = map[string]bool{"xadd": true, "publish": true, "spublish": true}
	reading = map[string]bool{
		"xread": true, "xrange": true, "xrevrange": true, "xlen": true, "xinfo|stream": true, "get": true, "mget": true, "hget": true, "hmget": true, "hgetall": true,
		"zrange": true, "zrevrange": true, "zscore": true, "exists": true, "type": true, "ttl": true, "pttl": true, "scan": true,
	}
)

// asked is how many of the calls don't publish, and reads how many of those only read. Commands that scripts call are
// counted beside the script.
func asked(calls map[string]int) (all, reads int) {
	for name, c := range calls {
		if !written[name] {
			all += c
		}
		if reading[name] {
			reads += c
		}
	}
	return all, reads
}
