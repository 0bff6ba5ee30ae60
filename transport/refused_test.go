package transport_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/transport"
)

// The rule: why a token is refused stands in the hub's log, and nothing of the token does.
func TestTheLogSaysWhyATokenIsRefused(t *testing.T) {
	verifier, err := auth.NewVerifier(t.Context(), []auth.Issuer{{Iss: "test", Key: secret, Audience: "hub"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(c jwt.MapClaims) string{
		"another audience":  func(c jwt.MapClaims) string { c["aud"] = "secret-aud"; return secret },
		"issuer is unknown": func(c jwt.MapClaims) string { c["iss"] = "secret-iss"; return secret },
		"signature":         func(jwt.MapClaims) string { return "another secret of more than thirty-two" },
		"no subject":        func(c jwt.MapClaims) string { delete(c, "sub"); return secret },
		"has expired":       func(c jwt.MapClaims) string { c["exp"] = time.Now().Add(-time.Hour).Unix(); return secret },
		"malformed":         nil,
	} {
		t.Run(says, func(t *testing.T) {
			token := "secret-rubbish"
			if change != nil {
				claims := jwt.MapClaims{"iss": "test", "aud": "hub", "sub": "secret-sub", "exp": time.Now().Add(time.Hour).Unix()}
				key := change(claims)
				var err error
				if token, err = jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(key)); err != nil {
					t.Fatal(err)
				}
			}
			core, logs := observer.New(zap.InfoLevel)
			access := transport.NewAccess(transport.AccessConfig{Verifier: verifier}, zap.New(core))
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
			r.Header.Set("Authorization", "Bearer "+token)
			access.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(httptest.NewRecorder(), r)
			if logs.Len() != 1 {
				t.Fatalf("%d log entries", logs.Len())
			}
			text := fmt.Sprint(logs.All()[0].Message, logs.All()[0].ContextMap())
			if !strings.Contains(text, "token refused") || !strings.Contains(text, says) {
				t.Error(text)
			}
			if strings.Contains(text, "secret") || strings.Contains(text, token) {
				t.Errorf("it holds something of the token: %s", text)
			}
		})
	}
}
