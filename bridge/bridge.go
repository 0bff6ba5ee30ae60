package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/publish"
)

// Opener opens runs for writing: *publish.Publisher.
type Opener interface {
	Open(ctx context.Context, rc publish.RunConfig) (*publish.Run, error)
}

// Threads tells and changes what goes on in a thread, whoever publishes there. Its methods may be called by any number
// of goroutines at once.
type Threads interface {
	// Active lists the runs of a thread that have begun and not ended.
	Active(ctx context.Context, thread string) ([]string, error)
	// Pending lists the interrupts that a run which goes on from parent ("": from the newest) finds open.
	Pending(ctx context.Context, thread, parent string) ([]string, error)
	// Cancel asks a run to end.
	Cancel(ctx context.Context, run, reason string) error
	// Wait returns nil when a run has ended.
	Wait(ctx context.Context, run string) error
}

// Claims lets one run at a time start in a thread, whichever hub starts it. A holder is who started, or starts, a run: two
// for the same run are different. Its methods may be called by any number of goroutines at once.
type Claims interface {
	// Claim claims a thread, unless another holder has it, who is returned then; over, whose run has ended, doesn't count.
	// It lapses by itself if nobody keeps it.
	Claim(ctx context.Context, thread string, h, over Holder) (Holder, error)
	// Keep has a claim hold for its whole time from now on; false where it has lapsed.
	Keep(ctx context.Context, thread string, h Holder) (bool, error)
	// Let lets go of a claim.
	Let(ctx context.Context, thread string, h Holder) error
	// Look says whether the log knows of a run, by an entry or by who has claimed it, so that it can be cancelled, and whether
	// the run has ended.
	Look(ctx context.Context, run string) (known, over bool, err error)
}

// Holder is who has claimed a thread. The zero value is nobody.
type Holder struct{ Token, Run string }

// Defaults of Config.
const (
	// DefaultMaxRuns is twice what a benchmark of this project keeps up at 100 KiB a run.
	DefaultMaxRuns = 2000
	// DefaultKeepEvery is a third of the lease of docs/contract.md, section 6.
	DefaultKeepEvery = 10 * time.Second
	// DefaultSupersedeWait is for agents that tidy up before they go.
	DefaultSupersedeWait = 10 * time.Second
)

// Config says whom a Bridge calls and how much it does at once. Nothing may change while it runs.
type Config struct {
	Agents []Agent
	// MaxEvent is the largest event, and the largest input, in bytes: the publisher's. 0 means [agui.DefaultMaxEvent].
	MaxEvent int
	// MaxRuns bounds the runs that are under way at once. 0 means [DefaultMaxRuns].
	MaxRuns int
	// SupersedeWait is for how long a superseded run may take to end. 0 means [DefaultSupersedeWait].
	SupersedeWait time.Duration
	// KeepEvery is how often a claim of a thread is renewed, well below the time after which it lapses. 0 means
	// [DefaultKeepEvery].
	KeepEvery time.Duration
}

// Bridge calls agents. Its methods may be called by any number of goroutines at once.
type Bridge struct {
	// static after New
	opener  Opener
	threads Threads
	shared  Claims
	cfg     Config
	logger  *zap.Logger
	agents  map[string]*caller
	names   []string
	child   func() (context.Context, context.CancelCauseFunc) // a context that ends with the bridge
	wg      sync.WaitGroup
	counts  counts

	// guarded by mu
	mu     sync.Mutex
	closed bool
	runs   map[*Run]struct{} // claimed and not done
	claims map[string]*Run   // by thread
}

// caller is an agent with the client that calls it.
type caller struct {
	Agent
	client *http.Client
}

// New returns a bridge whose runs end with ctx or with Close. It fails if cfg is invalid.
func New(ctx context.Context, opener Opener, threads Threads, claims Claims, cfg Config, logger *zap.Logger) (*Bridge, error) {
	if cfg.MaxEvent < 0 || cfg.MaxRuns < 0 || cfg.SupersedeWait < 0 || cfg.KeepEvery < 0 {
		return nil, errors.New("bridge: a limit is negative")
	}
	if cfg.MaxEvent == 0 {
		cfg.MaxEvent = agui.DefaultMaxEvent
	}
	if cfg.MaxRuns == 0 {
		cfg.MaxRuns = DefaultMaxRuns
	}
	if cfg.KeepEvery == 0 {
		cfg.KeepEvery = DefaultKeepEvery
	}
	if cfg.SupersedeWait == 0 {
		cfg.SupersedeWait = DefaultSupersedeWait
	}
	b := &Bridge{
		opener: opener, threads: threads, shared: claims, cfg: cfg, logger: logger,
		agents: map[string]*caller{}, runs: map[*Run]struct{}{}, claims: map[string]*Run{},
		child: func() (context.Context, context.CancelCauseFunc) { return context.WithCancelCause(ctx) },
	}
	for _, a := range cfg.Agents {
		a, err := a.withDefaults()
		if err != nil {
			return nil, err
		}
		if b.agents[a.Name] != nil {
			return nil, fmt.Errorf("bridge: two agents are called %s", a.Name)
		}
		b.agents[a.Name] = newCaller(a)
		b.names = append(b.names, a.Name)
	}
	slices.Sort(b.names)
	return b, nil
}

// newCaller makes an agent's client: no cookies, no redirects elsewhere, nothing decoded behind our back.
func newCaller(a Agent) *caller {
	dialer := &net.Dialer{Timeout: a.Limits.Connect, KeepAlive: 15 * time.Second}
	return &caller{Agent: a, client: &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: a.Limits.Connect, DisableCompression: true,
			MaxIdleConnsPerHost: 32, IdleConnTimeout: 90 * time.Second, ReadBufferSize: readBytes, WriteBufferSize: readBytes,
		},
		CheckRedirect: sameOrigin,
	}}
}

// maxRedirects is what a server that adds a slash or so needs.
const maxRedirects = 3

// sameOrigin follows a redirect that keeps the method, the body and the origin; any other one is the answer.
func sameOrigin(next *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > maxRedirects || next.Method != first.Method || next.URL.Scheme != first.URL.Scheme || next.URL.Host != first.URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

// Agents are the names of the agents, sorted.
func (b *Bridge) Agents() []string { return slices.Clone(b.names) }

// Request is what starts a run.
type Request struct {
	Agent string
	// Input is the RunAgentInput as JSON. It goes to the agent as it is, and must not change afterwards.
	Input []byte
	// Header is of the caller's request: what of it the agent gets is for the configuration.
	Header http.Header
	// Names says whether the caller may write a thread that isn't the input's: agents may answer in another. Nil allows any.
	Names func(thread string) bool
	// Supersede cancels a run of the thread that goes on, and waits for its end.
	Supersede bool
}

// Run is a run that was started. Its methods may be called by any number of goroutines at once.
type Run struct {
	// static
	thread string
	holder Holder
	opened chan struct{} // closed when the run is claimed in the log: whoever hears of it can cancel it; never where that fails
	begun  chan struct{} // closed when the log holds something of the run, or it is done
	ended  chan struct{} // closed when the log holds its end, or nothing more will come
	done   chan struct{} // closed when the bridge is done with it
	ctx    func() context.Context
	cancel context.CancelCauseFunc

	// set before the run is returned by Start; guarded by Bridge.mu before
	writer *publish.Run

	beginOnce, endOnce sync.Once
}

// ID names the run.
func (r *Run) ID() string { return string(r.writer.ID()) }

// Writer is the run as it is published: whoever answers from the log needs its name.
func (r *Run) Writer() *publish.Run { return r.writer }

// Begun is closed when the log holds an entry of the run.
func (r *Run) Begun() <-chan struct{} { return r.begun }

// Done is closed when the run has ended and the bridge has nothing more to do with it.
func (r *Run) Done() <-chan struct{} { return r.done }

func (r *Run) begin() { r.beginOnce.Do(func() { close(r.begun) }) }

// Start validates an input, records it and calls the agent, whose run then goes on by itself: ctx bounds the start only.
// Errors, after which nothing has run: ErrUnknownAgent, ErrFull, ErrClosed, *publish.InvalidError for the input and those
// of stream.ParseRunID and ParseThreadID for its ids, *BusyError, *InterruptError, publish.ErrExists and ErrEnded for a
// run that is there already, and what the log says when it can't be read.
func (b *Bridge) Start(ctx context.Context, rq Request) (_ *Run, err error) {
	defer func() { b.counts.start(err) }()
	agent := b.agents[rq.Agent]
	if agent == nil {
		return nil, ErrUnknownAgent
	}
	rc, asked, err := publish.ReadInput(rq.Input, b.cfg.MaxEvent)
	if err != nil {
		return nil, err
	}
	r, err := b.admit(ctx, rq, rc, asked)
	if err != nil {
		return nil, err
	}
	c := &call{bridge: b, run: r, agent: agent, writer: r.writer, input: rq.Input, asked: asked, names: rq.Names, header: passed(agent, rq.Header)}
	b.wg.Go(func() { b.holdThread(r.ctx(), r) }) //nolint:contextcheck // likewise
	b.wg.Go(func() { c.drive(r.ctx()) })         //nolint:contextcheck // the run outlives the request that starts it
	return r, nil
}

// passed are the fields of a caller's request that the agent gets.
func passed(agent *caller, from http.Header) http.Header {
	h := agent.Header.Clone()
	for _, name := range agent.Pass {
		if values := from[name]; len(values) > 0 && h[name] == nil {
			h[name] = slices.Clone(values)
		}
	}
	return h
}

// Drain starts no more runs and waits until those that are under way have ended, or until ctx ends. It ends none.
func (b *Bridge) Drain(ctx context.Context) {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	_ = b.wait(ctx)
}

// Close starts no more runs, ends those that are under way with RUN_ERROR and the code CodeStopped, and waits until all
// that is written, or until ctx ends; then it returns ctx's error.
func (b *Bridge) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	for r := range b.runs {
		r.cancel(errStopped)
	}
	b.mu.Unlock()
	return b.wait(ctx)
}

// wait waits until no run is under way any more, or until ctx ends; then it returns ctx's error.
func (b *Bridge) wait(ctx context.Context) error {
	left := make(chan struct{})
	go func() {
		b.wg.Wait()
		for _, a := range b.agents {
			a.client.CloseIdleConnections()
		}
		close(left)
	}()
	select {
	case <-left:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
