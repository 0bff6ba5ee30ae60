package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"strings"
)

// Issuer is somebody whose tokens are believed, and whose: exactly one of JWKS, Key and KeyFile is set.
type Issuer struct {
	// Iss is the claim iss of its tokens.
	Iss string `json:"iss"`
	// JWKS is the URL of its public keys, which are fetched again every 15 minutes, and when a token names one that
	// isn't known; https, or http on loopback.
	JWKS string `json:"jwks,omitempty"`
	// Key is a secret for HS256, of at least 32 bytes.
	Key string `json:"key,omitempty"`
	// KeyFile is a file with a public key in PEM, a JWK set, or, where it is neither, a secret for HS256.
	KeyFile string `json:"keyFile,omitempty"`
	// Tenant is whose runs its tokens are for; "" is the tenant of the hub's own key prefix.
	Tenant string `json:"tenant,omitempty"`
	// Audience must be among the tokens' claim aud; "" looks at none.
	Audience string `json:"audience,omitempty"`
}

// ReadIssuers reads a file {"issuers":[…]}. Members that it doesn't know are an error: a mistyped one would be a hole.
func ReadIssuers(r io.Reader) ([]Issuer, error) {
	var file struct {
		Issuers []Issuer `json:"issuers"`
	}
	text, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("auth: issuers: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, fmt.Errorf("auth: issuers: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("auth: issuers: something stands behind the object")
	}
	return file.Issuers, CheckIssuers(file.Issuers)
}

// CheckIssuers checks issuers against each other, without reading files or asking anybody.
func CheckIssuers(issuers []Issuer) error {
	if len(issuers) == 0 {
		return errors.New("auth: there is no issuer")
	}
	seen := map[string]bool{}
	for i := range issuers {
		is := &issuers[i]
		if err := is.check(); err != nil {
			return fmt.Errorf("auth: issuer %q: %w", is.Iss, err)
		}
		if seen[is.Iss] {
			return fmt.Errorf("auth: issuer %q stands there twice", is.Iss)
		}
		seen[is.Iss] = true
	}
	return nil
}

// minSecret is what RFC 7518, section 3.2, asks of a key for HS256, in bytes.
const minSecret = 32

// maxTenant leaves room for it in a key prefix of 64 bytes.
const maxTenant = 32

func (is *Issuer) check() error {
	given := 0
	for _, s := range []string{is.JWKS, is.Key, is.KeyFile} {
		if s != "" {
			given++
		}
	}
	switch {
	case is.Iss == "":
		return errors.New("iss is missing")
	case given != 1:
		return errors.New("exactly one of jwks, key and keyFile is needed")
	case is.Key != "" && len(is.Key) < minSecret:
		return fmt.Errorf("a secret must have at least %d bytes", minSecret)
	case len(is.Tenant) > maxTenant || strings.Trim(is.Tenant, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return fmt.Errorf("a tenant is at most %d of a-z, 0-9 and -", maxTenant)
	case is.JWKS == "":
		return nil
	}
	u, err := url.Parse(is.JWKS)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return errors.New("jwks must be an https URL, or an http one on loopback")
	}
	return nil
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
