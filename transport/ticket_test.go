package transport_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/auth"
	"github.com/aguihub/aguihub/transport"
)

// FuzzTicket: nothing but the ticket that was given out lets anybody in, and that once.
func FuzzTicket(f *testing.F) {
	const good = "a-ticket-that-was-given-out-0123456789abcdefg"
	f.Add(good)
	f.Add("")
	f.Add(good + " ")
	f.Add("*")
	f.Add("a:b\x00\r\n")
	verifier, err := auth.NewVerifier(f.Context(), []auth.Issuer{{Iss: "test", Key: secret}}, nil)
	if err != nil {
		f.Fatal(err)
	}
	kept, err := json.Marshal(auth.Grant{Subject: "kim", Expires: time.Now().Add(time.Hour)})
	if err != nil {
		f.Fatal(err)
	}
	sum := sha256.Sum256([]byte(good))
	f.Fuzz(func(t *testing.T, ticket string) {
		box := &ticketBox{m: map[string][]byte{base64.RawURLEncoding.EncodeToString(sum[:]): kept}}
		a := transport.NewAccess(transport.AccessConfig{Verifier: verifier, Tickets: box}, zap.NewNop())
		for try := range 2 {
			r := httptest.NewRequest(http.MethodGet, "/?ticket="+url.QueryEscape(ticket), http.NoBody)
			in := false
			a.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				in = transport.CallerOf(r.Context()).Grant != nil
			})).ServeHTTP(httptest.NewRecorder(), r)
			if in != (ticket == good && try == 0) {
				t.Fatalf("ticket %q, try %d: let in: %v", ticket, try, in)
			}
		}
	})
}
