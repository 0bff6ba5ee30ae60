package backfill_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/stream"
)

// The rule: a run that an agent began with a plain XADD is announced within a sweep, to lists and to its thread, once.
func TestARunThatNobodyAnnouncedIsFoundByTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		memory, err := stream.NewMemory(stream.Config{})
		if err != nil {
			t.Fatal(err)
		}
		tail := memory.NewTail(stream.TailConfig{})
		registry := memory.NewRegistry(tail)
		service := backfill.New(ctx, benchLog{memory, tail}, registry, stream.ID{}, backfill.Config{}, zap.NewNop())
		ended := make(chan error, 2)
		go func() { ended <- tail.Run(ctx) }()
		go func() { ended <- service.Discover(ctx, memory) }()
		defer func() {
			service.Close()
			cancel()
			for range 2 {
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		}()
		memory.SetWrongType("bad")
		if _, err := memory.Append(ctx, "r1", stream.Record{Event: []byte(`{"type":"RUN_STARTED","threadId":"t1","runId":"r1"}`)}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(6 * time.Second) // the bubble's time: a sweep each
			synctest.Wait()
		}
		runs, err := registry.Thread(ctx, "t1", 10)
		if err != nil || len(runs) != 1 || runs[0].Run != "r1" {
			t.Fatalf("thread: %v, %v", runs, err)
		}
		events, _, err := registry.List(ctx, stream.ID{}, 10)
		if err != nil || len(events) != 1 || events[0].Thread != "t1" || events[0].State != stream.RunStarted {
			t.Fatalf("registry: %v, %v", events, err)
		}
		// Redis forgets it, and the agent begins anew under its id.
		if err := memory.Erase(ctx, "r1", "t1", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		if _, err := memory.Append(ctx, "r1", stream.Record{Event: []byte(`{"type":"RUN_STARTED","threadId":"t1","runId":"r1"}`)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(12 * time.Second)
		if runs, err = registry.Thread(ctx, "t1", 10); err != nil || len(runs) != 1 || runs[0].Run != "r1" {
			t.Fatalf("thread after the loss: %v, %v", runs, err)
		}
	})
}
