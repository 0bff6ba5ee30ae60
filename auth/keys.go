package auth

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"
)

// How keys are fetched.
const (
	// fetchEvery is how often a set of keys is fetched again, so that one that was taken back isn't believed for long.
	fetchEvery = 15 * time.Minute
	// unknownEvery bounds the fetches for keys that aren't known: anybody may send a token that names one.
	unknownEvery = 10 * time.Second
	fetchTimeout = 5 * time.Second
	maxKeySet    = 1 << 20
)

// keys finds the key of a token.
type keys func(ctx context.Context) jwt.Keyfunc

// openKeys makes an issuer's keys ready. What fetches ends with ctx; warn hears of fetches that don't work.
func (is *Issuer) openKeys(ctx context.Context, warn func(iss string, err error)) (keys, error) {
	switch {
	case is.JWKS != "":
		return is.fetched(ctx, warn)
	case is.Key != "":
		return fixed([]byte(is.Key)), nil
	}
	text, err := os.ReadFile(is.KeyFile)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimSpace(text)
	switch {
	case bytes.HasPrefix(text, []byte("-----BEGIN ")):
		key, err := parsePEM(text)
		if err != nil {
			return nil, err
		}
		return fixed(key), nil
	case bytes.HasPrefix(text, []byte("{")):
		set, err := keyfunc.NewJWKSetJSON(text)
		if err != nil {
			return nil, fmt.Errorf("JWK set: %w", err)
		}
		return asymmetric(set), nil
	case len(text) < minSecret:
		return nil, fmt.Errorf("a secret must have at least %d bytes", minSecret)
	}
	return fixed(text), nil
}

func fixed(key any) keys {
	return func(context.Context) jwt.Keyfunc { return func(*jwt.Token) (any, error) { return key, nil } }
}

// parsePEM reads a public key. A private one is refused: a hub has no business with it.
func parsePEM(text []byte) (any, error) {
	block, rest := pem.Decode(text)
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("a PEM file must hold one block")
	}
	var key any
	var err error
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var cert *x509.Certificate
		if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
			key = cert.PublicKey
		}
	default:
		return nil, fmt.Errorf("PEM of type %q: a public key is needed", block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("PEM: %w", err)
	}
	return key, checkPublic(key)
}

// checkPublic says whether one of the algorithms takes a key.
func checkPublic(key any) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < 2048 {
			return errors.New("an RSA key must have at least 2,048 bits")
		}
		return nil
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() {
			return errors.New("ES256 needs a key on the curve P-256")
		}
		return nil
	case ed25519.PublicKey:
		return nil
	}
	return fmt.Errorf("a key of type %T is of no use", key)
}

// fetched are the keys at a URL.
func (is *Issuer) fetched(ctx context.Context, warn func(iss string, err error)) (keys, error) {
	set, err := keyfunc.NewDefaultOverrideCtx(ctx, []string{is.JWKS}, keyfunc.Override{
		Client:           &http.Client{Transport: bounded{http.DefaultTransport}, CheckRedirect: noRedirect},
		HTTPTimeout:      fetchTimeout,
		RateLimitWaitMax: fetchTimeout,
		RefreshInterval:  fetchEvery,
		RefreshErrorHandlerFunc: func(string) func(context.Context, error) {
			return func(_ context.Context, err error) { warn(is.Iss, err) }
		},
		RefreshUnknownKID: rate.NewLimiter(rate.Every(unknownEvery), 1),
	})
	if err != nil {
		return nil, fmt.Errorf("jwks: %w", err)
	}
	return asymmetric(set), nil
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// asymmetric leaves secrets out that stand in a public set: whoever reads it could sign with them.
func asymmetric(set keyfunc.Keyfunc) keys {
	return func(ctx context.Context) jwt.Keyfunc {
		find := set.KeyfuncCtx(ctx)
		return func(t *jwt.Token) (any, error) {
			if t.Method.Alg() == jwt.SigningMethodHS256.Alg() {
				return nil, errors.New("HS256 isn't for sets of public keys")
			}
			return find(t)
		}
	}
}

// bounded is a transport whose answers end after maxKeySet bytes.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxKeySet), resp.Body}
	}
	return resp, err
}
