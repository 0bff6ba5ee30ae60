package main

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
)

// certificates is what the hub shows to its clients, out of two files that may change while it runs: whoever renews
// certificates replaces files. Its methods may be called by any number of goroutines at once.
type certificates struct {
	certFile, keyFile string
	logger            *zap.Logger

	mu      sync.Mutex
	current *tls.Certificate
	stamp   [2]time.Time // when the files were changed last, as of current
	looked  time.Time
}

// lookEvery is how often the files are looked at, at most: once a handshake would be anybody's to ask for.
const lookEvery = time.Second

// openTLS is the configuration for --tls-cert and --tls-key; nil without them. HTTP/2 is offered, too: browsers open
// WebSockets over HTTP/1.1 beside it.
func (c *serveCommand) openTLS(logger *zap.Logger) (*tls.Config, error) {
	if c.TLSCert == "" {
		return nil, nil
	}
	certs := &certificates{certFile: c.TLSCert, keyFile: c.TLSKey, logger: logger}
	if err := certs.read(); err != nil {
		return nil, usagef("--tls-cert, --tls-key: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return certs.get(), nil
		},
	}, nil
}

// read reads both files. The caller holds mu, or nobody else knows of c.
func (c *certificates) read() error {
	stamp, err := c.changed()
	if err != nil {
		return err
	}
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.current, c.stamp = &cert, stamp
	return nil
}

// changed is when the files were.
func (c *certificates) changed() (stamp [2]time.Time, err error) {
	for i, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return stamp, fmt.Errorf("look at the file: %w", err)
		}
		stamp[i] = info.ModTime()
	}
	return stamp, nil
}

// get is the certificate as the files have it. Where they can't be read, or one was replaced and the other not yet, the
// one before holds.
func (c *certificates) get() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < lookEvery {
		return c.current
	}
	c.looked = time.Now()
	stamp, err := c.changed()
	if err == nil && stamp != c.stamp {
		if err = c.read(); err == nil {
			c.logger.Info("certificate was read again")
		}
	}
	if err != nil {
		c.logger.Warn("--tls-cert, --tls-key can't be read: the certificate before holds", zap.Error(err))
	}
	return c.current
}
