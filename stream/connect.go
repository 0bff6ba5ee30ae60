package stream

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ErrBadURL is wrapped by the error of [Connect] for a URL that can't be used. The text never repeats the
// URL, which may hold a password.
var ErrBadURL = errors.New("stream: bad redis URL")

// dialer makes clients of one server. Each purpose has one of its own, so that blocked readers never keep
// others from a connection and appends are never sent twice.
type dialer struct {
	cluster     bool
	db          int
	credentials *credentials  // nil where they stand in the URL
	maxAge      time.Duration // of connections; 0 is any
	client      func(use) redis.UniversalClient
}

// use is what a client is for.
type use int

const (
	useCommands use = iota // reads and writes that may be repeated
	useAppends             // never repeated by the client
	useReaders             // blocking reads, one connection each
)

// tuning is what a use sets over the URL's options.
type tuning struct {
	noRetry   bool
	poolSize  int           // 0: the URL's or the client's default
	idleConns int           // most connections kept without a use; 0: any number
	idleTime  time.Duration // 0: as above
}

// readerPool is more than one process can use: 1,024 blocked reads of 100 keys.
const readerPool = 1024

func tuningOf(u use) tuning {
	switch u {
	case useAppends:
		return tuning{noRetry: true}
	case useReaders:
		// Not repeated, so that the tail sees each connection end: what was there may be gone behind the next one.
		return tuning{noRetry: true, poolSize: readerPool, idleConns: 4, idleTime: time.Minute}
	default:
		return tuning{}
	}
}

// newDialer reads a URL. See [Connect] for its forms.
func newDialer(raw string, security Security) (*dialer, error) {
	u, err := url.Parse(raw)
	if err != nil || strings.Contains(u.Path, "@") {
		return nil, fmt.Errorf("%w: it can't be parsed; special characters of a password must be percent-encoded", ErrBadURL)
	}
	scheme, kind, _ := strings.Cut(u.Scheme, "+")
	if scheme != "redis" && scheme != "rediss" {
		return nil, fmt.Errorf("%w: scheme %q; redis, rediss, redis+sentinel, rediss+sentinel, redis+cluster and rediss+cluster are known", ErrBadURL, u.Scheme)
	}
	u.Scheme = scheme
	switch kind {
	case "":
		return singleDialer(u, security)
	case "sentinel":
		return sentinelDialer(u, security)
	case "cluster":
		return clusterDialer(u, security)
	default:
		return nil, fmt.Errorf("%w: %q after the plus; sentinel and cluster are known", ErrBadURL, kind)
	}
}

func singleDialer(u *url.URL, security Security) (*dialer, error) {
	base, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadURL, err)
	}
	if base.TLSConfig, err = security.tls(base.TLSConfig); err != nil {
		return nil, err
	}
	from, err := security.provider(base.Username)
	if err != nil {
		return nil, err
	}
	if from != nil {
		base.CredentialsProviderContext, base.ConnMaxLifetime = from.get, maxAge(base.ConnMaxLifetime)
	}
	return &dialer{db: base.DB, credentials: from, maxAge: base.ConnMaxLifetime, client: func(use use) redis.UniversalClient {
		o, t := *base, tuningOf(use)
		o.ContextTimeoutEnabled = true
		o.DisableIdentity = true
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		if t.noRetry {
			o.MaxRetries, o.DialerRetries = -1, 1
		}
		if t.poolSize > 0 {
			o.PoolSize, o.MaxIdleConns, o.ConnMaxIdleTime = t.poolSize, t.idleConns, t.idleTime
			o.MinIdleConns, o.MaxActiveConns = 0, 0
		}
		o.PipelinePoolSize = -1 // one pool, of the size that the URL says
		return redis.NewClient(&o)
	}}, nil
}

func sentinelDialer(u *url.URL, security Security) (*dialer, error) {
	base, err := redis.ParseFailoverURL(u.String())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadURL, err)
	}
	if base.MasterName == "" {
		return nil, fmt.Errorf("%w: a sentinel URL needs master_name", ErrBadURL)
	}
	if base.ReplicaOnly || base.RouteByLatency || base.RouteRandomly {
		return nil, fmt.Errorf("%w: replicas lag behind; reads must go to the master", ErrBadURL)
	}
	if base.TLSConfig, err = security.tls(base.TLSConfig); err != nil {
		return nil, err
	}
	from, err := security.provider(base.Username)
	if err != nil {
		return nil, err
	}
	if from != nil {
		base.CredentialsProviderContext, base.ConnMaxLifetime = from.get, maxAge(base.ConnMaxLifetime)
	}
	return &dialer{db: base.DB, credentials: from, maxAge: base.ConnMaxLifetime, client: func(use use) redis.UniversalClient {
		o, t := *base, tuningOf(use)
		o.ContextTimeoutEnabled = true
		o.DisableIdentity = true
		if t.noRetry {
			o.MaxRetries, o.DialerRetries = -1, 1
		}
		if t.poolSize > 0 {
			o.PoolSize, o.MaxIdleConns, o.ConnMaxIdleTime = t.poolSize, t.idleConns, t.idleTime
			o.MinIdleConns, o.MaxActiveConns = 0, 0
		}
		o.PipelinePoolSize = -1 // one pool, of the size that the URL says
		return redis.NewFailoverClient(&o)
	}}, nil
}

func clusterDialer(u *url.URL, security Security) (*dialer, error) {
	base, err := redis.ParseClusterURL(u.String())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadURL, err)
	}
	if base.ReadOnly || base.RouteByLatency || base.RouteRandomly {
		return nil, fmt.Errorf("%w: replicas lag behind; reads must go to the masters", ErrBadURL)
	}
	if base.TLSConfig, err = security.tls(base.TLSConfig); err != nil {
		return nil, err
	}
	from, err := security.provider(base.Username)
	if err != nil {
		return nil, err
	}
	if from != nil {
		base.CredentialsProviderContext, base.ConnMaxLifetime = from.get, maxAge(base.ConnMaxLifetime)
	}
	return &dialer{cluster: true, credentials: from, maxAge: base.ConnMaxLifetime, client: func(use use) redis.UniversalClient {
		o, t := *base, tuningOf(use)
		o.ContextTimeoutEnabled = true
		o.DisableIdentity = true
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		if t.noRetry {
			o.MaxRetries, o.DialerRetries = -1, 1
		}
		return redis.NewClusterClient(&o)
	}}, nil
}

// Connect returns the log at a URL. It doesn't dial: [Redis.Ping] tells whether the server is there. It fails,
// with [ErrBadURL], for a URL that can't be used, and for an invalid cfg. Forms:
//
//	redis://[user:password@]host[:6379][/db]        rediss:// for TLS
//	redis+sentinel://[user:password@]host:26379[/db]?master_name=NAME[&addr=HOST:PORT…][&username=…&password=…]
//	redis+cluster://[user:password@]host[:6379][?addr=HOST:PORT…]
//
// with rediss+sentinel and rediss+cluster for TLS. A sentinel URL's user is the Sentinels'; the servers' own is
// given by username and password, and addr names further Sentinels. The query also takes the client
// library's options in snake case (pool_size, dial_timeout, read_timeout, client_name, skip_verify, …);
// an unknown one is an error. Close the log when done.
func Connect(rawURL string, cfg Config) (*Redis, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	d, err := newDialer(rawURL, cfg.Security)
	if err != nil {
		return nil, err
	}
	// The client library reports each failed dial on stderr; callers get those as errors.
	logging.Disable()
	l := &Redis{
		cfg:      cfg,
		keys:     Keys{prefix: cfg.KeyPrefix},
		dialer:   d,
		commands: d.client(useCommands),
		appends:  d.client(useAppends),
	}
	l.observed = map[use]*observer{useCommands: observe(l.commands, false), useAppends: observe(l.appends, false)}
	return l, nil
}

// classify wraps err, which a command got from the client, for callers to branch on; nil stays nil. An ended
// context's error is returned as it is.
func classify(ctx context.Context, step string, err error) error {
	if err == nil || errors.Is(err, redis.Nil) {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", step, ctx.Err())
	}
	if errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("%s: %w", step, ErrClosed)
	}
	kind := ErrUnavailable
	if reply, ok := errors.AsType[redis.Error](err); ok {
		kind = kindOfReply(reply.Error())
	}
	if kind == nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return fmt.Errorf("%s: %w: %w", step, kind, err)
}

// kindOfReply returns what an error reply of the server means, nil if it is none of the kinds.
func kindOfReply(text string) error {
	word, _, _ := strings.Cut(text, " ")
	switch word {
	case "WRONGTYPE":
		return ErrWrongType
	case "NOAUTH", "WRONGPASS", "NOPERM":
		return ErrDenied
	case "OOM":
		return ErrFull
	case "EXECABORT": // one of the commands was refused before anything ran
		if strings.Contains(text, "OOM") {
			return ErrFull
		}
		return nil
	case "LOADING", "MASTERDOWN", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "UNBLOCKED", "BUSY", "MOVED", "ASK", "MISCONF":
		return ErrUnavailable
	}
	if strings.HasPrefix(text, "ERR max number of clients reached") {
		return ErrUnavailable
	}
	return nil
}
