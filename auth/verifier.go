package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// MaxToken is the largest token that is looked at, in bytes.
const MaxToken = 8 << 10

// leeway is by how much clocks may differ.
const leeway = 10 * time.Second

var (
	// ErrBad says that a token is none that the hub believes.
	ErrBad = errors.New("auth: bad token")
	// ErrExpired says that a token was good and is so no longer.
	ErrExpired = errors.New("auth: the token has expired")

	errIssuer = errors.New("auth: unknown issuer")
)

// Verifier makes grants of tokens. Its methods may be called by anyone at once.
type Verifier struct {
	parser  *jwt.Parser
	issuers map[string]*issuer
	tenants []string
}

type issuer struct {
	Issuer
	keys keys
}

// NewVerifier reads and fetches the issuers' keys. An issuer that can't be reached is asked again later: its tokens are
// refused until then. What fetches ends with ctx; warn is called when a fetch fails.
func NewVerifier(ctx context.Context, issuers []Issuer, warn func(iss string, err error)) (*Verifier, error) {
	if err := CheckIssuers(issuers); err != nil {
		return nil, err
	}
	v := &Verifier{
		parser: jwt.NewParser(
			jwt.WithValidMethods([]string{"HS256", "RS256", "ES256", "EdDSA"}),
			jwt.WithExpirationRequired(), jwt.WithLeeway(leeway), jwt.WithIssuedAt(), jwt.WithStrictDecoding(),
		),
		issuers: map[string]*issuer{},
	}
	for _, is := range issuers {
		keys, err := is.openKeys(ctx, warn)
		if err != nil {
			return nil, fmt.Errorf("auth: issuer %q: %w", is.Iss, err)
		}
		v.issuers[is.Iss] = &issuer{is, keys}
		if !slices.Contains(v.tenants, is.Tenant) {
			v.tenants = append(v.tenants, is.Tenant)
		}
	}
	slices.Sort(v.tenants)
	return v, nil
}

// Tenants are the issuers' tenants, sorted. Nobody else's runs can be reached.
func (v *Verifier) Tenants() []string { return v.tenants }

// claims is what a token says: docs/security.md.
type claims struct {
	jwt.RegisteredClaims
	Scope  string `json:"scope"` // RFC 8693, section 4.2
	Rights Rights `json:"aguihub"`
}

// Verify returns what a token allows. It fails with ErrExpired or ErrBad; what is wrong stands in the error, which holds
// nothing of the token, for the log. It may wait for an issuer's keys.
func (v *Verifier) Verify(ctx context.Context, token string) (*Grant, error) {
	if len(token) > MaxToken {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrBad, MaxToken)
	}
	var c claims
	var by *issuer
	_, err := v.parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		if by = v.issuers[c.Issuer]; by == nil {
			return nil, errIssuer
		}
		return by.keys(ctx)(t)
	})
	switch {
	case errors.Is(err, jwt.ErrTokenExpired) && !errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return nil, ErrExpired
	case err != nil:
		return nil, fmt.Errorf("%w: %s", ErrBad, reason(err))
	case by.Audience != "" && !slices.Contains(c.Audience, by.Audience):
		return nil, fmt.Errorf("%w: it is for another audience", ErrBad)
	case c.Subject == "" || len(c.Subject) > maxSubject:
		return nil, fmt.Errorf("%w: it has no subject of at most %d bytes", ErrBad, maxSubject)
	}
	g := &Grant{Subject: c.Subject, Tenant: by.Tenant, Expires: c.ExpiresAt.Time, Rights: c.Rights}
	g.Rights.Scopes = scopes(c.Rights.Scopes, c.Scope)
	return g, nil
}

// maxSubject bounds a subject, which stands in logs and in memory, in bytes.
const maxSubject = 256

// scopes joins the two places where a token may have them. Unknown ones, of other services, are left out.
func scopes(own []Scope, standard string) []Scope {
	var out []Scope
	for _, s := range []Scope{Attach, Publish, Cancel, Read, Input, Admin} {
		if slices.Contains(own, s) || slices.Contains(strings.Fields(standard), string(s)) {
			out = append(out, s)
		}
	}
	return out
}

// reason puts what the library says into words without anything that the token holds.
func reason(err error) string {
	for _, r := range []struct {
		is   error
		says string
	}{
		{jwt.ErrTokenMalformed, "it is malformed"},
		{jwt.ErrTokenSignatureInvalid, "its signature or algorithm is wrong"},
		{errIssuer, "its issuer is unknown"},
		{jwt.ErrTokenUnverifiable, "its key or algorithm is unknown"},
		{jwt.ErrTokenNotValidYet, "it isn't valid yet"},
		{jwt.ErrTokenUsedBeforeIssued, "it was issued in the future"},
		{jwt.ErrTokenRequiredClaimMissing, "it has no expiry"},
	} {
		if errors.Is(err, r.is) {
			return r.says
		}
	}
	return "its claims are wrong"
}
