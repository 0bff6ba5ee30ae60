package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/audit"
	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

// accessFlags say who is asked for a token and whose are believed: docs/security.md.
type accessFlags struct {
	AuthConfig               string   `placeholder:"FILE" type:"existingfile" help:"JSON file of the issuers whose tokens are believed, each with its keys and tenant: docs/security.md. Without it and --auth-issuer nobody is asked for a token."`
	AuthIssuer               string   `placeholder:"ISS" help:"The one issuer, as the claim iss of its tokens has it; with --auth-jwks or --auth-key-file instead of --auth-config."`
	AuthJwks                 string   `placeholder:"URL" help:"URL of the keys of --auth-issuer, fetched again every 15 minutes and when a token names an unknown one."`
	AuthKeyFile              string   `placeholder:"FILE" type:"existingfile" help:"File with the key of --auth-issuer: a public key in PEM, a JWK set, or a secret for HS256."`
	AuthAudience             string   `placeholder:"AUD" help:"What the claim aud of tokens of --auth-issuer must hold (not looked at)."`
	AuthCookie               string   `placeholder:"NAME" help:"Cookie that a token may come in, beside Authorization, the subprotocol and a ticket (none)."`
	TrustProxy               []string `placeholder:"CIDR" help:"Network of proxies whose X-Forwarded-For is believed, for limits and the audit log. May be repeated."`
	MaxConnections           int      `default:"0" placeholder:"N" help:"Attached connections at once; more are told to come again (no limit)."`
	MaxConnectionsPerSubject int      `default:"0" placeholder:"N" help:"Attached connections of one subject at once, where tokens are asked for (no limit)."`
	MaxConnectionsPerAddress int      `default:"0" placeholder:"N" help:"Attached connections of one address at once; behind a proxy see --trust-proxy (no limit)."`
	MaxAttachRate            int      `default:"0" placeholder:"N" help:"Attaches a second of one address, or of one IPv6 network of 64 bits; behind a proxy see --trust-proxy (no limit)."`
	MaxMessageRate           int      `default:"50" placeholder:"N" help:"Messages, pings and unasked pongs a second that a client of a WebSocket may send (${default})."`
	MaxIngestEvents          int      `default:"0" placeholder:"N" help:"Events a second that one subject may post, or one address where nobody is asked for a token (no limit)."`
	MaxIngestBytes           size     `placeholder:"SIZE" help:"Bytes a second of them (no limit)."`
	AuditLog                 string   `placeholder:"FILE" help:"File that who did what is appended to, one JSON line each; - for standard output (off)."`
}

// asks says whether callers are asked for a token.
func (f *accessFlags) asks() bool { return f.AuthConfig != "" || f.AuthIssuer != "" }

// issuers are those of the flags or of the file; none where nobody is asked.
func (f *accessFlags) issuers() ([]auth.Issuer, error) {
	single := auth.Issuer{Iss: f.AuthIssuer, JWKS: f.AuthJwks, KeyFile: f.AuthKeyFile, Audience: f.AuthAudience}
	switch {
	case f.AuthConfig == "" && f.AuthIssuer == "":
		if single != (auth.Issuer{}) {
			return nil, errors.New("--auth-jwks, --auth-key-file and --auth-audience belong to --auth-issuer")
		}
		return nil, nil
	case f.AuthConfig == "":
		if err := auth.CheckIssuers([]auth.Issuer{single}); err != nil {
			return nil, fmt.Errorf("--auth-issuer: %w", err)
		}
		return []auth.Issuer{single}, nil
	case single != (auth.Issuer{}):
		return nil, errors.New("--auth-config: it names the issuers, so the other --auth flags of one can't be given")
	}
	file, err := os.Open(f.AuthConfig)
	if err != nil {
		return nil, fmt.Errorf("--auth-config: %w", err)
	}
	defer func() { _ = file.Close() }()
	issuers, err := auth.ReadIssuers(file)
	if err != nil {
		return nil, fmt.Errorf("--auth-config: %w", err)
	}
	return issuers, nil
}

// accessLine says who may do something.
func (f *accessFlags) accessLine() string {
	switch {
	case f.AuthIssuer != "":
		return "by token of " + f.AuthIssuer
	case f.asks():
		return "by token of the issuers in " + f.AuthConfig
	default:
		return "open: nobody is asked for a token (docs/security.md)"
	}
}

// proxies are the networks of --trust-proxy.
func (f *accessFlags) proxies() (out []netip.Prefix, err error) {
	for _, text := range f.TrustProxy {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--trust-proxy %s: a network such as 10.0.0.0/8 is needed", text)
		}
		out = append(out, p)
	}
	return out, nil
}

// validate checks the flags against each other.
func (f *accessFlags) validate(keyPrefix string) error {
	issuers, err := f.issuers()
	if err != nil {
		return err
	}
	for _, tenant := range tenantsOf(issuers) {
		if _, err := stream.NewKeys(tenantPrefix(keyPrefix, tenant)); err != nil {
			return fmt.Errorf("tenant %s: %w", tenant, err)
		}
	}
	if f.MaxConnections < 0 || f.MaxConnectionsPerSubject < 0 || f.MaxConnectionsPerAddress < 0 {
		return errors.New("--max-connections, --max-connections-per-subject, --max-connections-per-address: must not be negative")
	}
	if f.MaxAttachRate < 0 || f.MaxIngestEvents < 0 || f.MaxIngestBytes < 0 || f.MaxMessageRate <= 0 {
		return errors.New("--max-attach-rate, --max-ingest-events, --max-ingest-bytes: must not be negative; --max-message-rate: must be above zero")
	}
	_, err = f.proxies()
	return err
}

// tenantsOf are the tenants that a hub serves: those of its issuers, and the nameless one where there are none.
func tenantsOf(issuers []auth.Issuer) []string {
	tenants := []string{}
	for _, is := range issuers {
		tenants = append(tenants, is.Tenant)
	}
	if len(tenants) == 0 {
		return []string{""}
	}
	slices.Sort(tenants)
	return slices.Compact(tenants)
}

// tenantPrefix is the first part of a tenant's keys. No two tenants share one: a colon follows it, and it holds none.
func tenantPrefix(keyPrefix, tenant string) string {
	if tenant == "" {
		return keyPrefix
	}
	return keyPrefix + "-" + tenant
}

// openAccess reads the issuers' keys and opens the audit log. What fetches keys ends with ctx.
func (p *process) openAccess(ctx context.Context) error {
	issuers, err := p.flags.issuers()
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	config := transport.AccessConfig{Cookie: p.flags.AuthCookie, Limits: transport.Limits{
		Connections: p.flags.MaxConnections, PerSubject: p.flags.MaxConnectionsPerSubject, PerAddress: p.flags.MaxConnectionsPerAddress,
	}, Rates: transport.Rates{
		Attaches: p.flags.MaxAttachRate, IngestEvents: p.flags.MaxIngestEvents, IngestBytes: int(p.flags.MaxIngestBytes),
	}}
	if config.Proxies, err = p.flags.proxies(); err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	if len(issuers) > 0 {
		config.Tickets = p.stacks[0].redis
		config.Verifier, err = auth.NewVerifier(ctx, issuers, func(iss string, err error) {
			p.logger.Warn("keys of an issuer can't be fetched: its tokens are judged by those known", zap.String("issuer", iss), zap.Error(err))
		})
		if err != nil {
			return err
		}
	}
	if p.flags.AuditLog != "" {
		if p.audit, err = audit.Open(p.flags.AuditLog); err != nil {
			return fmt.Errorf("--audit-log: %w", err)
		}
		config.Audit = p.audit
	}
	p.access = transport.NewAccess(config, p.logger)
	return nil
}

// front is what the hub listens with: who asks decides whose runs are served.
func (p *process) front() (http.Handler, error) {
	guard, err := transport.NewGuard(slices.Concat(p.flags.AllowHost, listenHost(p.flags.Listen)), p.flags.AllowOrigin, p.logger)
	if err != nil {
		return nil, usagef("%w", err)
	}
	byTenant := map[string]http.Handler{}
	for _, s := range p.stacks {
		byTenant[s.tenant] = s.serving.Load().handler
	}
	first := p.stacks[0].serving.Load().handler
	return transport.NewHandler(guard, p.access, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := first // nothing but what anybody may see is served without a grant
		if c := transport.CallerOf(r.Context()); c != nil && c.Grant != nil && !c.Grant.Open() {
			h = byTenant[c.Grant.Tenant]
		}
		if h == nil { // a ticket of a tenant that another hub serves
			transport.WriteProblem(w, p.logger, transport.Unasked())
			return
		}
		h.ServeHTTP(w, r)
	})), nil
}
