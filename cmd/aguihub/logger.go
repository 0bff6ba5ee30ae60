package main

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLogger writes to w, one line an entry.
func newLogger(level, format string, w io.Writer) (*zap.Logger, error) {
	lvl, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("log level: %w", err)
	}
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	config.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder
	if format == "text" {
		encoder = zapcore.NewConsoleEncoder
		config.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		config.EncodeLevel = zapcore.CapitalLevelEncoder
		config.ConsoleSeparator = "  "
	}
	core := zapcore.NewCore(encoder(config), zapcore.Lock(zapcore.AddSync(w)), lvl)
	// A dependency that is away is tried for hours: the same line is written a few times, then now and then.
	return zap.New(zapcore.NewSamplerWithOptions(core, time.Minute, 10, 100)), nil
}

// serverLog is where an HTTP server says what it tells nobody else, above all that a handler has panicked. Handshakes that fail
// are anybody's to make: at level debug.
type serverLog struct{ logger *zap.Logger }

// Write implements io.Writer; each call is a message, which is the caller's again when it returns.
func (l serverLog) Write(message []byte) (int, error) {
	level := zapcore.WarnLevel
	switch {
	case bytes.HasPrefix(message, []byte("http: panic")):
		level = zapcore.ErrorLevel
	case bytes.HasPrefix(message, []byte("http: TLS handshake error")):
		level = zapcore.DebugLevel
	}
	l.logger.Log(level, "HTTP server", zap.String("said", string(bytes.TrimSpace(message))))
	return len(message), nil
}
