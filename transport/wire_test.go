package transport_test

import (
	"context"
	"testing"
	"time"

	"github.com/aguihub/aguihub/backfill"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
	"github.com/aguihub/aguihub/transport"
)

func TestLines(t *testing.T) {
	cursor := stream.Cursor{Entry: stream.ID{Ms: 5, Seq: 1}, Sum: 0xab}
	for _, c := range []struct {
		name   string
		d      *hub.Delivery
		detail bool
		want   string
	}{
		{"one event has the cursor", &hub.Delivery{Events: [][]byte{[]byte(`{"a":1}`)}}, false, `{"id":"5-1.000000ab","event":{"a":1}}`},
		{
			"of several only the last has it", &hub.Delivery{Events: [][]byte{[]byte(`{}`), []byte(`{"b":2}`)}}, false,
			`{"event":{}}` + "\n" + `{"id":"5-1.000000ab","event":{"b":2}}`,
		},
		{
			"a withheld entry is a control line", &hub.Delivery{Reason: "malformed", Detail: "no \"delta\""}, false,
			`{"control":"skipped","id":"5-1.000000ab","reason":"malformed"}`,
		},
		{
			"with the detail where it is asked for", &hub.Delivery{Reason: "malformed", Detail: "no \"delta\"\n"}, true,
			`{"control":"skipped","id":"5-1.000000ab","reason":"malformed","detail":"no \"delta\"\n"}`,
		},
		{
			"what was mended is told behind it", &hub.Delivery{Reason: "unclosed", Events: [][]byte{[]byte(`{}`)}}, false,
			`{"id":"5-1.000000ab","event":{}}` + "\n" + `{"control":"skipped","id":"5-1.000000ab","reason":"unclosed"}`,
		},
		{"nothing to say gives nothing", &hub.Delivery{}, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := string(transport.AppendLines(nil, c.d, cursor, c.detail))
			if got != c.want {
				t.Fatalf("got %s, want %s", got, c.want)
			}
			if !c.detail && len(got) > transport.LinesSize(c.d) {
				t.Errorf("%d bytes, said to be at most %d", len(got), transport.LinesSize(c.d))
			}
		})
	}
}

func TestBlocks(t *testing.T) {
	cursor := stream.Cursor{Entry: stream.ID{Ms: 5}, Sum: 1, HasRun: true, Run: 2}
	for name, c := range map[string]struct{ got, want string }{
		"an event with a cursor":      {string(transport.AppendBlock(nil, []byte(`{}`), cursor)), "id: 5-0.00000001.00000002\ndata: {}\n\n"},
		"an event without one":        {string(transport.AppendBlock(nil, []byte(`{}`), stream.Cursor{})), "data: {}\n\n"},
		"a cursor alone":              {string(transport.AppendIDBlock(nil, cursor)), "id: 5-0.00000001.00000002\n\n"},
		"no cursor, so there is none": {string(transport.AppendIDBlock(nil, stream.Cursor{})), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.got != c.want {
				t.Fatalf("got %q, want %q", c.got, c.want)
			}
		})
	}
}

func TestEncodedIsMadeOnceAForm(t *testing.T) {
	d := &hub.Delivery{ID: stream.ID{Ms: 1}, Events: [][]byte{[]byte("{}")}}
	made := 0
	encode := func(_ *hub.Delivery, c stream.Cursor) []byte {
		made++
		return []byte(c.String())
	}
	run, thread := stream.Cursor{Entry: stream.ID{Ms: 1}}, stream.Cursor{Entry: stream.ID{Ms: 1}, HasRun: true}
	for range 3 {
		for _, form := range []transport.Form{transport.FormFrames, transport.FormLines, transport.FormBlocks} {
			for _, c := range []stream.Cursor{run, thread} {
				got := string(transport.Encoded(&backfill.Item{Delivery: d, Cursor: c}, form, encode))
				if got != c.String() && form != transport.FormFrames {
					t.Fatalf("form %d: %s for %s", form, got, c)
				}
			}
		}
	}
	if made != 5 { // bare frames have no cursor
		t.Fatalf("made %d times", made)
	}
}

func TestWaker(t *testing.T) {
	var w transport.Waker
	w.Wake() // of nobody
	first := w.Arm(t.Context())
	if first.Err() != nil {
		t.Fatal("it remembers")
	}
	w.Wake()
	<-first.Done()
	second := w.Arm(t.Context())
	third := w.Arm(t.Context())
	if second.Err() == nil || third.Err() != nil {
		t.Fatal("a context isn't ended by the next one")
	}
	w.Wake()
}

func TestGroup(t *testing.T) {
	g := transport.NewGroup(t.Context())
	ctx, leave, ok := g.Enter()
	if !ok || !g.Go(func(ctx context.Context) { <-ctx.Done() }) {
		t.Fatal("closed")
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if g.Wait(short) {
		t.Fatal("somebody is in")
	}
	if ctx.Err() == nil {
		t.Fatal("its context goes on")
	}
	if _, _, ok := g.Enter(); ok || g.Go(func(context.Context) {}) {
		t.Fatal("it lets others in")
	}
	leave()
	if !g.Wait(t.Context()) {
		t.Fatal("nobody is in")
	}
}
