// Package audit records who did what: one JSON line for each decision and each action, never a payload or a token. A
// leaf. docs/security.md lists the fields.
package audit

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Record is one line.
type Record struct {
	Time    string `json:"time"`    // RFC 3339, with milliseconds; filled in by Write
	Action  string `json:"action"`  // attach, publish, read, cancel, delete, call, ticket, token
	Outcome string `json:"outcome"` // allow or deny
	Code    string `json:"code,omitempty"`
	Subject string `json:"subject,omitempty"`
	Tenant  string `json:"tenant,omitempty"`
	Run     string `json:"run,omitempty"`
	Thread  string `json:"thread,omitempty"`
	Address string `json:"address,omitempty"`
}

// Outcomes.
const (
	Allow = "allow"
	Deny  = "deny"
)

// Log takes records. A nil Log takes none. Its methods may be called by anyone at once.
type Log struct {
	mu     sync.Mutex
	w      io.Writer
	close  func() error
	failed atomic.Int64
}

// Open appends to a file, or writes to standard output for "-".
func Open(path string) (*Log, error) {
	if path == "-" {
		return New(os.Stdout), nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	return &Log{w: f, close: f.Close}, nil
}

// New writes to w.
func New(w io.Writer) *Log { return &Log{w: w} }

// Write writes one line. A record that can't be written is counted, and the action isn't held up.
func (l *Log) Write(r Record) {
	if l == nil {
		return
	}
	r.Time = time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00")
	line, err := json.Marshal(r)
	if err != nil {
		l.failed.Add(1)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.w.Write(append(line, '\n')); err != nil {
		l.failed.Add(1)
	}
}

// Failed is how many records couldn't be written.
func (l *Log) Failed() int64 {
	if l == nil {
		return 0
	}
	return l.failed.Load()
}

// Close closes the file.
func (l *Log) Close() error {
	if l == nil || l.close == nil {
		return nil
	}
	return l.close()
}
