package transport_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/transport"
)

func TestConnectionsAreLimitedInAllAndPerAddress(t *testing.T) {
	a := transport.NewAccess(transport.AccessConfig{Limits: transport.Limits{Connections: 3, PerAddress: 2, PerSubject: 1}}, zap.NewNop())
	sit := func(address string) (leave func(), err error) {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = address + ":1"
		a.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			leave, err = transport.CallerOf(r.Context()).Sit()
		})).ServeHTTP(httptest.NewRecorder(), r)
		return leave, err
	}
	one, err := sit("192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sit("192.0.2.1"); err != nil {
		t.Error("the limit of a subject holds where nobody is asked for a token")
	}
	if _, err := sit("192.0.2.1"); err == nil || transport.ErrorFor(err).Close != transport.CloseConnections {
		t.Errorf("a third of one address: %v", err)
	}
	if _, err := sit("192.0.2.2"); err != nil {
		t.Error(err)
	}
	if _, err := sit("192.0.2.3"); err == nil {
		t.Error("a fourth in all")
	}
	one()
	one()
	if _, err := sit("192.0.2.3"); err != nil {
		t.Errorf("after one has left: %v", err)
	}
	if _, err := sit("192.0.2.4"); err == nil {
		t.Error("leaving twice counted twice")
	}
}
