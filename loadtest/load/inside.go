package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aguihub/aguihub/loadtest/process"
)

// steady is how long memory must not shrink to count as given back; the Go runtime gives it back little by little.
const (
	steady         = 2 * time.Second
	settlePatience = 20 * time.Second
)

// settle has the hubs collect what is garbage, and waits until their memory doesn't shrink any more. It returns what
// their runtimes hold free even then and would give back when somebody wanted it.
func settle(ctx context.Context, m *measuring) (free int, err error) {
	p, ok := m.system.(profiler)
	if !ok {
		return 0, nil
	}
	for range 2 { // what the first finalises, the second frees
		if _, err := fetch(ctx, p.debug()+"heap?gc=1"); err != nil {
			return 0, err
		}
	}
	least, since := 1<<62, time.Now()
	for deadline := since.Add(settlePatience); time.Since(since) < steady && time.Now().Before(deadline); {
		rss, err := m.rss()
		if err != nil {
			return 0, err
		}
		if rss < least-least/200 {
			least, since = rss, time.Now()
		}
		if !process.Pause(ctx, 100*time.Millisecond) {
			return 0, ctx.Err()
		}
	}
	text, err := fetch(ctx, p.debug()+"heap?debug=1")
	if err != nil {
		return 0, err
	}
	idle, err := memStat(text, "HeapIdle")
	if err != nil {
		return 0, err
	}
	released, err := memStat(text, "HeapReleased")
	return idle - released, err
}

// memStat is a field of runtime.MemStats, as a heap profile in words ends with.
func memStat(text []byte, name string) (int, error) {
	_, rest, ok := strings.Cut(string(text), "# "+name+" = ")
	if !ok {
		return 0, fmt.Errorf("a heap profile without %s", name)
	}
	value, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(value)
}

// profile begins to take a profile, if one is wanted. What it returns waits until it is there.
func (m *measuring) profile(ctx context.Context, r *Result) (done func() error) {
	p, ok := m.system.(profiler)
	if !ok || m.w.Profile == "" {
		return func() error { return nil }
	}
	page := "profile?seconds=" + strconv.Itoa(max(int(m.w.Duration/time.Second), 1))
	if m.w.Profile == Heap {
		page = "heap"
	}
	took := make(chan error, 1)
	go func() {
		var err error
		r.Profile, err = fetch(ctx, p.debug()+page)
		took <- err
	}()
	return func() error { return <-took }
}

// fetch gets a page of a hub's own.
func fetch(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: status %d", url, resp.StatusCode)
	}
	return body, nil
}
