package stream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// Security is how a log's connections are secured beyond what the URL says. The zero value adds nothing.
type Security struct {
	// CAFile holds the certificates, in PEM, that a server's must descend from instead of the system's.
	CAFile string
	// CertFile and KeyFile are the certificate, in PEM, that this client shows. They are read at each handshake.
	CertFile, KeyFile string
	// CredentialsFile holds the password, or on two lines the user and the password, in place of the URL's. It is read for
	// each new connection, and connections are made anew after five minutes (conn_max_lifetime in the URL): so none
	// outlives a token of more than that, where the file has the newest.
	CredentialsFile string
}

// tls returns what connections shake hands with; base is what the URL asks for, nil where it asks for none.
func (s *Security) tls(base *tls.Config) (*tls.Config, error) {
	if s.CAFile == "" && s.CertFile == "" {
		return base, nil
	}
	if base == nil {
		return nil, fmt.Errorf("%w: certificates are of use with rediss URLs only", ErrBadURL)
	}
	config := base.Clone()
	if s.CAFile != "" {
		pem, err := os.ReadFile(s.CAFile)
		if err != nil {
			return nil, fmt.Errorf("stream: CA: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("stream: CA: %s has no certificate in PEM", s.CAFile)
		}
	}
	if s.CertFile != "" {
		load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("stream: client certificate: %w", err)
			}
			return &cert, nil
		}
		if _, err := load(nil); err != nil {
			return nil, err
		}
		config.GetClientCertificate = load
	}
	return config, nil
}

// provider returns where connections get their user and password from; nil where that is the URL.
func (s *Security) provider(urlUser string) (*credentials, error) {
	if s.CredentialsFile == "" {
		return nil, nil
	}
	c := &credentials{file: s.CredentialsFile, user: urlUser}
	if err := c.reread(); err != nil {
		return nil, err
	}
	return c, nil
}

// defaultMaxAge is how long a connection lives that has its credentials from a file. Tokens of managed servers live for a
// quarter of an hour or longer.
const defaultMaxAge = 5 * time.Minute

// maxAge is how long connections live: what the URL says, else the default.
func maxAge(inURL time.Duration) time.Duration {
	if inURL > 0 {
		return inURL
	}
	return defaultMaxAge
}

// credentials hands out what stands in a file. It may be used by anyone at once.
type credentials struct {
	file, user string // static

	mu       sync.Mutex
	username string // as read last
	password string
	err      error // of the last reading
}

// get returns user and password for a new connection. A file that can't be read now leaves what was read last.
func (c *credentials) get(context.Context) (user, password string, err error) {
	_ = c.reread()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.username, c.password, nil
}

// reread reads the file.
func (c *credentials) reread() error {
	user, password, err := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err = err; err == nil {
		c.username, c.password = user, password
	}
	return err
}

func (c *credentials) read() (user, password string, err error) {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return "", "", fmt.Errorf("stream: credentials: %w", err)
	}
	user, password = c.user, strings.TrimRight(string(text), "\r\n")
	if first, second, two := strings.Cut(password, "\n"); two {
		user, password = strings.TrimRight(first, "\r"), second
	}
	if password == "" || strings.ContainsAny(password, "\r\n") {
		return "", "", errors.New("stream: credentials: the file must hold a password, or a user and a password on two lines")
	}
	return user, password, nil
}

// CredentialsErr says why the file of [Security] could last not be read, nil where it could or there is none; what was read
// before it stays in use.
func (l *Redis) CredentialsErr() error {
	c := l.dialer.credentials
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
