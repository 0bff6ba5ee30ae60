package publish_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aguihub/aguihub/publish"
	"github.com/aguihub/aguihub/stream"
)

func TestAFailedWrite(t *testing.T) {
	event := []byte(`{"type":"CUSTOM","name":"n","value":1}`)
	for name, c := range map[string]struct {
		keep      bool
		cause     error
		uncertain int
		unwritten int
		entries   int
	}{
		"leaves open what became of an append whose answer never came": {false, stream.ErrUnavailable, 3, 0, 1},
		"leaves it open though the append was done":                    {true, stream.ErrUnavailable, 3, 0, 4},
		"knows that nothing was written where Redis is full":           {false, stream.ErrFull, 0, 3, 1},
		"knows that nothing was written where another has taken over":  {false, stream.ErrFenced, 0, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				run := open(t, w, start)
				calls := 0
				w.fails(func([]stream.Record) (bool, error) { calls++; return c.keep, c.cause })
				ok(t, run.Append(t.Context(), event, event, event))
				began := time.Now()
				err := run.Flush(t.Context())
				bad, is := errors.AsType[*publish.WriteError](err)
				if !is || bad.Written != 1 || bad.Uncertain != c.uncertain || bad.Unwritten != c.unwritten || bad.LastID.IsZero() || !errors.Is(err, c.cause) {
					t.Fatalf("got %+v", err)
				}
				if tries := c.uncertain > 0; tries != (calls > 1) || time.Since(began) > publish.DefaultWriteTimeout {
					t.Fatalf("%d calls in %v", calls, time.Since(began))
				}
				w.fails(nil)
				for what, err := range map[string]error{
					"Append": run.Append(t.Context(), event), "Flush": run.Flush(t.Context()),
					"Finish": run.Finish(t.Context(), publish.End{}), "Close": run.Close(t.Context()),
				} {
					if _, is := errors.AsType[*publish.WriteError](err); !is {
						t.Errorf("%s afterwards: %v", what, err)
					}
				}
				if !errors.Is(context.Cause(run.Context()), c.cause) {
					t.Errorf("the context ended with %v", context.Cause(run.Context()))
				}
				if n := len(entries(t, w, "r1")); n != c.entries {
					t.Fatalf("%d entries", n)
				}
			})
		})
	}
	t.Run("is none where the answer comes in the end, and nothing is there twice", func(t *testing.T) {
		for _, kept := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				run := open(t, w, start)
				left := 5
				w.fails(func([]stream.Record) (bool, error) {
					if left--; left >= 0 {
						return kept, stream.ErrUnavailable
					}
					return true, nil
				})
				ok(t, run.Append(t.Context(), event, event))
				ok(t, run.Finish(t.Context(), publish.End{}))
				wantText(t, types(t, w, "r1"), "RUN_STARTED CUSTOM CUSTOM RUN_FINISHED")
				if n, last := run.Written(); n != 4 || last != entries(t, w, "r1")[3].ID {
					t.Fatalf("Written is %d, %v", n, last)
				}
				ok(t, run.Close(t.Context()))
			})
		}
	})
	t.Run("is told to who comes next where it happened in the background", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			run := open(t, w, start)
			w.SetFault(stream.ErrUnavailable)
			ok(t, run.Append(t.Context(), event))
			time.Sleep(publish.DefaultWriteTimeout + publish.MaxWindow) // the bubble's time
			synctest.Wait()
			w.SetFault(nil)
			if err := run.Append(t.Context(), event); !errors.Is(err, stream.ErrUnavailable) {
				t.Fatal(err)
			}
		})
	})
	t.Run("doesn't happen for a caller that has left", func(t *testing.T) {
		w := newWorld(t)
		run := open(t, w, start)
		ctx, cancel := context.WithCancel(t.Context())
		ok(t, run.Append(ctx, event))
		cancel()
		if err := run.Append(ctx, event); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		ok(t, run.Close(t.Context()))
		wantText(t, types(t, w, "r1"), "RUN_STARTED CUSTOM RUN_ERROR")
	})
}

func TestARegistryThatIsAway(t *testing.T) {
	t.Run("at the start leaves the log empty", func(t *testing.T) {
		w := newWorld(t)
		w.away(stream.ErrUnavailable)
		_, err := publisher(t, w, publish.Config{}).Open(t.Context(), start)
		if bad, is := errors.AsType[*publish.WriteError](err); !is || bad.Unwritten != 1 || bad.Uncertain != 0 {
			t.Fatal(err)
		}
		if len(entries(t, w, "r1")) != 0 {
			t.Fatal("it wrote")
		}
	})
	t.Run("at the end is tried again by Flush", func(t *testing.T) {
		w := newWorld(t)
		run := open(t, w, start)
		w.away(stream.ErrUnavailable)
		if err := run.Finish(t.Context(), publish.End{}); !errors.Is(err, stream.ErrUnavailable) {
			t.Fatal(err)
		}
		w.away(nil)
		ok(t, run.Close(t.Context()))
		wantText(t, types(t, w, "r1"), "RUN_STARTED RUN_FINISHED")
		wantText(t, states(t, w), "started@t1 finished@t1")
	})
}
