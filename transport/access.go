package transport

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/audit"
	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
)

// BearerProtocol is what a WebSocket subprotocol begins with that is a token: docs/contract.md, section 3.
const BearerProtocol = "ag-ui.bearer."

// Tickets keeps what tickets stand for, until they are used or too old (stream.Redis).
type Tickets interface {
	PutTicket(ctx context.Context, id string, data []byte, keep time.Duration) error
	// TakeTicket returns a ticket once; nil where there is none.
	TakeTicket(ctx context.Context, id string) ([]byte, error)
}

// AccessConfig says who is asked for what.
type AccessConfig struct {
	// Verifier believes tokens. Nil asks nobody who they are: everybody may do everything.
	Verifier *auth.Verifier
	// Tickets is where tickets are kept; needed with a Verifier.
	Tickets Tickets
	// Cookie is the cookie that a token may come in; "" for none.
	Cookie string
	// Proxies are the networks whose X-Forwarded-For is believed.
	Proxies []netip.Prefix
	// Audit records who does what; nil records nothing.
	Audit *audit.Log
	// Limits bounds who is attached at once.
	Limits Limits
	// Rates bounds how fast they may come and send.
	Rates Rates
}

// Access finds out who asks. Its methods may be called by anyone at once.
type Access struct {
	config AccessConfig
	logger *zap.Logger
	seats  seats

	attaches, events, bytes meters
}

// NewAccess returns an access.
func NewAccess(config AccessConfig, logger *zap.Logger) *Access {
	return &Access{config: config, logger: logger}
}

// Caller is who asks, as far as that could be found out. What may be done is for Allow to say.
type Caller struct {
	// Grant is what may be done; nil where no token was good.
	Grant *auth.Grant
	// Address is where the request comes from.
	Address string

	access  *Access
	refused *Error // why there is no grant
	ticket  bool   // the grant came by a ticket
}

type callerKey struct{}

// CallerOf is who asks; it is nil where nobody looked, and then nothing may be done.
func CallerOf(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}

// Wrap returns next, which finds with CallerOf who asks. A request without a good token isn't refused here: what needs
// none is served, and all else asks Allow.
func (a *Access) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, a.caller(r))))
	})
}

func (a *Access) caller(r *http.Request) *Caller {
	c := &Caller{access: a, Address: a.address(r)}
	if a.config.Verifier == nil {
		c.Grant = auth.Everything()
		return c
	}
	token, ticket := a.token(r)
	var err error
	switch {
	case ticket != "":
		c.ticket = true
		c.Grant, err = a.redeem(r.Context(), ticket)
	case token != "":
		c.Grant, err = a.config.Verifier.Verify(r.Context(), token)
	default:
		err = errNoToken
	}
	if err != nil {
		c.Grant, c.refused = nil, a.refuse(c.Address, err)
	}
	return c
}

// Errors that tokens come to. They close a WebSocket with 4401 and say nothing of what was sent.
var (
	errNoToken = &Error{
		Status: http.StatusUnauthorized, Code: "token_missing", Close: CloseToken,
		Message: "a token is needed: Authorization: Bearer …, or as docs/security.md says",
	}
	errBadToken = &Error{
		Status: http.StatusUnauthorized, Code: "token_bad", Close: CloseToken, Message: "the token is none that this hub believes",
	}
	// ErrTokenExpired ends what a token had allowed.
	ErrTokenExpired = &Error{
		Status: http.StatusUnauthorized, Code: "token_expired", Close: CloseToken, Message: "the token has expired",
	}
	errTicket = &Error{
		Status: http.StatusUnauthorized, Code: "ticket_bad", Close: CloseToken, Message: "the ticket is unknown, used or too old",
	}
	errScope = &Error{
		Status: http.StatusForbidden, Code: "scope_missing", Close: CloseForbidden, Message: "the token lacks the scope for this",
	}
	errNotNamed = &Error{
		Status: http.StatusForbidden, Code: "not_named", Close: CloseForbidden,
		Message: "the token doesn't name this run or thread",
	}
	errThreadNotNamed = &Error{
		Status: http.StatusForbidden, Code: "thread_not_named", Close: CloseForbidden, Message: "a publisher's token must name the run's thread",
	}
	errUnasked = &Error{
		Status: http.StatusInternalServerError, Code: "internal", Close: CloseInternal,
		Message: "an internal error, which the hub has logged", Cause: errors.New("transport: a request came past the access"),
	}
)

// ThreadNotNamed is the error for a publisher whose token names a run, but not its thread.
func ThreadNotNamed() *Error { return errThreadNotNamed }

// Unasked is the error for a request of which nobody has found out who sends it.
func Unasked() *Error { return errUnasked }

// refuse is refusal, and logs why where the token is to blame: the client isn't told.
func (a *Access) refuse(address string, err error) *Error {
	e := refusal(err)
	if errors.Is(err, auth.ErrBad) || errors.Is(err, auth.ErrExpired) {
		a.logger.Info("token refused", zap.String("code", e.Code), zap.String("address", address), zap.Error(err))
	}
	return e
}

// refusal is what a client is told of a token that isn't good. The cause, which holds nothing of it, is for the log.
func refusal(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := *errBadToken
	switch {
	case errors.Is(err, auth.ErrExpired):
		e = *ErrTokenExpired
	case !errors.Is(err, auth.ErrBad):
		return ErrorFor(err)
	}
	e.Cause = err
	return &e
}

// token finds what a request shows: the header, an offered subprotocol, a ticket, a cookie. The first there is counts.
func (a *Access) token(r *http.Request) (token, ticket string) {
	if values := r.Header.Values("Authorization"); len(values) > 0 {
		kind, text, _ := strings.Cut(values[0], " ")
		if len(values) == 1 && strings.EqualFold(kind, "Bearer") {
			return strings.TrimSpace(text), ""
		}
		return "?", "" // something that isn't understood is no reason to look elsewhere
	}
	for _, v := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(v, ",") {
			if text, ok := strings.CutPrefix(strings.TrimSpace(name), BearerProtocol); ok {
				return text, ""
			}
		}
	}
	if t := r.URL.Query().Get("ticket"); t != "" {
		return "", t
	}
	if a.config.Cookie != "" {
		if c, err := r.Cookie(a.config.Cookie); err == nil {
			return c.Value, ""
		}
	}
	return "", ""
}

// Ask is what somebody wants to do: one scope, with a run or a thread where it is about one.
type Ask struct {
	Scope  auth.Scope
	Run    stream.RunID
	Thread stream.ThreadID
}

// Allow says whether the one who asks may do something, as far as the token alone says: the error is an *Error for 401
// or 403. A run that the token doesn't name may still be one of a thread that it names: where Grant.NamesRun is false,
// whoever looks at the run compares its thread, and what isn't named looks unknown. The decision is recorded.
func Allow(r *http.Request, ask Ask) (*Caller, error) {
	c := CallerOf(r.Context())
	if c == nil {
		return nil, errUnasked
	}
	err := c.Allow(ask)
	return c, err
}

// Allow is the function Allow for somebody who is known.
func (c *Caller) Allow(ask Ask) error {
	err := c.judge(ask)
	if err != nil {
		c.record(ask, audit.Deny, err.Code)
		return err
	}
	c.record(ask, audit.Allow, "")
	return nil
}

func (c *Caller) judge(ask Ask) *Error {
	g := c.Grant
	switch {
	case g == nil:
		return c.refused
	case !g.May(ask.Scope):
		return errScope
	case !g.IsFor(string(ask.Run), string(ask.Thread)):
		return errNotNamed
	case ask.Thread != "" && !g.NamesThread(string(ask.Thread)):
		return errNotNamed
	case ask.Run == "":
		return nil
	case ask.Scope == auth.Publish: // must name both
		if !g.NamesRun(string(ask.Run)) {
			return errNotNamed
		}
		if !g.NamesThreads() { // a run that begins with RUN_ERROR has no thread that could be compared later
			return errThreadNotNamed
		}
	case !g.NamesRun(string(ask.Run)) && !g.NamesThreads():
		return errNotNamed
	}
	return nil
}

// Until is a context that ends when the token does, with ErrTokenExpired.
func (c *Caller) Until(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.Grant == nil || c.Grant.Expires.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, c.Grant.Expires, ErrTokenExpired)
}

// Reacher says whether a grant reaches a run, by its own name or by its thread's (backfill.Service).
type Reacher interface {
	Reach(ctx context.Context, g *auth.Grant, run stream.RunID) error
}

// Reach looks whether the run that Allow let through is of a thread that the caller names. Where it isn't, it looks
// unknown, and that is recorded.
func (c *Caller) Reach(ctx context.Context, runs Reacher, ask Ask) error {
	err := runs.Reach(ctx, c.Grant, ask.Run)
	if errors.Is(err, backfill.ErrForeign) {
		c.Late(ask, "other_thread")
	}
	return err
}

// Late records that what Allow had let through came to nothing, since the run is another thread's.
func (c *Caller) Late(ask Ask, code string) { c.record(ask, audit.Deny, code) }

// Subject is who asks, for logs and for the agent of a run that is cancelled.
func (c *Caller) Subject() string {
	if c.Grant == nil {
		return ""
	}
	return c.Grant.Subject
}

func (c *Caller) record(ask Ask, outcome, code string) {
	rec := audit.Record{
		Action: string(ask.Scope), Outcome: outcome, Code: code, Run: string(ask.Run), Thread: string(ask.Thread),
		Address: c.Address,
	}
	if c.Grant != nil {
		rec.Subject, rec.Tenant = c.Grant.Subject, c.Grant.Tenant
	}
	c.access.config.Audit.Write(rec)
}

// Renew is what a newer token of the same caller allows, for a connection that goes on. It must allow all that the
// connection was given.
func (c *Caller) Renew(ctx context.Context, token string) (*Caller, error) {
	if c.access.config.Verifier == nil {
		return c, nil
	}
	g, err := c.access.config.Verifier.Verify(ctx, token)
	if err != nil {
		return nil, c.access.refuse(c.Address, err)
	}
	if !g.Covers(c.Grant) {
		return nil, errNotNamed
	}
	renewed := *c
	renewed.Grant = g
	return &renewed, nil
}

// ticketKeep is how long a ticket is good: docs/contract.md, section 3.
const ticketKeep = 30 * time.Second

// ticketID is what a ticket is kept under: whoever reads Redis can't use it.
func ticketID(ticket string) string {
	sum := sha256.Sum256([]byte(ticket))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// redeem returns what a ticket stands for, once.
func (a *Access) redeem(ctx context.Context, ticket string) (*auth.Grant, error) {
	if len(ticket) > maxTicket {
		return nil, errTicket
	}
	data, err := a.config.Tickets.TakeTicket(ctx, ticketID(ticket))
	if err != nil {
		return nil, err
	}
	g := &auth.Grant{}
	if data == nil || json.Unmarshal(data, g) != nil || !g.Expires.After(time.Now()) {
		return nil, errTicket
	}
	return g, nil
}

// maxTicket bounds what is looked at, in bytes; a ticket has 43.
const maxTicket = 128

// address is where a request comes from: the last address in X-Forwarded-For that no trusted proxy has, where one asks.
func (a *Access) address(r *http.Request) string {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	addr := remote.Addr().Unmap()
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && a.trusts(addr); i-- {
		next, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		addr = next.Unmap()
	}
	return addr.String()
}

func (a *Access) trusts(addr netip.Addr) bool {
	for _, p := range a.config.Proxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
