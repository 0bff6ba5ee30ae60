package transporttest

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"
)

// CheckProblem checks that an answer is a problem document with a status and a code, and closes it.
func CheckProblem(tb testing.TB, resp *http.Response, status int, code string) {
	tb.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		tb.Fatal(err)
	}
	var p struct {
		Title, Code, Detail string
		Status              int
	}
	if err := json.Unmarshal(body, &p); err != nil {
		tb.Fatalf("%d, no problem: %q", resp.StatusCode, body)
	}
	if resp.StatusCode != status || p.Status != status || p.Code != code || p.Title != http.StatusText(status) || p.Detail == "" {
		tb.Errorf("got %d %s, want %d %s", resp.StatusCode, body, status, code)
	}
	if kind := resp.Header.Get("Content-Type"); kind != "application/problem+json" {
		tb.Errorf("content type %q", kind)
	}
}
