package ingest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/aguihub/aguihub/transport/ingest"
)

func TestSendersHearOfACancel(t *testing.T) {
	log := memory(t)
	r := newRig(t, log, ingest.Config{})
	cancel := func() {
		t.Helper()
		if _, err := log.RequestCancel(t.Context(), "r1", []byte(`{"type":"cancel","reason":"Enough.","by":"me"}`)); err != nil {
			t.Fatal(err)
		}
	}
	heeding := func(q *http.Request) { q.Header.Set("Aguihub-Cancel", "answer") }
	if got := r.post(t, lines, strings.NewReader(nd(started))); got.CancelRequested != nil {
		t.Fatalf("%+v", got)
	}
	// One who sends on and on is answered at once, where it asks for that.
	w, got := r.live(t, lines, heeding)
	write(t, w, nd(open1))
	r.waitFor(t, 2)
	cancel()
	answer := <-got
	_ = w.Close()
	want(t, answer.short(), "409 cancel_requested 1")
	if c := answer.CancelRequested; c == nil || c.Reason != "Enough." || c.By != "me" {
		t.Errorf("%+v", c)
	}
	// Without, it may send what it likes, and hears of it in the end.
	w, got = r.live(t, lines)
	write(t, w, nd(content1))
	r.waitFor(t, 3)
	_ = w.Close()
	answer = <-got
	want(t, answer.short(), "200  1")
	if answer.CancelRequested == nil {
		t.Error("it isn't told")
	}
	// A problem says it, too; the run's end is the answer to it.
	if answer = r.post(t, lines, strings.NewReader("[]\n")); answer.Status != 422 || answer.CancelRequested == nil {
		t.Errorf("%+v", answer)
	}
	want(t, r.post(t, lines, strings.NewReader("x"), func(q *http.Request) { q.Header.Set("Aguihub-Cancel", "maybe") }).short(), "400 bad_header 0")
	answer = r.post(t, lines, strings.NewReader(nd(close1, `{"type":"RUN_FINISHED","threadId":"t1","runId":"r1","outcome":{"type":"cancelled"}}`)), heeding)
	want(t, answer.short(), "200  2")
	if answer.CancelRequested != nil {
		t.Error("it has ended")
	}
}

func TestABodyWithoutAnEventIsHintedAt(t *testing.T) {
	r := inMemory(t)
	for kind, body := range map[string]string{lines: "\n", "application/json": "[]", "text/event-stream": ": nothing\n\n"} {
		if got := r.post(t, kind, strings.NewReader(body)); got.Status != 200 || got.Accepted != 0 || got.Hint == "" {
			t.Errorf("%s: %+v", kind, got)
		}
	}
	if got := r.post(t, lines, strings.NewReader(nd(started))); got.Hint != "" {
		t.Errorf("%+v", got)
	}
}
