// Package transporttest builds a hub in memory for the tests of the wires.
package transporttest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

// Hub is a service over a log in memory.
type Hub struct {
	Log      *stream.Memory
	Registry *stream.Registry
	Service  *backfill.Service
	Logger   *zap.Logger
	Mux      *http.ServeMux    // what is mounted here stands behind a guard in Handler
	Access   *transport.Access // who is asked for what in Handler; nil asks nobody
}

// tailed is the log with its tail, as backfill wants it.
type tailed struct {
	*stream.Memory
	*stream.Tail
}

// New returns a hub that ends with the test.
func New(tb testing.TB, config backfill.Config) *Hub {
	tb.Helper()
	log, err := stream.NewMemory(stream.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context())) // the test's own ends before its cleanups
	tail := log.NewTail(stream.TailConfig{})
	var running sync.WaitGroup
	running.Go(func() {
		if err := tail.Run(ctx); !errors.Is(err, context.Canceled) {
			tb.Errorf("tail: %v", err)
		}
	})
	h := &Hub{Log: log, Registry: log.NewRegistry(tail), Logger: zap.NewNop(), Mux: http.NewServeMux()}
	config.Name = "test"
	h.Service = backfill.New(ctx, tailed{log, tail}, h.Registry, stream.ID{}, config, h.Logger)
	tb.Cleanup(func() {
		h.Service.Close()
		cancel()
		running.Wait()
	})
	return h
}

// Handler is what the hub would listen with.
func (h *Hub) Handler(tb testing.TB) http.Handler {
	tb.Helper()
	guard, err := transport.NewGuard(nil, nil, h.Logger)
	if err != nil {
		tb.Fatal(err)
	}
	access := h.Access
	if access == nil {
		access = transport.NewAccess(transport.AccessConfig{}, h.Logger)
	}
	return transport.NewHandler(guard, access, transport.Routes(h.Mux, h.Logger))
}

// Append appends events to a run and returns the cursor of the last one.
func (h *Hub) Append(tb testing.TB, run string, events ...string) string {
	tb.Helper()
	recs := make([]stream.Record, len(events))
	for i, e := range events {
		recs[i].Event = []byte(e)
	}
	return h.append(tb, run, recs)
}

// Begin appends a RUN_STARTED with an input whose only message is the user's, of id "u-" and the run, and announces it.
// It starts later than all runs before by at least a millisecond, which tells which run of a thread came first.
func (h *Hub) Begin(tb testing.TB, run, thread string) string {
	tb.Helper()
	time.Sleep(time.Millisecond)
	input := fmt.Sprintf(`{"threadId":%q,"runId":%q,"state":{},"messages":[{"id":%q,"role":"user","content":"hello"}],`+
		`"tools":[],"context":[],"forwardedProps":{}}`, thread, run, "u-"+run)
	cursor := h.append(tb, run, []stream.Record{{Event: []byte(Started(run, thread)), Input: []byte(input)}})
	info := stream.RunInfo{Run: stream.RunID(run), Thread: stream.ThreadID(thread), State: stream.RunStarted}
	if err := h.Registry.Announce(tb.Context(), info); err != nil {
		tb.Fatal(err)
	}
	return cursor
}

func (h *Hub) append(tb testing.TB, run string, recs []stream.Record) string {
	tb.Helper()
	id, err := stream.ParseRunID(run)
	if err != nil {
		tb.Fatal(err)
	}
	ids, err := h.Log.Append(tb.Context(), id, recs...)
	if err != nil {
		tb.Fatal(err)
	}
	return stream.Cursor{Entry: ids[len(ids)-1], Sum: stream.Checksum(recs[len(recs)-1].Event)}.String()
}

// Started is a run's RUN_STARTED.
func Started(run, thread string) string {
	return fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, thread, run)
}

// Finished is a run's RUN_FINISHED.
func Finished(run, thread string) string {
	return fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, thread, run)
}

// Events of a text message m.
const (
	TextStart = `{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`
	TextEnd   = `{"type":"TEXT_MESSAGE_END","messageId":"m"}`
)

// Text is a piece of the text message m.
func Text(delta string) string {
	return fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":%q}`, delta)
}
