package ingest_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/stream/streamtest"
	"github.com/aguihub/aguihub/transport/ingest"
)

func TestABodyOfEachFormat(t *testing.T) {
	all := []string{started, open1, content1, close1, finished}
	in := `{"input":` + runInput + `}`
	for name, c := range map[string]struct{ kind, body string }{
		"a JSON array":                         {jsonType, array(append([]string{in}, all...)...)},
		"NDJSON":                               {lines, nd(append([]string{in}, all...)...)},
		"NDJSON by its other name":             {"application/jsonl; charset=UTF-8", nd(append([]string{in}, all...)...)},
		"an event stream":                      {sse, "event: input\ndata: " + runInput + "\n\n" + sent(all...)},
		"an event stream with a wrapped input": {sse, "event: input\ndata: " + in + "\n\n" + sent(all...)},
		"an event stream with a plain input":   {sse, sent(append([]string{in}, all...)...)},
	} {
		t.Run(name, func(t *testing.T) {
			r := inMemory(t)
			rep := r.post(t, c.kind, strings.NewReader(c.body))
			want(t, rep.short(), "200  5")
			r.wantEvents(t, all...)
			entries := r.entries(t, "r1")
			want(t, string(entries[0].Input), runInput)
			want(t, rep.LastID, entries[4].ID.String())
			want(t, r.states(t), "r1:started@t1 r1:finished@t1")
			run := agui.NewRun(nil, agui.RunConfig{})
			for _, en := range entries {
				run.Apply(agui.Entry{Event: en.Event, Input: en.Input})
			}
			if !run.Full() {
				t.Fatal("the history is partial")
			}
		})
	}
	t.Run("a single JSON object", func(t *testing.T) {
		r := inMemory(t)
		for i, event := range all {
			want(t, r.post(t, jsonType, strings.NewReader(event)).short(), "200  1")
			r.wantEvents(t, all[:i+1]...)
		}
		want(t, r.post(t, jsonType, strings.NewReader(open1)).short(), "409 run_ended 0")
		r.wantEvents(t, all...)
	})
	t.Run("nothing at all", func(t *testing.T) {
		r := inMemory(t)
		want(t, r.post(t, jsonType, strings.NewReader("[]")).short(), "200  0")
		want(t, r.post(t, lines, strings.NewReader("\n")).short(), "200  0")
		want(t, r.post(t, sse, strings.NewReader(": hello\n\n")).short(), "200  0")
		want(t, r.post(t, jsonType, strings.NewReader("")).short(), "400 truncated 0")
	})
}

func TestInvalidEvents(t *testing.T) {
	badField := `{"type":"TEXT_MESSAGE_START","messageId":7}`
	for name, c := range map[string]struct {
		kind, body, reply string
		log               []string
	}{
		"stop a JSON array with what came before kept": {
			jsonType, array(started, open1, badField, close1), "422 invalid_event 2 [2 /messageId malformed]", []string{started, open1},
		},
		"stop NDJSON with what came before kept": {
			lines, nd(started, content1, open1), "422 invalid_event 1 [1  illegal]", []string{started},
		},
		"are skipped and listed in an event stream": {
			sse, sent(started, badField, open1, `nonsense`, `[1]`, close1, finished, open1),
			"200  4 [1 /messageId malformed] [3  not_json] [4  not_object] [7  after_end]",
			[]string{started, open1, close1, finished},
		},
		"behind the end of JSON are said to be late": {
			jsonType, array(started, finished, open1), "409 run_ended 2 [2  after_end]", []string{started, finished},
		},
		"before the start are refused":            {lines, nd(open1), "422 invalid_event 0 [0  before_start]", nil},
		"of another thread are refused":           {lines, nd(started, strings.Replace(started, "t1", "t2", 1)), "422 invalid_event 1 [1 /threadId other_thread]", []string{started}},
		"may be too large":                        {lines, nd(started, `{"type":"CUSTOM","name":"x","value":"`+strings.Repeat("x", 2000)+`"}`), "422 invalid_event 1 [1  too_large]", []string{started}},
		"may be far too large":                    {jsonType, array(started, `{"type":"CUSTOM","name":"x","value":"`+strings.Repeat("x", 90000)+`"}`), "422 invalid_event 1 [1  too_large]", []string{started}},
		"may be too large within an event stream": {sse, sent(started, `{"type":"CUSTOM","name":"x","value":"`+strings.Repeat("x", 90000)+`"}`, finished), "200  2 [1  too_large]", []string{started, finished}},
		"may be no UTF-8":                         {sse, sent(started, "{\"type\":\"CUSTOM\",\"name\":\"\xff\",\"value\":1}", finished), "200  2 [1  not_utf8]", []string{started, finished}},
		"may be JSON that isn't delimited":        {jsonType, "[" + started + " " + finished + "]", "422 invalid_event 1 [1  not_json]", []string{started}},
		"may be anything behind the JSON":         {jsonType, started + "x", "422 invalid_event 1 [1  not_json]", []string{started}},
		"may be a scalar":                         {jsonType, `12`, "422 invalid_event 0 [0  not_object]", nil},
		"may be a malformed input":                {jsonType, array(`{"input":{"messages":[{"role":"user"}]}}`, started), "422 invalid_event 0 [0 /input/messages/0/id malformed]", nil},
		"may be an input that nothing follows":    {lines, nd(`{"input":` + runInput + `}`), "422 invalid_event 0 [0 /input illegal]", nil},
		"may be an input that comes too late":     {sse, sent(started) + "event: input\ndata: " + runInput + "\n\n", "200  1 [1 /input illegal]", []string{started}},
		"that end the run end it in an event stream": {
			sse, sent(started, open1, `{"type":"RUN_FINISHED","runId":"r1"}`), "200  2 [2 /threadId malformed]",
			[]string{started, open1, close1, `{"type":"RUN_ERROR","message":"The event that ended the run was invalid and is withheld.","code":"invalid_end"}`},
		},
		"that end the run leave NDJSON to be mended": {
			lines, nd(started, `{"type":"RUN_FINISHED","runId":"r1"}`), "422 invalid_event 1 [1 /threadId malformed]", []string{started},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, memory(t), ingest.Config{MaxEvent: 1000})
			want(t, r.post(t, c.kind, strings.NewReader(c.body)).short(), c.reply)
			r.wantEvents(t, c.log...)
		})
	}
	t.Run("are listed up to a hundred", func(t *testing.T) {
		r := inMemory(t)
		rep := r.post(t, sse, strings.NewReader(sent(slices.Repeat([]string{"no"}, 250)...)))
		if len(rep.Rejected) != 100 || rep.RejectedTotal != 250 {
			t.Fatalf("%d of %d", len(rep.Rejected), rep.RejectedTotal)
		}
		if f := r.server.Figures(); f.Rejected != 250 || f.Requests != 1 || f.Bytes == 0 {
			t.Fatalf("%+v", f)
		}
	})
	t.Run("that end the run with items open are taken and told", func(t *testing.T) {
		r := inMemory(t)
		rep := r.post(t, lines, strings.NewReader(nd(started, open1, finished)))
		want(t, rep.short(), "200  3")
		want(t, rep.Unclosed, `still open: text message "m1"`)
		r.wantEvents(t, started, open1, finished)
	})
	t.Run("are judged by what the log holds already", func(t *testing.T) {
		r := inMemory(t)
		for _, e := range []string{started, open1} {
			if _, err := r.log.Append(t.Context(), "r1", stream.Record{Event: []byte(e)}); err != nil {
				t.Fatal(err)
			}
		}
		want(t, r.post(t, jsonType, strings.NewReader(open1)).short(), "422 invalid_event 0 [0  illegal]")
		want(t, r.post(t, jsonType, strings.NewReader(content1)).short(), "200  1")
	})
}

func TestRequestsThatCannotBeTaken(t *testing.T) {
	header := func(name, value string) func(*http.Request) {
		return func(req *http.Request) { req.Header.Set(name, value) }
	}
	r := newRig(t, memory(t), ingest.Config{MaxJSON: 1000})
	for name, c := range map[string]struct {
		kind, body, reply string
		set               func(*http.Request)
	}{
		"no type":                               {"", started, "415 unsupported_media_type 0", header("X", "y")},
		"another type":                          {"text/plain", started, "415 unsupported_media_type 0", header("X", "y")},
		"another charset":                       {"application/json; charset=latin1", started, "415 unsupported_media_type 0", header("X", "y")},
		"an encoding":                           {jsonType, started, "415 unsupported_encoding 0", header("Content-Encoding", "gzip")},
		"a run id that can't be":                {jsonType, started, "400 bad_run_id 0", func(req *http.Request) { req.URL.Path = "/v1/runs/a}b/events" }},
		"a JSON body that says it is too large": {jsonType, strings.Repeat(" ", 1001), "413 body_too_large 0", header("X", "y")},
		"a JSON body that is too large":         {jsonType, strings.Repeat(" ", 1001), "413 body_too_large 0", func(req *http.Request) { req.ContentLength = -1 }},
	} {
		t.Run(name, func(t *testing.T) {
			want(t, r.post(t, c.kind, strings.NewReader(c.body), c.set).short(), c.reply)
		})
	}
	if len(r.events(t)) != 0 {
		t.Fatal("something was appended")
	}
	if f := r.server.Figures(); f.Problems["unsupported_media_type"] != 3 || f.Active != 0 {
		t.Fatalf("%+v", f)
	}
}

func TestATruncatedBodyKeepsWhatIsComplete(t *testing.T) {
	for name, c := range map[string]struct{ kind, body string }{
		"of JSON":            {jsonType, "[" + started + "," + open1 + "," + content1[:20]},
		"of NDJSON":          {lines, nd(started, open1) + content1[:20]},
		"of an event stream": {sse, sent(started, open1) + "data: " + content1[:20]},
	} {
		t.Run(name+" that was cut by the connection", func(t *testing.T) {
			r := inMemory(t)
			rep := r.raw(t, head+c.kind+"\r\nContent-Length: 100000\r\n\r\n"+c.body)
			want(t, rep.short(), "400 truncated 2")
			r.wantEvents(t, started, open1)
		})
		t.Run(name+" that was cut before it was sent", func(t *testing.T) {
			r := inMemory(t)
			want(t, r.post(t, c.kind, strings.NewReader(c.body)).short(), "400 truncated 2")
			r.wantEvents(t, started, open1)
		})
	}
	t.Run("and a last event without its line end counts where the body ended in order", func(t *testing.T) {
		for kind, body := range map[string]string{lines: started, sse: "data:" + started} {
			r := inMemory(t)
			want(t, r.post(t, kind, strings.NewReader(body)).short(), "200  1")
		}
	})
}

func TestAStreamIsAppendedAsItArrives(t *testing.T) {
	for name, c := range map[string]struct {
		kind  string
		frame func(string) string
	}{
		"of server-sent events":              {sse, func(e string) string { return sent(e) }},
		"of server-sent events with CR LF":   {sse, func(e string) string { return ": note\r\nid: 7\r\nretry: 1\r\ndata:" + e + "\r\n\r\n" }},
		"of server-sent events in two lines": {sse, func(e string) string { return strings.Replace(sent(e), ",", ",\ndata: ", 1) }},
		"of lines":                           {lines, func(e string) string { return e + "\n" }},
		"of an array's elements":             {jsonType, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := inMemory(t)
			w, got := r.live(t, c.kind)
			frame := c.frame
			if frame == nil {
				sep := "["
				frame = func(e string) string { defer func() { sep = "," }(); return sep + e }
			}
			for i, e := range []string{started, open1, content1, close1, finished} {
				write(t, w, frame(e))
				r.waitFor(t, i+1)
			}
			if c.frame == nil {
				write(t, w, "]")
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			want(t, (<-got).short(), "200  5")
			want(t, r.states(t), "r1:started@t1 r1:finished@t1")
		})
	}
	t.Run("and an answer comes before its end where an event is invalid", func(t *testing.T) {
		r := inMemory(t)
		conn := r.dial(t)
		chunk := func(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }
		write(t, conn, head+lines+"\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk(nd(started, content1)))
		want(t, answerOn(t, conn).short(), "422 invalid_event 1 [1  illegal]")
	})
}

func TestASilentBody(t *testing.T) {
	const late = 2 * time.Second // later than what was sent before is read, however slow this machine
	t.Run("is given up", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, memory(t), ingest.Config{IdleTimeout: late})
		conn := r.dial(t)
		write(t, conn, head+sse+"\r\nContent-Length: 100000\r\n\r\n"+sent(started))
		want(t, answerOn(t, conn).short(), "408 idle 1")
	})
	t.Run("behind the run's end is as good as ended", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, memory(t), ingest.Config{IdleTimeout: late})
		conn := r.dial(t)
		write(t, conn, head+sse+"\r\nContent-Length: 100000\r\n\r\n"+sent(started, finished))
		want(t, answerOn(t, conn).short(), "200  2")
	})
	// A byte now and then, in the middle of an event, holds the run no longer than silence.
	for kind, body := range map[string]string{
		sse:      sent(started) + "data: {\"type\":\"",
		lines:    started + "\n{\"type\":\"",
		jsonType: "[" + started + ",{\"type\":\"",
	} {
		t.Run("is one that trickles, too: "+kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, memory(t), ingest.Config{IdleTimeout: late})
			conn := r.dial(t)
			write(t, conn, head+kind+"\r\nContent-Length: 100000\r\n\r\n"+body)
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				tick := time.NewTicker(10 * time.Millisecond)
				defer tick.Stop()
				for {
					select {
					case <-tick.C:
						_, _ = io.WriteString(conn, "x") // the answer is read elsewhere
					case <-stop:
						return
					}
				}
			}()
			want(t, answerOn(t, conn).short(), "408 idle 1")
			close(stop)
			<-stopped
		})
	}
	t.Run("isn't one whose events come slowly, or comments between them", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, memory(t), ingest.Config{IdleTimeout: late})
		w, got := r.live(t, sse)
		for i, piece := range []string{sent(started), ": wait\n", sent(open1), ":\n", sent(content1, close1), ": soon\n", sent(finished)} {
			if i > 0 {
				time.Sleep(late / 5) // longer in all than the body may pause
			}
			write(t, w, piece)
		}
		_ = w.Close()
		want(t, (<-got).short(), "200  5")
	})
	t.Run("is answered when the server stops", func(t *testing.T) {
		r := inMemory(t)
		w, got := r.live(t, sse)
		write(t, w, sent(started))
		r.waitFor(t, 1)
		if err := r.server.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		rep := <-got
		want(t, rep.short(), "503 draining 1")
		if rep.header.Get("Retry-After") == "" {
			t.Fatal("no Retry-After")
		}
		_ = w.Close()
		want(t, r.post(t, jsonType, strings.NewReader(open1)).short(), "503 draining 0")
	})
}

// TestEventsThatDoNotComeToTheirEndFillNoMemory refuses an event that makes them too much, and gives back what it held.
func TestEventsThatDoNotComeToTheirEndFillNoMemory(t *testing.T) {
	r := newRig(t, memory(t), ingest.Config{MaxPartial: 200 << 10})
	event := func(kib int) string {
		return `{"type":"CUSTOM","name":"x","value":"` + strings.Repeat("x", kib<<10) + `"}`
	}
	for _, kind := range []string{lines, sse, jsonType} {
		t.Run(kind, func(t *testing.T) {
			body := map[string]string{lines: nd(started, event(300)), sse: sent(started, event(300)), jsonType: array(started, event(300))}[kind]
			rep := r.post(t, kind, strings.NewReader(body))
			want(t, rep.short(), "503 ingest_busy 1")
			if rep.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			want(t, r.post(t, lines, strings.NewReader(nd(event(150)))).short(), "200  1")
		})
	}
	w, got := r.live(t, lines)
	write(t, w, event(150)[:140<<10])
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for r.server.Partial() < 140<<10 {
		<-ticker.C
	}
	rep := r.post(t, lines, strings.NewReader(nd(event(150))), func(req *http.Request) { req.URL.Path = "/v1/runs/r2/events" })
	want(t, rep.short(), "503 ingest_busy 0")
	write(t, w, event(150)[140<<10:]+"\n")
	_ = w.Close()
	want(t, (<-got).short(), "200  1")
	if n := r.server.Partial(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}

func TestARunHasOneWriter(t *testing.T) {
	r := newRig(t, memory(t), ingest.Config{TurnTimeout: 30 * time.Millisecond})
	w, got := r.live(t, sse)
	write(t, w, sent(started))
	r.waitFor(t, 1)
	rep := r.post(t, jsonType, strings.NewReader(open1))
	want(t, rep.short(), "409 run_busy 0")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	<-got
	want(t, r.post(t, jsonType, strings.NewReader(open1)).short(), "200  1")
}

func TestRedisThatIsAway(t *testing.T) {
	t.Run("before the body", func(t *testing.T) {
		log := memory(t)
		r := newRig(t, log, ingest.Config{})
		log.SetFault(stream.ErrUnavailable)
		rep := r.post(t, jsonType, strings.NewReader(started))
		log.SetFault(nil)
		want(t, rep.short(), "503 redis_unavailable 0")
		if rep.header.Get("Retry-After") == "" {
			t.Fatal("no Retry-After")
		}
	})
	for name, c := range map[string]struct {
		cause     error
		keep      bool
		reply     string
		uncertain int
		entries   int
	}{
		"within the body leaves it open what was written":       {stream.ErrUnavailable, false, "503 append_uncertain 1", 2, 1},
		"within the body though everything was written":         {stream.ErrUnavailable, true, "503 append_uncertain 1", 2, 3},
		"for want of memory is certain to have written nothing": {stream.ErrFull, false, "503 redis_full 1", 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			log := memory(t)
			r := newRig(t, log, ingest.Config{})
			w, got := r.live(t, lines)
			write(t, w, nd(started))
			r.waitFor(t, 1)
			first := r.entries(t, "r1")[0].ID.String()
			log.setLoss(c.cause, c.keep)
			write(t, w, nd(open1, content1))
			rep := <-got
			_ = w.Close()
			want(t, rep.short(), c.reply)
			if rep.Uncertain != c.uncertain || rep.LastID != first || len(r.entries(t, "r1")) != c.entries {
				t.Fatalf("%+v, %d entries", rep, len(r.entries(t, "r1")))
			}
			if c.uncertain > 0 && rep.header.Get("Retry-After") != "" {
				t.Fatal("it invites to send them twice")
			}
		})
	}
}

func TestOverRedis(t *testing.T) {
	server := streamtest.StartRedis(t)
	log, err := stream.Connect(server.URL(), stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	r := newRig(t, log, ingest.Config{})
	w, got := r.live(t, sse)
	write(t, w, "event: input\ndata: "+runInput+"\n\n"+sent(started, open1))
	r.waitFor(t, 2)
	all := []string{started, open1}
	for i := range 500 {
		e := `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"` + strconv.Itoa(i) + `"}`
		all = append(all, e)
		write(t, w, sent(e))
	}
	write(t, w, "data: no\n\n"+sent(close1, finished))
	all = append(all, close1, finished)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, (<-got).short(), "200  504 [503  not_json]")
	r.wantEvents(t, all...)
	want(t, string(r.entries(t, "r1")[0].Input), runInput)
	want(t, r.states(t), "r1:started@t1 r1:finished@t1")
	want(t, r.post(t, jsonType, strings.NewReader(open1)).short(), "409 run_ended 0")

	if err := server.Client(t).Set(t.Context(), "agui:run:r1", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	want(t, r.post(t, jsonType, strings.NewReader(started)).short(), "409 wrong_type 0")
	server.Kill()
	want(t, r.post(t, jsonType, strings.NewReader(started)).short(), "503 redis_unavailable 0")
}
