package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
)

const (
	defaultEmbedded = "127.0.0.1:0"
	defaultMetrics  = "127.0.0.1:9464"
	off             = "off"
)

// serveCommand is the flags of the hub. Sizes and times that an operator need not decide are no flags.
type serveCommand struct {
	Listen string `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address of the hub: attaches, ingest, look-ups and the page. Other than loopback needs --auth-config, --auth-issuer or --insecure-no-auth (${default})."`

	TLSCert string `placeholder:"FILE" help:"Certificate (PEM, with its chain) of the hub, which then speaks TLS 1.2 and newer only; read again when it changes (plain HTTP)."`
	TLSKey  string `placeholder:"FILE" help:"Key (PEM) of that certificate."`

	Redis                string `placeholder:"URL" help:"Redis ≥ 7.0 or Valkey: a redis://, rediss://, redis+sentinel:// or redis+cluster:// URL. Without it the hub brings an embedded one, which forgets everything when it stops."`
	RedisCA              string `placeholder:"FILE" help:"Certificates (PEM) that Redis' own must descend from, instead of the system's; for rediss URLs."`
	RedisCert            string `placeholder:"FILE" help:"Certificate (PEM) that the hub shows to Redis; read at each handshake."`
	RedisKey             string `placeholder:"FILE" help:"Key (PEM) of that certificate."`
	RedisCredentialsFile string `placeholder:"FILE" help:"File with Redis' password, or with user and password on two lines, in place of the URL's. It is read for each connection, and connections are made anew every five minutes."`
	RedisConfigure       bool   `help:"Let the hub set Redis' maxmemory-policy to noeviction at its start. Without it the hub never changes Redis' configuration."`
	Tail                 string `enum:"auto,xread,wake" default:"auto" help:"How the hub learns of new entries: xread by blocked reads (on a cluster by sweeps), wake by keyspace events or by what publishers announce on PREFIX:wake, where there is either, auto the first for up to 100 runs and the second beyond that, on a cluster at once (${default})."`
	KeyPrefix            string `default:"agui" placeholder:"PREFIX" help:"First part of every Redis key, [a-z0-9-]{1,64} (${default})."`
	EmbeddedRedisListen  string `default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"Loopback address of the embedded Redis; port 0 takes a free one, which is printed (${default})."`

	Demo    *bool `negatable:"" help:"Run the demo agent, which publishes a run after another (on with the embedded Redis, else off)."`
	Console *bool `negatable:"" help:"Serve the page at / (on with the embedded Redis, else off)."`

	MetricsListen string `default:"127.0.0.1:9464" placeholder:"HOST:PORT" help:"Address of /metrics, /livez and /readyz; off for none (${default})."`
	DebugListen   string `placeholder:"HOST:PORT" help:"Loopback address of pprof (off)."`

	AttachWait      time.Duration `default:"30s" placeholder:"DURATION" help:"How long an attach waits for a run that nobody has published yet (${default})."`
	WriteTimeout    time.Duration `default:"10s" placeholder:"DURATION" help:"A subscriber whose connection takes no byte for so long is closed (${default})."`
	QueueBytes      size          `default:"1MiB" placeholder:"SIZE" help:"How far a subscriber may lag, in bytes of events (${default})."`
	Deflate         string        `default:"on" enum:"on,off" help:"Send what is over 8 KiB of preambles and catch-ups deflated to clients of a WebSocket that offer permessage-deflate: on or off (${default})."`
	MaxEvent        size          `default:"8MiB" placeholder:"SIZE" help:"Largest event (${default})."`
	MaxConversation size          `default:"32MiB" placeholder:"SIZE" help:"Largest conversation with its state that an attach restates (${default})."`
	Memory          size          `default:"1GiB" placeholder:"SIZE" help:"Bound on what the hub keeps of runs in memory: folds, newest entries, earlier conversations (${default})."`

	Retention       time.Duration `default:"24h" placeholder:"DURATION" help:"How long a run is kept after its end; 0 means 60s, so that those attached can read the end (${default})."`
	AbandonedAfter  time.Duration `default:"168h" placeholder:"DURATION" help:"A run without an end, a lease and an entry for so long is abandoned and kept for --retention (${default})."`
	ThreadRetention time.Duration `default:"720h" placeholder:"DURATION" help:"How long what a thread's newest run has left is kept for its next run; 0 leaves nothing (${default})."`
	MaxRunEntries   int           `default:"0" placeholder:"N" help:"About how many entries a run's stream may have before its older half is trimmed, where a checkpoint covers it: 0 for any number, or 2000 and more (${default})."`
	Checkpoints     string        `default:"on" enum:"on,off" help:"Write runs' folds down beside them as they grow, so that a hub that hasn't seen a run needn't read it all: on or off (${default})."`

	Agent        []string `placeholder:"NAME=URL" sep:"none" help:"HTTP AG-UI agent that clients may call at /v1/agents/NAME: its runs become durable. May be repeated."`
	AgentsFile   string   `placeholder:"FILE" type:"existingfile" help:"JSON file of such agents, with headers, secrets and time limits: docs/cli.md."`
	MaxAgentRuns int      `default:"2000" placeholder:"N" help:"Runs of such agents at once (${default})."`

	IdleTimeout time.Duration `placeholder:"DURATION" help:"End runs whose agent holds no lease and publishes nothing for so long, with RUN_ERROR and the code idle (off). Runs with a lease end by that."`
	LeaseTTL    time.Duration `default:"30s" hidden:""`

	Invalid string `default:"withhold" enum:"withhold,pass" help:"What the official client would reject is withheld, or passed on where it is valid JSON: withhold or pass (${default})."`

	AllowOrigin []string `placeholder:"ORIGIN" help:"Origin of a web page that may attach and publish, such as https://app.example.com, beside those on loopback. May be repeated."`
	AllowHost   []string `placeholder:"HOST" help:"Host name under which the hub may be called, beside loopback ones. May be repeated."`
	accessFlags `embed:""`

	DrainTime        time.Duration `default:"10s" placeholder:"DURATION" help:"How long a hub that is stopped takes to close its sockets one by one and to let ingest and agents finish (${default})."`
	MaxConnectionAge time.Duration `placeholder:"DURATION" help:"How long a client stays attached before it is sent away to come back, less up to a tenth, so that hubs share clients anew (for ever)."`

	InsecureNoAuth bool `help:"Listen on other than loopback although nobody is asked who they are: everybody who reaches the hub sees and publishes everything."`

	LogLevel  string `default:"info" enum:"debug,info,warn,error" help:"debug, info, warn or error (${default})."`
	LogFormat string `default:"text" enum:"text,json" help:"text for people, json for machines; on standard error (${default})."`
}

// Run implements the subcommand: it serves until ctx ends.
func (c *serveCommand) Run(ctx context.Context, con stdio) error {
	if err := c.validate(); err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	logger, err := newLogger(c.LogLevel, c.LogFormat, con.err)
	if err != nil {
		return err
	}
	defer func() { _ = logger.Sync() }()
	p, err := newProcess(ctx, c, logger)
	if err != nil {
		return err
	}
	p.banner(con.err)
	return p.run(ctx)
}

// embedded says whether the hub brings its own Redis.
func (c *serveCommand) embedded() bool { return c.Redis == "" }

func (c *serveCommand) demo() bool { return given(c.Demo, c.embedded()) }

// retention is how long runs are kept after their end.
func (c *serveCommand) retention() time.Duration { return max(c.Retention, minRetention) }

// threadRetention is how long what runs have left is kept, as the layers below take it: negative for not at all.
func (c *serveCommand) threadRetention() time.Duration {
	if c.ThreadRetention == 0 {
		return -1
	}
	return c.ThreadRetention
}

// minRetention lets those who are attached read the end of a run.
const minRetention = time.Minute

// passInvalid says whether valid JSON that the client would reject is sent all the same.
func (c *serveCommand) passInvalid() bool { return c.Invalid == "pass" }

func (c *serveCommand) console() bool { return given(c.Console, c.embedded()) }

func given(flag *bool, otherwise bool) bool {
	if flag == nil {
		return otherwise
	}
	return *flag
}

// validateRedis checks the flags about Redis.
func (c *serveCommand) validateRedis(bad func(format string, args ...any)) {
	if (c.RedisCert == "") != (c.RedisKey == "") {
		bad("--redis-cert, --redis-key: both or neither")
	}
	if c.embedded() && (c.RedisCA != "" || c.RedisCert != "" || c.RedisCredentialsFile != "" || c.RedisConfigure) {
		bad("--redis-ca, --redis-cert, --redis-credentials-file and --redis-configure are of use with --redis only")
	}
	if _, err := stream.NewKeys(c.KeyPrefix); err != nil {
		bad("--key-prefix: %w", err)
	}
}

// validate checks the flags against each other, before anything is opened.
func (c *serveCommand) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if host, err := hostOf(c.Listen); err != nil {
		bad("--listen: %w", err)
	} else if !isLoopback(host) && !c.InsecureNoAuth && !c.asks() {
		bad("--listen %s: not a loopback address, and there is no authentication: whoever reaches the hub would see and publish everything; give --auth-config or --auth-issuer, or --insecure-no-auth if the network is guarded otherwise", c.Listen)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		bad("--tls-cert, --tls-key: both or neither")
	}
	if c.MetricsListen != off {
		if _, err := hostOf(c.MetricsListen); err != nil {
			bad("--metrics-listen: %w", err)
		}
	}
	if c.DebugListen != "" && c.DebugListen != off {
		if host, err := hostOf(c.DebugListen); err != nil {
			bad("--debug-listen: %w", err)
		} else if !isLoopback(host) {
			bad("--debug-listen %s: loopback only", c.DebugListen)
		}
	}
	if !c.embedded() && c.EmbeddedRedisListen != defaultEmbedded {
		bad("--embedded-redis-listen: there is no embedded Redis beside --redis; give one of the two")
	}
	if host, err := hostOf(c.EmbeddedRedisListen); err != nil {
		bad("--embedded-redis-listen: %w", err)
	} else if !isLoopback(host) {
		bad("--embedded-redis-listen %s: loopback only, since it has no password", c.EmbeddedRedisListen)
	}
	c.validateRedis(bad)
	if err := c.accessFlags.validate(c.KeyPrefix); err != nil {
		bad("%w", err)
	}
	if c.asks() && c.InsecureNoAuth {
		bad("--insecure-no-auth: tokens are asked for; give one or the other")
	}
	for flag, d := range map[string]time.Duration{"--attach-wait": c.AttachWait, "--write-timeout": c.WriteTimeout} {
		if d <= 0 {
			bad("%s %s: must be above zero", flag, d)
		}
	}
	if c.DrainTime < 0 || c.MaxConnectionAge < 0 {
		bad("--drain-time, --max-connection-age: must not be negative")
	}
	if c.MaxAgentRuns <= 0 {
		bad("--max-agent-runs %d: must be above zero", c.MaxAgentRuns)
	}
	if _, err := c.agents(); err != nil {
		bad("%w", err)
	}
	if c.Retention < 0 {
		bad("--retention %s: must not be negative", c.Retention)
	}
	if c.ThreadRetention < 0 {
		bad("--thread-retention %s: must not be negative", c.ThreadRetention)
	}
	if c.AbandonedAfter <= 0 {
		bad("--abandoned-after %s: must be above zero", c.AbandonedAfter)
	}
	switch {
	case c.MaxRunEntries != 0 && c.MaxRunEntries < backfill.MinRunEntries:
		bad("--max-run-entries %d: 0, or at least %d", c.MaxRunEntries, backfill.MinRunEntries)
	case c.MaxRunEntries > 0 && c.Checkpoints == off:
		bad("--max-run-entries needs --checkpoints=on: only what a checkpoint covers is trimmed")
	}
	if c.IdleTimeout < 0 {
		bad("--idle-timeout %s: must not be negative", c.IdleTimeout)
	}
	if c.LeaseTTL < time.Second {
		bad("--lease-ttl %s: at least a second", c.LeaseTTL)
	}
	for _, origin := range c.AllowOrigin {
		if err := checkOrigin(origin); err != nil {
			bad("--allow-origin %s: %w", origin, err)
		}
	}
	return errors.Join(errs...)
}

// checkOrigin takes scheme://host[:port], as browsers send it.
func checkOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.TrimPrefix(origin, u.Scheme+"://") != u.Host {
		return errors.New("an origin is a scheme, a host and perhaps a port, such as https://app.example.com")
	}
	return nil
}

func hostOf(address string) (string, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("%q is no HOST:PORT", address)
	}
	return host, nil
}

// isLoopback says whether a host can only be reached from this machine. Names other than localhost aren't looked up.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// isTerminal says whether a person is likely to read what is written to w.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
