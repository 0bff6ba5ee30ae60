package transport

import (
	"fmt"
	"mime"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"go.uber.org/zap"
)

// Guard keeps foreign web pages out: a browser lets any page send requests to a hub on the same machine, and a name that
// is rebound to 127.0.0.1 makes them same-origin. docs/contract.md, section 3.
//   - Host must be loopback or one of the allowed hosts.
//   - Origin, where there is one, must be the same origin, a loopback origin or one of the allowed origins.
//   - A request that a browser says comes from another site, and that may change something, needs an Origin or the
//     content type application/json, which a page can't send without asking first.
//
// Requests of programs, which send no Origin, pass. Its methods may be called by anyone at once.
type Guard struct {
	hosts   []string
	origins []origin
	logger  *zap.Logger
}

// NewGuard returns a guard. allowHosts are host names, with a port where only that one is meant; allowOrigins are
// origins as browsers send them, scheme://host[:port]. Loopback ones needn't be named.
func NewGuard(allowHosts, allowOrigins []string, logger *zap.Logger) (*Guard, error) {
	g := &Guard{logger: logger}
	for _, h := range allowHosts {
		if _, _, ok := splitHost(strings.ToLower(h)); !ok {
			return nil, fmt.Errorf("transport: %q is no host name", h)
		}
		g.hosts = append(g.hosts, strings.ToLower(h))
	}
	for _, text := range allowOrigins {
		o, ok := parseOrigin(text)
		if !ok {
			return nil, fmt.Errorf("transport: %q is no origin such as https://app.example.com", text)
		}
		g.origins = append(g.origins, o)
	}
	return g, nil
}

// Wrap returns next behind the guard. It answers the preflights of allowed origins itself and lets their pages read
// the answers.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Vary", "Origin")
		h.Set("X-Content-Type-Options", "nosniff")
		if err := g.Check(r); err != nil {
			WriteProblem(w, g.logger, err)
			return
		}
		if from := r.Header.Get("Origin"); from != "" {
			h.Set("Access-Control-Allow-Origin", from)
			h.Set("Access-Control-Expose-Headers", "Retry-After, Allow")
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				preflight(h, r)
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// preflight says what pages of an allowed origin may send: what there is to send, and any header field.
func preflight(h http.Header, r *http.Request) {
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	h.Set("Access-Control-Max-Age", "600") // what Chromium takes at most is two hours; a config change is seen sooner
}

// Errors of Check, which tell what is wrong without repeating what was sent.
var (
	errHost = &Error{
		Status: http.StatusForbidden, Code: "host_not_allowed", Close: CloseForbidden,
		Message: "the Host header names neither this machine nor a host that --allow-host names",
	}
	errOrigin = &Error{
		Status: http.StatusForbidden, Code: "origin_not_allowed", Close: CloseForbidden,
		Message: "pages of this origin may not use the hub: see --allow-origin",
	}
)

// Check says whether a request may pass; the error is an *Error.
func (g *Guard) Check(r *http.Request) error {
	host, port, ok := splitHost(strings.ToLower(r.Host))
	if !ok || !loopback(host) && !g.allowsHost(host, port) {
		return errHost
	}
	origins := r.Header.Values("Origin")
	switch len(origins) {
	case 0:
		return checkSite(r)
	case 1:
	default:
		return errOrigin
	}
	o, ok := parseOrigin(origins[0])
	if !ok {
		return errOrigin // "null" too
	}
	web := o.scheme == "http" || o.scheme == "https"
	switch {
	case web && loopback(o.host):
	case web && o == originOf(o.scheme, host, port):
	case slices.Contains(g.origins, o):
	default:
		return errOrigin
	}
	return nil
}

// checkSite looks at a request without an Origin. Some browsers leave it out where a form is sent, but say that another
// site does it.
func checkSite(r *http.Request) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return nil
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && kind == "application/json" {
		return nil
	}
	return errOrigin
}

func (g *Guard) allowsHost(host, port string) bool {
	return slices.Contains(g.hosts, host) || port != "" && slices.Contains(g.hosts, joinHost(host, port))
}

// joinHost is the text that splitHost took apart.
func joinHost(host, port string) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == "" {
		return host
	}
	return host + ":" + port
}

// splitHost takes a Host header apart, in lower case. The host is without brackets and without the root's dot.
func splitHost(s string) (host, port string, ok bool) {
	if rest, found := strings.CutPrefix(s, "["); found {
		host, rest, found = strings.Cut(rest, "]")
		if addr, err := netip.ParseAddr(host); !found || err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", "", false
		}
		if rest != "" {
			port, found = strings.CutPrefix(rest, ":")
			if !found || !digits(port) {
				return "", "", false
			}
		}
		return host, port, true
	}
	host, port, found := strings.Cut(s, ":")
	if found && !digits(port) {
		return "", "", false
	}
	host = strings.TrimSuffix(host, ".")
	if host == "" || strings.ContainsAny(host, "/@?#\\ \t") {
		return "", "", false
	}
	return host, port, true
}

func digits(s string) bool {
	return s != "" && len(s) <= 5 && strings.Trim(s, "0123456789") == ""
}

// loopback says whether a host in lower case is this machine whatever DNS says.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// origin is a web origin: RFC 6454, with the port that is meant where none is named.
type origin struct{ scheme, host, port string }

func originOf(scheme, host, port string) origin {
	if port == "" {
		switch scheme {
		case "http":
			port = "80"
		case "https":
			port = "443"
		}
	}
	return origin{scheme, host, port}
}

func parseOrigin(s string) (origin, bool) {
	scheme, rest, found := strings.Cut(strings.ToLower(s), "://")
	if !found || scheme == "" {
		return origin{}, false
	}
	host, port, ok := splitHost(rest)
	plain := strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz0123456789+-.") == "" && !strings.Contains(host, "*")
	return originOf(scheme, host, port), ok && plain
}
