package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// Agent is one agent that may be called.
type Agent struct {
	// Name is 1 to 64 of the characters a–z, A–Z, 0–9, dot, underscore and hyphen, the first one a letter or digit.
	Name string
	// URL is where a RunAgentInput is posted to, http or https. Nobody learns it from the hub.
	URL string
	// Header is sent with every call, secrets too.
	Header http.Header
	// Pass are the header fields of a caller's request that go on to the agent. Nil means DefaultPass.
	Pass []string
	// Limits bound a call.
	Limits Limits
}

// Limits bound the times of one call. Zero values mean the defaults; a negative one means none.
type Limits struct {
	Connect   time.Duration // until there is a connection; 0 is 10 s
	FirstByte time.Duration // until the answer's header is there, the connection included; 0 is 2 min, since some agents think first
	Silence   time.Duration // between two pieces of the answer; 0 is 5 min: models reason and tools run for minutes
	Total     time.Duration // of the whole; 0 is 2 h
}

// DefaultPass are the fields of the W3C's trace context: they say nothing of who calls.
var DefaultPass = []string{"Traceparent", "Tracestate"}

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&l.Connect, 10 * time.Second}, {&l.FirstByte, 2 * time.Minute}, {&l.Silence, 5 * time.Minute}, {&l.Total, 2 * time.Hour},
	} {
		switch {
		case *d.field == 0:
			*d.field = d.value
		case *d.field < 0:
			*d.field = never
		}
	}
	return l
}

// never is longer than any process lives.
const never = 100 * 365 * 24 * time.Hour

// withDefaults returns the agent as it is used, or what is wrong with it.
func (a Agent) withDefaults() (Agent, error) {
	if !validName(a.Name) {
		return a, fmt.Errorf("bridge: %q is no name for an agent: letters, digits, dot, underscore and hyphen, at most 64", a.Name)
	}
	u, err := url.Parse(a.URL)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return a, fmt.Errorf("bridge: agent %s: its address must be an http or https URL", a.Name)
	case u.User != nil:
		return a, fmt.Errorf("bridge: agent %s: a user or password belongs into a header, not into the URL", a.Name)
	case u.Fragment != "":
		return a, fmt.Errorf("bridge: agent %s: the URL has a fragment, which is never sent", a.Name)
	}
	header := http.Header{}
	for name, values := range a.Header {
		if err := checkField(name); err != nil {
			return a, fmt.Errorf("bridge: agent %s: %w", a.Name, err)
		}
		for _, v := range values {
			if strings.ContainsAny(v, "\r\n\x00") {
				return a, fmt.Errorf("bridge: agent %s: the header %s has a line break", a.Name, name)
			}
			header.Add(name, v)
		}
	}
	a.Header = header
	if a.Pass == nil {
		a.Pass = DefaultPass
	}
	pass := make([]string, 0, len(a.Pass))
	for _, name := range a.Pass {
		if err := checkField(name); err != nil {
			return a, fmt.Errorf("bridge: agent %s: %w", a.Name, err)
		}
		pass = append(pass, textproto.CanonicalMIMEHeaderKey(name))
	}
	a.Pass = pass
	a.Limits = a.Limits.withDefaults()
	return a, nil
}

func validName(name string) bool {
	const alnum = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return name != "" && len(name) <= 64 && strings.Trim(name, alnum+"._-") == "" && strings.Contains(alnum, name[:1])
}

// ours are the fields that the bridge or HTTP itself decides.
var ours = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host",
	"Keep-Alive", "Origin", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// checkField says why a header field can't be set or passed on.
func checkField(name string) error {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if name == "" || strings.Trim(name, token) != "" {
		return fmt.Errorf("%q is no name of a header field", name)
	}
	if slices.Contains(ours, textproto.CanonicalMIMEHeaderKey(name)) {
		return fmt.Errorf("the header field %s isn't for the configuration", name)
	}
	return nil
}

// ParseAgent reads name=URL.
func ParseAgent(text string) (Agent, error) {
	name, address, found := strings.Cut(text, "=")
	if !found {
		return Agent{}, errors.New("expected name=URL, such as support=https://agents.example.com/support")
	}
	return Agent{Name: name, URL: address}.withDefaults()
}

// fileAgent is an agent in a file of agents.
type fileAgent struct {
	Name     string                `json:"name"`
	URL      string                `json:"url"`
	Headers  map[string]string     `json:"headers"`
	Secrets  map[string]fileSecret `json:"secretHeaders"`
	Pass     []string              `json:"passHeaders"`
	Timeouts struct {
		Connect   fileDuration `json:"connect"`
		FirstByte fileDuration `json:"firstByte"`
		Silence   fileDuration `json:"silence"`
		Total     fileDuration `json:"total"`
	} `json:"timeouts"`
}

// fileSecret says where a header's value is.
type fileSecret struct {
	Env    string `json:"env"`
	File   string `json:"file"`
	Prefix string `json:"prefix"` // stands before it, such as "Bearer "
}

// fileDuration is a time as Go writes it: 90s, 5m, 1h30m; off for none.
type fileDuration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *fileDuration) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		*d = -1
		return nil
	}
	v, err := time.ParseDuration(string(text))
	if err != nil || v <= 0 {
		return fmt.Errorf("%q is no time: write 90s, 5m or 1h, or off", text)
	}
	*d = fileDuration(v)
	return nil
}

// ReadAgents reads a file of agents: docs/cli.md. Secrets are read now. No error repeats one.
func ReadAgents(r io.Reader) ([]Agent, error) {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	var file struct {
		Agents []fileAgent `json:"agents"`
	}
	if err := dec.Decode(&file); err != nil {
		return nil, fmt.Errorf("agents file: %w", err)
	}
	if dec.More() {
		return nil, errors.New("agents file: something follows the object")
	}
	agents := make([]Agent, 0, len(file.Agents))
	for _, f := range file.Agents {
		a := Agent{Name: f.Name, URL: f.URL, Header: http.Header{}, Pass: f.Pass, Limits: Limits{
			Connect: time.Duration(f.Timeouts.Connect), FirstByte: time.Duration(f.Timeouts.FirstByte),
			Silence: time.Duration(f.Timeouts.Silence), Total: time.Duration(f.Timeouts.Total),
		}}
		for name, value := range f.Headers {
			a.Header.Set(name, value)
		}
		for name, secret := range f.Secrets {
			value, err := secret.read()
			if err != nil {
				return nil, fmt.Errorf("agents file: agent %s: header %s: %w", f.Name, name, err)
			}
			a.Header.Set(name, value)
		}
		a, err := a.withDefaults()
		if err != nil {
			return nil, fmt.Errorf("agents file: %w", err)
		}
		agents = append(agents, a)
	}
	return agents, nil
}

func (s fileSecret) read() (string, error) {
	switch {
	case (s.Env == "") == (s.File == ""):
		return "", errors.New("give either env or file")
	case s.Env != "":
		value, found := os.LookupEnv(s.Env)
		if !found {
			return "", fmt.Errorf("the environment has no %s", s.Env)
		}
		return s.Prefix + value, nil
	default:
		value, err := os.ReadFile(s.File)
		if err != nil {
			return "", fmt.Errorf("secret: %w", err)
		}
		return s.Prefix + strings.TrimRight(string(value), "\r\n"), nil
	}
}
