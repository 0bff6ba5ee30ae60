package stream_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
)

// overServers runs a test on the embedded server and on a real one.
func overServers(t *testing.T, f func(t *testing.T, log *stream.Redis, addr string)) {
	t.Helper()
	for name, start := range map[string]func(*testing.T) (string, func(func())){"embedded": startEmbedded, "redis": startServer} {
		t.Run(name, func(t *testing.T) {
			addr, _ := start(t)
			f(t, connect(t, "redis://"+addr), addr)
		})
	}
}

func TestOfCheckpointsTheNewestIsKept(t *testing.T) {
	overServers(t, func(t *testing.T, log *stream.Redis, addr string) {
		ctx, run := t.Context(), stream.RunID("r1")
		at := func(id stream.ID, data string) stream.Checkpoint {
			return stream.Checkpoint{At: id, Sum: 0xfedcba98, Meta: []byte("{}"), Data: []byte(data)}
		}
		put := func(c stream.Checkpoint, want bool) {
			t.Helper()
			if got, _, err := log.PutCheckpoint(ctx, run, c, true, 0); got != want || err != nil {
				t.Fatalf("put %s at %s: %v, %v", c.Data, c.At, got, err)
			}
		}
		has := func(want string) {
			t.Helper()
			c, ok, unknown, err := log.Checkpoint(ctx, run)
			if err != nil || unknown || ok != (want != "") || string(c.Data) != want {
				t.Fatalf("%+v %v %v %v, want %q", c, ok, unknown, err, want)
			}
		}
		has("")
		put(at(stream.ID{Ms: 1}, "of no stream"), false)
		ids, err := log.Append(ctx, run, stream.Record{Event: []byte("{}")}, stream.Record{Event: []byte("{}")}, stream.Record{Event: []byte("{}")})
		if err != nil {
			t.Fatal(err)
		}
		put(at(ids[1], "second\x00\xff"), true)
		put(at(ids[0], "first"), false)
		put(at(ids[1], "second again"), false)
		put(at(ids[2].Next(), "ahead of the stream"), false)
		has("second\x00\xff")
		put(at(ids[2], "third"), true)
		has("third")
		if c, _, _, _ := log.Checkpoint(ctx, run); cmp.Diff(c, at(ids[2], "third")) != "" {
			t.Error(cmp.Diff(c, at(ids[2], "third")))
		}
		client := streamtest.Client(t, addr)
		key := log.Keys().Aux(run, "checkpoint")
		// One that is ahead of the stream is of another generation.
		if err := client.HSet(ctx, key, "at", "99999999999999-0").Err(); err != nil {
			t.Fatal(err)
		}
		put(at(ids[0], "of this generation"), true)
		has("of this generation")
		if err := client.HSet(ctx, key, "v", "2").Err(); err != nil {
			t.Fatal(err)
		}
		if _, ok, unknown, err := log.Checkpoint(ctx, run); ok || !unknown || err != nil {
			t.Error("another version", ok, unknown, err)
		}
		put(at(ids[0], "over another version"), true)
		if err := client.Del(ctx, key).Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.Set(ctx, key, "text", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if _, ok, unknown, err := log.Checkpoint(ctx, run); ok || !unknown || err != nil {
			t.Error("another type", ok, unknown, err)
		}
		put(at(ids[0], "over another type"), true)
	})
}

func TestAThreadKeepsWhatTheRunThatStartedLastHasLeft(t *testing.T) {
	overServers(t, func(t *testing.T, log *stream.Redis, addr string) {
		ctx, key := t.Context(), log.Keys().ThreadAux("t1", "conversation")
		leave := func(run stream.RunID, start uint64, data string) {
			t.Helper()
			left := stream.Left{Run: run, Start: stream.ID{Ms: start}, End: stream.ID{Ms: 50}, At: stream.Cursor{Entry: stream.ID{Ms: 50}}, Data: []byte(data)}
			if err := log.Leave(ctx, "t1", left, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		has := func(want string) {
			t.Helper()
			left, ok, err := log.Left(ctx, "t1")
			if got := string(left.Run) + "=" + string(left.Data); err != nil || ok != (want != "") || ok && got != want {
				t.Fatalf("%s %v %v, want %s", got, ok, err, want)
			}
		}
		has("")
		leave("r 2", 20, "two\n\x00\xff")
		leave("r1", 10, "one")
		has("r 2=two\n\x00\xff")
		leave("r 2", 20, "two again")
		leave("r3", 30, "three")
		has("r3=three")
		client := streamtest.Client(t, addr)
		if left := client.PTTL(ctx, key).Val(); left < 59*time.Minute {
			t.Errorf("it expires in %v", left)
		}
		if err := log.Erase(ctx, "r1", "t1", time.Hour); err != nil {
			t.Fatal(err)
		}
		has("r3=three")
		if err := log.Erase(ctx, "r3", "t1", time.Hour); err != nil {
			t.Fatal(err)
		}
		has("")
		if err := client.Set(ctx, key, "9 something", 0).Err(); err != nil {
			t.Fatal(err)
		}
		has("")
		leave("r3", 30, "three")
		has("r3=three")
		if err := log.EraseThread(ctx, "t1"); err != nil {
			t.Fatal(err)
		}
		has("")
	})
}

func TestARunExpiresWithAllThatIsKeptOfItOrIsErased(t *testing.T) {
	overServers(t, func(t *testing.T, log *stream.Redis, addr string) {
		ctx, client := t.Context(), streamtest.Client(t, addr)
		fill := func(run stream.RunID) {
			t.Helper()
			ids, err := log.Append(ctx, run, stream.Record{Event: []byte("{}")})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := log.Claim(ctx, run, stream.Claim{Producer: "p", TTL: time.Minute}); err != nil {
				t.Fatal(err)
			}
			if _, err := log.RequestCancel(ctx, run, []byte("{}")); err != nil {
				t.Fatal(err)
			}
			if _, _, err := log.PutCheckpoint(ctx, run, stream.Checkpoint{At: ids[0], Data: []byte("x")}, true, 0); err != nil {
				t.Fatal(err)
			}
		}
		fill("r1")
		fill("r2")
		for i, want := range []bool{true, false} {
			if set, err := log.Expire(ctx, "r1", time.Hour); set != want || err != nil {
				t.Fatalf("expire %d: %v %v", i, set, err)
			}
		}
		if set, err := log.Expire(ctx, "none", time.Hour); set || err != nil {
			t.Fatal(set, err)
		}
		keys := []string{"agui:run:r1", "{agui:run:r1}:producer", "{agui:run:r1}:lease", "{agui:run:r1}:control", "{agui:run:r1}:checkpoint"}
		for _, key := range keys {
			if left, err := client.PTTL(ctx, key).Result(); err != nil || left < 59*time.Minute || left > time.Hour {
				t.Errorf("%s: %v %v", key, left, err)
			}
		}
		if left := client.PTTL(ctx, "agui:run:r2").Val(); left != -1 {
			t.Errorf("r2 expires in %v", left)
		}
		for range 2 {
			if err := log.Erase(ctx, "r1", "t1", time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := client.Exists(ctx, keys...).Result(); n != 0 || err != nil {
			t.Errorf("%d keys are left, %v", n, err)
		}
		// A run that goes on doesn't expire.
		if err := client.Expire(ctx, "agui:run:r2", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		ids, err := log.Append(ctx, "r2", stream.Record{Event: []byte("{}")})
		if err != nil {
			t.Fatal(err)
		}
		if ok, _, err := log.PutCheckpoint(ctx, "r2", stream.Checkpoint{At: ids[0]}, true, 0); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if left := client.PTTL(ctx, "agui:run:r2").Val(); left != -1 {
			t.Errorf("r2 expires in %v", left)
		}
	})
}
