package transport

import (
	"errors"
	"net/http"
	"time"
)

// Writer writes the body of an answer in pieces that each must get through within a timeout, so that a slow but steady
// reader gets all of it and a stuck one is cut. Done must be called when the answer is written. It is for one goroutine.
type Writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

// pieceBytes is the most that must get through within the timeout.
const pieceBytes = 32 << 10

// NewWriter returns a writer of w's body.
func NewWriter(w http.ResponseWriter, timeout time.Duration) *Writer {
	return &Writer{w: w, control: http.NewResponseController(w), timeout: timeout}
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if err := w.deadline(time.Now().Add(w.timeout)); err != nil {
			return n, err
		}
		m, err := w.w.Write(p[n:min(len(p), n+pieceBytes)])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Flush hands what was written to the network.
func (w *Writer) Flush() error {
	if err := w.deadline(time.Now().Add(w.timeout)); err != nil {
		return err
	}
	if err := w.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// Done flushes and lets the connection serve another request: net/http doesn't take a deadline back.
func (w *Writer) Done() error {
	if err := w.Flush(); err != nil {
		return err
	}
	return w.deadline(time.Time{})
}

func (w *Writer) deadline(t time.Time) error {
	if err := w.control.SetWriteDeadline(t); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
