package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/gobwas/ws"

	"github.com/aguihub/aguihub/loadtest/process"
)

// Centrifugo is the peer: a channel for a run, with history and recovery, on its Redis engine, otherwise as it is by
// default. recoverAll has each subscriber ask for the whole history first.
func Centrifugo(name, program string, recoverAll bool) Party {
	return Party{Name: name, Start: func(ctx context.Context, s Setting) (System, error) {
		c := &centrifugo{recoverAll: recoverAll, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: publishers}}}
		for i := range s.Hubs {
			if err := c.start(ctx, program, s, i); err != nil {
				c.Close()
				return nil, err
			}
		}
		return c, nil
	}}
}

type centrifugo struct {
	recoverAll bool
	http       *http.Client
	programs   []*process.Process
	hosts      []string // host:port
	turn       atomic.Int64
}

// configOf is Centrifugo's configuration. What isn't here is its default; usage statistics aren't sent from a test.
func configOf(port, redis string) map[string]any {
	return map[string]any{
		"http_server": map[string]any{"address": "127.0.0.1", "port": port},
		"log":         map[string]any{"level": "error"},
		"engine":      map[string]any{"type": "redis", "redis": map[string]any{"address": redis}},
		"client": map[string]any{
			"insecure": true, "allowed_origins": []string{"*"}, "recovery_max_publication_limit": maxHistory,
		},
		"http_api": map[string]any{"insecure": true},
		"channel": map[string]any{"without_namespace": map[string]any{
			"allow_subscribe_for_client": true, "history_size": maxHistory, "history_ttl": "1h", "force_recovery": true,
		}},
		"health":      map[string]any{"enabled": true},
		"debug":       map[string]any{"enabled": true},
		"usage_stats": map[string]any{"disabled": true},
	}
}

// maxHistory is how many events of a run may be recovered: more than any row publishes.
const maxHistory = 1_000_000

func (c *centrifugo) start(ctx context.Context, program string, s Setting, i int) error {
	port, err := process.FreePort(ctx)
	if err != nil {
		return err
	}
	config, err := json.Marshal(configOf(port, s.Redis.url()))
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	file := filepath.Join(s.Dir, "centrifugo-"+strconv.Itoa(i)+".json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	p, err := process.Start(ctx, s.Log, program, "--config", file)
	if err != nil {
		return err
	}
	c.programs, c.hosts = append(c.programs, p), append(c.hosts, "127.0.0.1:"+port)
	return p.Serving(ctx, func(ctx context.Context) error {
		_, err := c.get(ctx, "http://127.0.0.1:"+port+"/health")
		return err
	})
}

func (c *centrifugo) get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	return c.do(req)
}

func (c *centrifugo) do(req *http.Request) ([]byte, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: status %d: %.200s", req.URL, resp.StatusCode, body)
	}
	return body, nil
}

// Programs implements System.
func (c *centrifugo) Programs() []*process.Process { return c.programs }

func (c *centrifugo) debug() string { return "http://" + c.hosts[0] + "/debug/pprof/" }

// Publish implements System: one request for all of the events.
func (c *centrifugo) Publish(ctx context.Context, events []Event) ([]string, error) {
	body := []byte(`{"commands":[`)
	for i, e := range events {
		if i > 0 {
			body = append(body, ',')
		}
		body = fmt.Appendf(body, `{"publish":{"channel":%q,"data":%s}}`, runName(e.Run), e.Data)
	}
	body = append(body, `]}`...)
	host := c.hosts[int(c.turn.Add(1))%len(c.hosts)]
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+host+"/api/batch", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := c.do(req)
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	if bytes.Contains(answer, []byte(`"error"`)) {
		return nil, fmt.Errorf("publish: %.200s", answer)
	}
	return nil, nil
}

// Attach implements System.
func (c *centrifugo) Attach(ctx context.Context, run, i int) (Stream, error) {
	s, err := dialSocket(ctx, "ws://"+c.hosts[i%len(c.hosts)]+"/connection/websocket")
	if err != nil {
		return nil, err
	}
	// Its pings are messages "{}", which are answered alike.
	if s.answer, err = ws.CompileFrame(ws.MaskFrame(ws.NewTextFrame([]byte("{}")))); err == nil {
		err = c.subscribe(s, runName(run))
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func (c *centrifugo) subscribe(s *socket, channel string) error {
	if err := s.text(`{"id":1,"connect":{}}`); err != nil {
		return err
	}
	if _, err := s.find(`"id":1`); err != nil {
		return err
	}
	s.rest = nil
	if err := s.text(fmt.Sprintf(`{"id":2,"subscribe":{"channel":%q}}`, channel)); err != nil {
		return err
	}
	answer, err := s.find(`"id":2`)
	if err != nil {
		return err
	}
	if !strings.Contains(answer, `"recoverable":true`) {
		return fmt.Errorf("subscribe: %.200s", answer)
	}
	if !c.recoverAll {
		return nil
	}
	_, epoch, _ := strings.Cut(answer, `"epoch":"`)
	epoch, _, _ = strings.Cut(epoch, `"`)
	s.rest = nil
	if err := s.text(fmt.Sprintf(`{"id":3,"unsubscribe":{"channel":%q}}`, channel)); err != nil {
		return err
	}
	if err := s.text(fmt.Sprintf(`{"id":4,"subscribe":{"channel":%q,"recover":true,"offset":0,"epoch":%q}}`, channel, epoch)); err != nil {
		return err
	}
	if answer, err = s.find(`"id":4`); err != nil {
		return err
	}
	s.rest = nil // the history itself
	if !strings.Contains(answer, `"recovered":true`) {
		return fmt.Errorf("recover: %.200s", answer)
	}
	return nil
}

// Close implements System.
func (c *centrifugo) Close() {
	for _, p := range c.programs {
		p.Kill()
	}
	c.http.CloseIdleConnections()
}
