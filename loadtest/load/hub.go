package load

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/aguihub/aguihub/loadtest/process"
)

// Wire forms of the hub: docs/contract.md, section 3.
const (
	linesProtocol = "ag-ui.hub.v1.json"
	bareProtocol  = "ag-ui.v1.json"
)

// HubOptions is how a hub runs in a comparison.
type HubOptions struct {
	Name    string   // of the party
	Program string   // path of aguihub
	Bare    bool     // the subprotocol that carries bare events; else that of lines
	Quiet   bool     // publishers don't say on agui:wake that they wrote
	Redis   []string // more for redis-server's command line
	Flags   []string // more for the hub's
}

// KeyspaceEvents has redis-server tell of each XADD: for HubOptions.Redis.
var KeyspaceEvents = []string{"--notify-keyspace-events", "Kt"}

// Hub is the party that this project makes.
func Hub(o HubOptions) Party {
	return Party{Name: o.Name, Redis: o.Redis, Start: func(ctx context.Context, s Setting) (System, error) {
		h := &hubs{appender: appender{client: s.Redis.client, wake: !o.Quiet}, bare: o.Bare}
		for range s.Hubs {
			if err := h.start(ctx, o, s); err != nil {
				h.Close()
				return nil, err
			}
		}
		return h, nil
	}}
}

// hubs are processes of aguihub on one Redis.
type hubs struct {
	appender
	bare     bool
	programs []*process.Process
	base     []string // http://host:port
	pprof    string
}

var banner = regexp.MustCompile(`attach +ws(s?://[^/]+)/`)

func (h *hubs) start(ctx context.Context, o HubOptions, s Setting) error {
	debug, err := process.FreePort(ctx)
	if err != nil {
		return err
	}
	p, err := process.Start(ctx, s.Log, o.Program, append([]string{
		"--listen=127.0.0.1:0", "--metrics-listen=off", "--debug-listen=127.0.0.1:" + debug, "--redis=" + s.Redis.url(), "--log-level=warn",
	}, o.Flags...)...)
	if err != nil {
		return err
	}
	h.programs = append(h.programs, p)
	if h.pprof == "" {
		h.pprof = "http://127.0.0.1:" + debug + "/debug/pprof/"
	}
	var base string
	err = p.Serving(ctx, func(ctx context.Context) error {
		m := banner.FindStringSubmatch(p.Output())
		if m == nil {
			return errors.New("it hasn't said where it listens")
		}
		base = "http" + m[1]
		_, err := fetch(ctx, base+"/v1/runs?limit=1") // 503 until it has its Redis
		return err
	})
	h.base = append(h.base, base)
	return err
}

// Programs implements System.
func (h *hubs) Programs() []*process.Process { return h.programs }

func (h *hubs) debug() string   { return h.pprof }
func (h *hubs) bases() []string { return slices.Clone(h.base) }

// Attach implements System.
func (h *hubs) Attach(ctx context.Context, run, i int) (Stream, error) {
	protocol := linesProtocol
	if h.bare {
		protocol = bareProtocol
	}
	url := "ws" + h.base[i%len(h.base)][len("http"):] + "/v1/runs/" + runName(run) + "/ws"
	s, err := dialSocket(ctx, url, protocol)
	if err != nil {
		return nil, err
	}
	mark := `"control":"live"`
	if h.bare {
		mark = "TEXT_MESSAGE_START" // it opens the message that the snapshot holds
	}
	if _, err := s.find(mark); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// Close implements System.
func (h *hubs) Close() {
	for _, p := range h.programs {
		p.Kill()
	}
}

// appender publishes as an agent does that has a Redis client and nothing else.
type appender struct {
	client *redis.Client
	wake   bool // say on agui:wake that there is something
}

// Publish implements System. The commands are one pipeline.
func (a *appender) Publish(ctx context.Context, events []Event) ([]string, error) {
	pipe := a.client.Pipeline()
	adds := make([]*redis.StringCmd, len(events))
	for i, e := range events {
		run := runName(e.Run)
		adds[i] = pipe.XAdd(ctx, &redis.XAddArgs{Stream: "agui:run:" + run, Values: []any{"event", e.Data}})
		last := !slices.ContainsFunc(events[i+1:], func(later Event) bool { return later.Run == e.Run })
		if a.wake && last {
			pipe.Publish(ctx, "agui:wake", run)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	ids := make([]string, len(adds))
	for i, c := range adds {
		ids[i] = c.Val()
	}
	return ids, nil
}
