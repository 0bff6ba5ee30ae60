package auth_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/aguihub/aguihub/auth"
)

const secret = "a secret of at least thirty-two bytes"

// must is for steps of tests that can't fail.
func must[T any](tb testing.TB) func(v T, err error) T {
	tb.Helper()
	return func(v T, err error) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

// good are claims that are believed; change them for those that aren't.
func good(change func(c jwt.MapClaims)) jwt.MapClaims {
	c := jwt.MapClaims{
		"iss": "https://issuer", "sub": "kim", "aud": []string{"hub"}, "exp": time.Now().Add(time.Hour).Unix(),
		"scope": "openid attach", "aguihub": map[string]any{"runs": []string{"r1"}, "threadPrefixes": []string{"kim-"}, "scopes": []string{"read"}},
	}
	if change != nil {
		change(c)
	}
	return c
}

func sign(tb testing.TB, method jwt.SigningMethod, key any, c jwt.MapClaims) string {
	tb.Helper()
	return must[string](tb)(jwt.NewWithClaims(method, c).SignedString(key))
}

func verifier(tb testing.TB, issuers ...auth.Issuer) *auth.Verifier {
	tb.Helper()
	return must[*auth.Verifier](tb)(auth.NewVerifier(tb.Context(), issuers, func(iss string, err error) { tb.Logf("%s: %v", iss, err) }))
}

func write(tb testing.TB, text []byte) string {
	tb.Helper()
	name := filepath.Join(tb.TempDir(), "key")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	return name
}

func public(tb testing.TB, key crypto.PublicKey) []byte {
	tb.Helper()
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must[[]byte](tb)(x509.MarshalPKIXPublicKey(key))})
}

func TestATokenOfEachAlgorithmIsBelieved(t *testing.T) {
	rsaKey := must[*rsa.PrivateKey](t)(rsa.GenerateKey(rand.Reader, 2048))
	ecKey := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		method jwt.SigningMethod
		key    any
		file   []byte
	}{
		"HS256": {jwt.SigningMethodHS256, []byte(secret), []byte(secret + "\n")},
		"RS256": {jwt.SigningMethodRS256, rsaKey, public(t, rsaKey.Public())},
		"ES256": {jwt.SigningMethodES256, ecKey, public(t, ecKey.Public())},
		"EdDSA": {jwt.SigningMethodEdDSA, edKey, public(t, edKey.Public())},
	} {
		t.Run(name, func(t *testing.T) {
			v := verifier(t, auth.Issuer{Iss: "https://issuer", KeyFile: write(t, c.file), Tenant: "acme", Audience: "hub"})
			g, err := v.Verify(t.Context(), sign(t, c.method, c.key, good(nil)))
			if err != nil {
				t.Fatal(err)
			}
			if g.Subject != "kim" || g.Tenant != "acme" || !g.May(auth.Attach) || !g.May(auth.Read) || g.May(auth.Input) ||
				!g.NamesRun("r1") || g.NamesRun("r2") || !g.NamesThread("kim-7") || g.NamesThread("other") {
				t.Errorf("%+v", g)
			}
		})
	}
}

func TestWhatIsntBelieved(t *testing.T) {
	rsaKey := must[*rsa.PrivateKey](t)(rsa.GenerateKey(rand.Reader, 2048))
	other := must[*rsa.PrivateKey](t)(rsa.GenerateKey(rand.Reader, 2048))
	file := public(t, rsaKey.Public())
	v := verifier(t,
		auth.Issuer{Iss: "https://issuer", KeyFile: write(t, file), Tenant: "acme", Audience: "hub"},
		auth.Issuer{Iss: "https://other", Key: secret, Tenant: "globex"},
	)
	rs := func(change func(c jwt.MapClaims)) string {
		return sign(t, jwt.SigningMethodRS256, rsaKey, good(change))
	}
	set := func(name string, value any) string { return rs(func(c jwt.MapClaims) { c[name] = value }) }
	for name, c := range map[string]struct {
		token string
		want  error
	}{
		"nothing":                      {"", auth.ErrBad},
		"no token at all":              {"a.b.c", auth.ErrBad},
		"alg none":                     {sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good(nil)), auth.ErrBad},
		"a public key as a secret":     {sign(t, jwt.SigningMethodHS256, []byte(strings.TrimSpace(string(file))), good(nil)), auth.ErrBad},
		"an algorithm of no issuer":    {sign(t, jwt.SigningMethodRS512, rsaKey, good(nil)), auth.ErrBad},
		"another key":                  {sign(t, jwt.SigningMethodRS256, other, good(nil)), auth.ErrBad},
		"another issuer's key":         {sign(t, jwt.SigningMethodHS256, []byte(secret), good(nil)), auth.ErrBad},
		"an unknown issuer":            {set("iss", "https://evil"), auth.ErrBad},
		"no issuer":                    {rs(func(c jwt.MapClaims) { delete(c, "iss") }), auth.ErrBad},
		"another audience":             {set("aud", "shop"), auth.ErrBad},
		"no audience":                  {rs(func(c jwt.MapClaims) { delete(c, "aud") }), auth.ErrBad},
		"expired":                      {set("exp", time.Now().Add(-time.Minute).Unix()), auth.ErrExpired},
		"expired, of another key":      {sign(t, jwt.SigningMethodRS256, other, good(func(c jwt.MapClaims) { c["exp"] = 1 })), auth.ErrBad},
		"no expiry":                    {rs(func(c jwt.MapClaims) { delete(c, "exp") }), auth.ErrBad},
		"not valid yet":                {set("nbf", time.Now().Add(time.Hour).Unix()), auth.ErrBad},
		"issued in the future":         {set("iat", time.Now().Add(time.Hour).Unix()), auth.ErrBad},
		"no subject":                   {set("sub", ""), auth.ErrBad},
		"a huge subject":               {set("sub", strings.Repeat("x", 300)), auth.ErrBad},
		"huge":                         {set("junk", strings.Repeat("x", auth.MaxToken)), auth.ErrBad},
		"rights that are no object":    {set("aguihub", "admin"), auth.ErrBad},
		"runs that are no list":        {set("aguihub", map[string]any{"runs": "r1"}), auth.ErrBad},
		"a signature that was cut off": {strings.TrimRight(rs(nil), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"), auth.ErrBad},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := v.Verify(t.Context(), c.token)
			if g != nil || !errors.Is(err, c.want) {
				t.Fatalf("%+v, %v", g, err)
			}
			if len(c.token) > 10 && strings.Contains(err.Error(), c.token[:10]) {
				t.Error("the error quotes the token")
			}
		})
	}
	t.Run("a claim doesn't choose the tenant", func(t *testing.T) {
		g, err := v.Verify(t.Context(), rs(func(c jwt.MapClaims) { c["tenant"] = "globex"; c["aguihub"] = map[string]any{"tenant": "globex"} }))
		if err != nil || g.Tenant != "acme" {
			t.Errorf("%+v, %v", g, err)
		}
	})
}

func TestNamesAreComparedAsTheyStand(t *testing.T) {
	g := &auth.Grant{Rights: auth.Rights{Runs: []string{"*", "a"}, RunPrefixes: []string{"u7-"}, Threads: []string{"t[1]"}}}
	for id, want := range map[string]bool{
		"*": true, "a": true, "b": false, "A": false, "a\t": false, "u7-x": true, "u7-": true, "u7": false, "u70-x": false, "xu7-": false, "": false,
	} {
		if g.NamesRun(id) != want {
			t.Errorf("run %q: %v", id, !want)
		}
	}
	if g.NamesThread("t1") || !g.NamesThread("t[1]") || g.NamesThread("") {
		t.Error("threads")
	}
	if all := (&auth.Grant{Rights: auth.Rights{ThreadPrefixes: []string{""}}}); !all.NamesThread("x") || all.NamesThread("") || all.NamesRun("x") {
		t.Error("the empty prefix names all threads, and no run")
	}
}

func TestARenewedTokenMustCoverTheOneBefore(t *testing.T) {
	was := &auth.Grant{Subject: "kim", Tenant: "a", Rights: auth.Rights{Scopes: []auth.Scope{auth.Attach}, Runs: []string{"r1"}, ThreadPrefixes: []string{"k-"}}}
	for name, c := range map[string]struct {
		change func(g *auth.Grant)
		want   bool
	}{
		"the same": {func(*auth.Grant) {}, true},
		"more": {func(g *auth.Grant) {
			g.Rights.Scopes = append(g.Rights.Scopes, auth.Read)
			g.Rights.ThreadPrefixes = []string{"k"}
		}, true},
		"another subject":  {func(g *auth.Grant) { g.Subject = "eve" }, false},
		"another tenant":   {func(g *auth.Grant) { g.Tenant = "b" }, false},
		"a scope less":     {func(g *auth.Grant) { g.Rights.Scopes = nil }, false},
		"a run less":       {func(g *auth.Grant) { g.Rights.Runs = nil }, false},
		"a longer prefix":  {func(g *auth.Grant) { g.Rights.ThreadPrefixes = []string{"k-1"} }, false},
		"a thread for all": {func(g *auth.Grant) { g.Rights.Threads, g.Rights.ThreadPrefixes = []string{"k-1"}, nil }, false},
	} {
		now := *was
		c.change(&now)
		if now.Covers(was) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}

// jwk is an Ed25519 key as a member of a set.
func jwk(kid string, key ed25519.PublicKey) map[string]any {
	return map[string]any{"kty": "OKP", "crv": "Ed25519", "kid": kid, "alg": "EdDSA", "use": "sig", "x": base64.RawURLEncoding.EncodeToString(key)}
}

func TestKeysAreFetchedAgainWhenTheyAreRotated(t *testing.T) {
	pub1, key1, _ := ed25519.GenerateKey(rand.Reader)
	pub2, key2, _ := ed25519.GenerateKey(rand.Reader)
	var set atomic.Value
	set.Store([]any{
		jwk("one", pub1),
		map[string]any{"kty": "oct", "kid": "shared", "alg": "HS256", "k": base64.RawURLEncoding.EncodeToString([]byte(secret))},
	})
	var fetches atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetches.Add(1)
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": set.Load()})
	}))
	defer web.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	v, err := auth.NewVerifier(ctx, []auth.Issuer{{Iss: "https://issuer", JWKS: web.URL}}, func(string, error) {})
	if err != nil {
		t.Fatal(err)
	}
	token := func(method jwt.SigningMethod, kid string, key any) string {
		tk := jwt.NewWithClaims(method, good(nil))
		tk.Header["kid"] = kid
		return must[string](t)(tk.SignedString(key))
	}
	if _, err := v.Verify(ctx, token(jwt.SigningMethodEdDSA, "one", key1)); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(ctx, token(jwt.SigningMethodHS256, "shared", []byte(secret))); !errors.Is(err, auth.ErrBad) {
		t.Errorf("a secret in a public set: %v", err)
	}
	set.Store([]any{jwk("two", pub2)})
	if _, err := v.Verify(ctx, token(jwt.SigningMethodEdDSA, "two", key2)); err != nil {
		t.Fatalf("after the rotation: %v", err)
	}
	if _, err := v.Verify(ctx, token(jwt.SigningMethodEdDSA, "two", key1)); !errors.Is(err, auth.ErrBad) {
		t.Errorf("the old key under the new name: %v", err)
	}
	before := fetches.Load()
	for range 50 {
		if _, err := v.Verify(ctx, token(jwt.SigningMethodEdDSA, "no-such", key1)); !errors.Is(err, auth.ErrBad) {
			t.Fatal(err)
		}
	}
	if n := fetches.Load() - before; n > 1 {
		t.Errorf("tokens of unknown keys caused %d fetches", n)
	}
}

func TestAnIssuerThatCantBeReachedKeepsNobodyElseOut(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	v := verifier(t, auth.Issuer{Iss: "https://away", JWKS: gone.URL}, auth.Issuer{Iss: "https://issuer", Key: secret})
	if _, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodHS256, []byte(secret), good(nil))); err != nil {
		t.Error(err)
	}
}

func TestIssuersThatAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"none":                  `{"issuers":[]}`,
		"no iss":                `{"issuers":[{"key":"` + secret + `"}]}`,
		"no key":                `{"issuers":[{"iss":"a"}]}`,
		"two keys":              `{"issuers":[{"iss":"a","key":"` + secret + `","jwks":"https://a/b"}]}`,
		"twice":                 `{"issuers":[{"iss":"a","key":"` + secret + `"},{"iss":"a","key":"` + secret + `"}]}`,
		"a short secret":        `{"issuers":[{"iss":"a","key":"short"}]}`,
		"keys over plain http":  `{"issuers":[{"iss":"a","jwks":"http://issuer.example.com/keys"}]}`,
		"a tenant with a colon": `{"issuers":[{"iss":"a","key":"` + secret + `","tenant":"a:b"}]}`,
		"a mistyped member":     `{"issuers":[{"iss":"a","key":"` + secret + `","audiense":"x"}]}`,
		"something behind":      `{"issuers":[{"iss":"a","key":"` + secret + `"}]} {}`,
	} {
		if _, err := auth.ReadIssuers(strings.NewReader(text)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	weak := must[*rsa.PrivateKey](t)(rsa.GenerateKey(rand.Reader, 1024))
	_, private, _ := ed25519.GenerateKey(rand.Reader)
	for name, file := range map[string][]byte{
		"a weak key":     public(t, weak.Public()),
		"a private key":  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must[[]byte](t)(x509.MarshalPKCS8PrivateKey(private))}),
		"a short secret": []byte("short"),
		"broken PEM":     []byte("-----BEGIN PUBLIC KEY-----\nxxxx\n-----END PUBLIC KEY-----\n"),
		"a broken set":   []byte(`{"keys":7}`),
	} {
		if _, err := auth.NewVerifier(t.Context(), []auth.Issuer{{Iss: "a", KeyFile: write(t, file)}}, nil); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func FuzzVerify(f *testing.F) {
	v := verifier(f, auth.Issuer{Iss: "https://issuer", Key: secret})
	f.Add(sign(f, jwt.SigningMethodHS256, []byte(secret), good(nil)))
	f.Add(sign(f, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good(nil)))
	f.Add("..")
	f.Add("eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJodHRwczovL2lzc3VlciJ9.AA")
	f.Fuzz(func(t *testing.T, token string) {
		g, err := v.Verify(t.Context(), token)
		if (g == nil) == (err == nil) {
			t.Fatal("neither a grant nor an error")
		}
		if err == nil && g.Subject != "kim" {
			t.Fatalf("a token that nobody signed: %q", token)
		}
		if err != nil && !errors.Is(err, auth.ErrBad) && !errors.Is(err, auth.ErrExpired) {
			t.Fatal(err)
		}
	})
}
