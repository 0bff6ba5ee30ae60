package main

import (
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestAHandlerThatPanicsIsLoggedAsAnError(t *testing.T) {
	t.Parallel()
	core, seen := observer.New(zapcore.DebugLevel)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oh dear") }))
	server.Config.ErrorLog = log.New(serverLog{zap.New(core)}, "", 0)
	server.Start()
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := server.Client().Do(req); err == nil {
		_ = resp.Body.Close()
		t.Fatal("it answered")
	}
	all := seen.FilterLevelExact(zapcore.ErrorLevel).All()
	if len(all) != 1 || !strings.Contains(all[0].ContextMap()["said"].(string), "oh dear") {
		t.Errorf("logged: %v", seen.All())
	}
}

// A line that was logged stays what it was: the buffer that it came in holds the next one.
func TestWhatAServerLoggedStays(t *testing.T) {
	t.Parallel()
	core, seen := observer.New(zapcore.DebugLevel)
	line := []byte("http: panic serving: first\n")
	if _, err := (serverLog{zap.New(core)}).Write(line); err != nil {
		t.Fatal(err)
	}
	copy(line, "another line altogether")
	if got := seen.All()[0].ContextMap()["said"]; got != "http: panic serving: first" {
		t.Errorf("logged: %v", got)
	}
}
