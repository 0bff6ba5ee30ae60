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

// CentrifugoOptions is how the peer runs in a comparison.
type CentrifugoOptions struct {
	Name    string // of the party
	Program string // path of centrifugo
	// RecoverAll has each subscriber ask for the whole history first. Its answer is a message of a client's queue, which
	// gets room for it.
	RecoverAll bool
	Protobuf   bool // the binary form of its protocol; else JSON
	Tuned      bool // small buffers for sockets, and those for writing from a pool
}

// Centrifugo is the peer: a channel for a run, with history and recovery, on its Redis engine, otherwise as it is by
// default.
func Centrifugo(o CentrifugoOptions) Party {
	return Party{Name: o.Name, Start: func(ctx context.Context, s Setting) (System, error) {
		c := &centrifugo{options: o, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: publishers}}}
		for i := range s.Hubs {
			if err := c.start(ctx, s, i); err != nil {
				c.Close()
				return nil, err
			}
		}
		return c, nil
	}}
}

type centrifugo struct {
	options  CentrifugoOptions
	http     *http.Client
	programs []*process.Process
	hosts    []string // host:port
	turn     atomic.Int64
}

// configOf is Centrifugo's configuration. What isn't here is its default; usage statistics aren't sent from a test.
func configOf(o CentrifugoOptions, port, redis string) map[string]any {
	client := map[string]any{
		"insecure": true, "allowed_origins": []string{"*"}, "recovery_max_publication_limit": maxHistory,
	}
	if o.RecoverAll {
		client["queue_max_size"] = maxRecovered
	}
	config := map[string]any{
		"http_server": map[string]any{"address": "127.0.0.1", "port": port},
		"log":         map[string]any{"level": "error"},
		"engine":      map[string]any{"type": "redis", "redis": map[string]any{"address": redis}},
		"client":      client,
		"http_api":    map[string]any{"insecure": true},
		"channel": map[string]any{"without_namespace": map[string]any{
			"allow_subscribe_for_client": true, "history_size": maxHistory, "history_ttl": "1h", "force_recovery": true,
		}},
		"health":      map[string]any{"enabled": true},
		"debug":       map[string]any{"enabled": true},
		"usage_stats": map[string]any{"disabled": true},
	}
	if o.Tuned {
		config["websocket"] = map[string]any{"use_write_buffer_pool": true, "read_buffer_size": 256, "write_buffer_size": 512}
	}
	return config
}

// maxHistory is how many events of a run may be recovered, and maxRecovered how many bytes: more than any row publishes.
const (
	maxHistory   = 1_000_000
	maxRecovered = 1 << 30
)

func (c *centrifugo) start(ctx context.Context, s Setting, i int) error {
	port, err := process.FreePort(ctx)
	if err != nil {
		return err
	}
	config, err := json.Marshal(configOf(c.options, port, s.Redis.url()))
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	file := filepath.Join(s.Dir, "centrifugo-"+strconv.Itoa(i)+".json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	p, err := process.Start(ctx, s.Log, c.options.Program, "--config", file)
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
	url := "ws://" + c.hosts[i%len(c.hosts)] + "/connection/websocket"
	ping, pong, subscribe := []byte("{}"), ws.NewTextFrame, c.subscribe // its pings are empty messages, which are answered alike
	if c.options.Protobuf {
		url += "?cf_protocol=protobuf"
		ping, pong, subscribe = []byte{0}, ws.NewBinaryFrame, c.subscribeBinary
	}
	s, err := dialSocket(ctx, url)
	if err != nil {
		return nil, err
	}
	s.ping = ping
	if s.answer, err = ws.CompileFrame(ws.MaskFrame(pong(bytes.Clone(ping)))); err == nil {
		err = subscribe(s, runName(run))
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
	if !c.options.RecoverAll {
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
