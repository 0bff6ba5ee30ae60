package backfill

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aguihub/aguihub/stream"
)

// grow publishes a run of many entries that come to a small conversation.
func grow(t *testing.T, r *rig, run string, n int) (middle, last string) {
	t.Helper()
	r.begin(t, run, "t1")
	last = r.publish(t, run, opening(run))
	for i := range n {
		last = r.publish(t, run, `{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"P","content":{"i":`+strconv.Itoa(i)+`}}`)
		if i == n/2 {
			middle = r.publish(t, run, delta(run, "half;"))
		}
		if i%250 == 249 {
			synctest.Wait()
		}
	}
	return middle, last
}

func kept(t *testing.T, log *stream.Memory) *rig {
	t.Helper()
	return newRigOn(t, log, Config{Store: log})
}

func memory(t *testing.T) *stream.Memory {
	t.Helper()
	log, err := stream.NewMemory(stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// bodies are what one attach gets, but for the name of the hub.
func bodies(t *testing.T, r *rig, req Request) string {
	t.Helper()
	ses, err := r.Attach(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer ses.Close()
	var out bytes.Buffer
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		items, err := ses.Next(ctx)
		cancel()
		if err != nil {
			return out.String()
		}
		for _, it := range items {
			lines := [][]byte{it.Line, it.Event}
			if it.Delivery != nil {
				lines = append(lines, it.Delivery.Events...)
			}
			for _, line := range slices.DeleteFunc(lines, func(l []byte) bool { return l == nil }) {
				fmt.Fprintf(&out, "%s\n", line)
			}
		}
	}
}

func TestCheckpoints(t *testing.T) {
	const n = 3500
	bubble(t, "a hub that has never seen a run attaches by its checkpoint and the tail, and gives the same", func(t *testing.T) {
		log := memory(t)
		first := kept(t, log)
		w := first.attach(t, Request{Run: "r1"})
		w.mute = true
		w.all()
		middle, _ := grow(t, first, "r1", n)
		w.all()
		synctest.Wait()
		if f := first.KeepFigures(); f.Written < 1 || f.Failed+f.Damaged > 0 {
			t.Errorf("%+v", f)
		}
		cold, whole := kept(t, log), newRigOn(t, log, Config{})
		read := 0
		cold.log.hook(func(_ int, p stream.Page) { read += len(p.Entries) })
		for _, req := range []Request{
			{Run: "r1"}, {Run: "r1", After: middle}, {Run: "r1", After: middle, Catchup: CatchupEvents}, {Thread: "t1"}, {Run: "r1", Raw: true},
		} {
			got, want := bodies(t, cold, req), bodies(t, whole, req)
			if got != want || got == "" {
				t.Errorf("%+v: got\n%s\nwant\n%s", req, got, want)
			}
		}
		if read > 1500 {
			t.Errorf("%d entries were read", read)
		}
		if f := cold.KeepFigures(); f.Read != 1 || f.Damaged != 0 {
			t.Errorf("%+v", f)
		}
		if got, want := bodies(t, cold, Request{Run: "r1", FromStart: true}), bodies(t, whole, Request{Run: "r1", FromStart: true}); got != want {
			t.Error("from=start differs")
		}
		a, errA := cold.Run(t.Context(), "r1", nil)
		b, errB := whole.Run(t.Context(), "r1", nil)
		if fmt.Sprint(a, errA) != fmt.Sprint(b, errB) {
			t.Errorf("look-up\n%+v %v, want\n%+v %v", a, errA, b, errB)
		}
	})
	bubble(t, "a run that has ended is taken up from the checkpoint of its end", func(t *testing.T) {
		log := memory(t)
		first := kept(t, log)
		w := first.attach(t, Request{Run: "r1"})
		w.mute = true
		grow(t, first, "r1", 700)
		first.publish(t, "r1", finished("r1", "t1"))
		w.all()
		synctest.Wait()
		cold := kept(t, log)
		read := 0
		cold.log.hook(func(_ int, p stream.Page) { read += len(p.Entries) })
		if got := bodies(t, cold, Request{Run: "r1"}); !strings.Contains(got, "RUN_FINISHED") || !strings.Contains(got, `"half;"`) && !strings.Contains(got, "half;") {
			t.Error(got)
		}
		if read > 10 {
			t.Errorf("%d entries were read", read)
		}
	})
	for name, spoil := range map[string]func(*stream.Checkpoint){
		"damage": func(c *stream.Checkpoint) { c.Data[len(c.Data)/2] ^= 1 },
		"an unknown version": func(c *stream.Checkpoint) {
			c.Data = bytes.Replace(c.Data, []byte("agui-run 2"), []byte("agui-run 9"), 1)
		},
		"meta that is none": func(c *stream.Checkpoint) { c.Meta = []byte("{") },
		"parts of two": func(c *stream.Checkpoint) {
			c.Meta = bytes.Replace(c.Meta, []byte(`"entries":`), []byte(`"entries":1`), 1)
		},
	} {
		bubble(t, name+" means that the run is read from its first entry, and is counted", func(t *testing.T) {
			log := memory(t)
			first := kept(t, log)
			w := first.attach(t, Request{Run: "r1"})
			w.mute = true
			w.all()
			grow(t, first, "r1", 1500)
			w.all()
			c, ok, _, err := log.Checkpoint(t.Context(), "r1")
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			c.Data, c.Meta = bytes.Clone(c.Data), bytes.Clone(c.Meta)
			spoil(&c)
			log.SetCheckpoint("r1", c)
			cold, whole := kept(t, log), newRigOn(t, log, Config{})
			if got, want := bodies(t, cold, Request{Run: "r1"}), bodies(t, whole, Request{Run: "r1"}); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if f := cold.KeepFigures(); f.Read != 0 || f.Damaged != 1 {
				t.Errorf("%+v", f)
			}
		})
	}
	bubble(t, "a checkpoint of another generation of the key isn't used", func(t *testing.T) {
		log := memory(t)
		first := kept(t, log)
		w := first.attach(t, Request{Run: "r1"})
		w.mute = true
		grow(t, first, "r1", 1500)
		w.leave()
		log.Delete("r1")
		time.Sleep(time.Second)
		first.publish(t, "r1", started("r1", "t1"), opening("r1"), delta("r1", "anew"))
		cold := kept(t, log)
		if got := bodies(t, cold, Request{Run: "r1"}); !strings.Contains(got, "anew") || strings.Contains(got, "half") {
			t.Error(got)
		}
		if f := cold.KeepFigures(); f.Read != 0 {
			t.Errorf("%+v", f)
		}
	})
	bubble(t, "of two hubs that write the newer one wins", func(t *testing.T) {
		log := memory(t)
		a, b := kept(t, log), kept(t, log)
		wa, wb := a.attach(t, Request{Run: "r1"}), b.attach(t, Request{Run: "r1"})
		b.runs = a.runs
		wa.mute, wb.mute = true, true
		wa.all()
		wb.all()
		grow(t, a, "r1", n)
		wa.all()
		wb.all()
		c, ok, _, err := log.Checkpoint(t.Context(), "r1")
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		older := c
		older.At.Ms--
		if written, _, err := log.PutCheckpoint(t.Context(), "r1", older, true, 0); written || err != nil {
			t.Error(written, err)
		}
		if f := a.KeepFigures(); f.Failed > 0 {
			t.Errorf("%+v", f)
		}
	})
}

func TestAThreadOutlivesTheStreamsOfItsRuns(t *testing.T) {
	for name, erased := range map[string]bool{"expired": false, "deleted": true} {
		bubble(t, "a run goes on from what one has left whose stream is "+name, func(t *testing.T) {
			log := memory(t)
			first := kept(t, log)
			first.begin(t, "r1", "t1")
			first.publish(t, "r1", opening("r1"), delta("r1", "before"), closing("r1"), finished("r1", "t1"))
			w := first.attach(t, Request{Run: "r1"})
			w.all()
			synctest.Wait()
			if erased {
				if err := first.Delete(t.Context(), "r1"); err != nil {
					t.Fatal(err)
				}
			} else {
				log.Delete("r1")
			}
			cold := kept(t, log)
			cold.begin(t, "r2", "t1")
			cold.publish(t, "r2", opening("r2"))
			got := bodies(t, cold, Request{Run: "r2"})
			if strings.Contains(got, "before") == erased || !strings.Contains(got, `"history":"full"`) {
				t.Error(got)
			}
		})
	}
}

func TestDeletion(t *testing.T) {
	bubble(t, "a deleted run closes its subscribers on every hub and leaves nothing", func(t *testing.T) {
		log := memory(t)
		a, b := kept(t, log), kept(t, log)
		b.runs = a.runs
		a.begin(t, "r1", "t1")
		a.publish(t, "r1", opening("r1"), finished("r1", "t1"))
		a.begin(t, "r2", "t1")
		a.publish(t, "r2", opening("r2"), delta("r2", "x"))
		run, idle := b.attach(t, Request{Run: "r2"}), b.attach(t, Request{Thread: "t1"})
		run.mute, idle.mute = true, true
		run.all()
		idle.all()
		for range 2 { // it may be repeated
			if err := a.Delete(t.Context(), "r2"); err != nil {
				t.Fatal(err)
			}
		}
		run.ends(ErrDeleted)
		idle.ends(ErrDeleted)
		if _, err := b.Run(t.Context(), "r2", nil); err == nil {
			t.Error("it is still there")
		}
		page, _, err := b.Thread(t.Context(), "t1", ThreadPlace{}, 10)
		if err != nil || len(page) != 1 || page[0].Run != "r1" {
			t.Errorf("%v %v", page, err)
		}
	})
	bubble(t, "a deleted thread closes the subscribers that wait for its next run", func(t *testing.T) {
		log := memory(t)
		a, b := kept(t, log), kept(t, log)
		b.runs = a.runs
		a.begin(t, "r1", "t1")
		a.publish(t, "r1", opening("r1"), closing("r1"), finished("r1", "t1"))
		w := b.attach(t, Request{Thread: "t1"})
		w.mute = true
		w.all()
		if err := a.DeleteThread(t.Context(), "t1"); err != nil {
			t.Fatal(err)
		}
		w.ends(ErrDeleted)
		if _, err := b.Messages(t.Context(), "t1", nil); err == nil {
			t.Error("it is still there")
		}
	})
}
