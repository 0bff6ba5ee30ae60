package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aguihub/aguihub/loadtest/process"
)

// settledBy is how soon after the last subscriber has left a hub must hold nothing for subscribers any more; feedsBy is
// how soon the runs that it follows are let go, which it does when nobody used them for 30 s.
const (
	settledBy = 30 * time.Second
	feedsBy   = 60 * time.Second
	// spareGoroutines is how many more there may be than when the hub had started: connections to Redis that are kept.
	spareGoroutines = 40
)

// gauges reads some of a hub's metrics by name, without the prefix.
func (h *hub) gauges(ctx context.Context) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.metrics+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	defer http.DefaultClient.CloseIdleConnections()
	return readGauges(resp.Body)
}

func readGauges(r io.Reader) (map[string]float64, error) {
	found := map[string]float64{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("metric %s: %w", name, err)
		}
		found[strings.TrimPrefix(name, "aguihub_")] = n
	}
	return found, lines.Err()
}

// settle waits until no gauge of any hub says that somebody is still there, now that nobody is, and returns what doesn't
// come to rest (I9).
func (w *world) settle(ctx context.Context) (found []string) {
	for i, h := range w.hubs {
		if h.cmd == nil {
			continue
		}
		check := func(within time.Duration, at func(g map[string]float64) string) {
			ctx, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			for {
				g, err := h.gauges(ctx)
				var wrong string
				if err != nil {
					wrong = err.Error()
				} else {
					wrong = at(g)
				}
				if wrong == "" {
					return
				}
				if !process.Pause(ctx, 200*time.Millisecond) {
					found = append(found, fmt.Sprintf("hub %d, when all had left: %s", i, wrong))
					return
				}
			}
		}
		check(settledBy, func(g map[string]float64) string {
			if n, ok := g["subscribers"]; !ok || n != 0 {
				return fmt.Sprintf("%v subscribers", n)
			}
			return ""
		})
		if !w.config.Feeds {
			continue
		}
		check(feedsBy, func(g map[string]float64) string {
			if n, ok := g["feeds"]; !ok || n != 0 {
				return fmt.Sprintf("%v feeds", n)
			}
			if n := g["go_goroutines"]; n > h.goroutines+spareGoroutines {
				return fmt.Sprintf("%v goroutines, at first %v", n, h.goroutines)
			}
			return ""
		})
	}
	return found
}
