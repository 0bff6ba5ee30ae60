package framing_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/agui/framing"
	"github.com/aguihub/aguihub/oracle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// decode gives a decoder body in pieces of at most step bytes.
func decode(tb testing.TB, d framing.Decoder, body []byte, step int) (frames []framing.Frame, err error) {
	tb.Helper()
	emit := func(f framing.Frame) error {
		frames = append(frames, f)
		return nil
	}
	for len(body) > 0 {
		n := min(step, len(body))
		if err := d.Feed(body[:n], emit); err != nil {
			return frames, err
		}
		body = body[n:]
	}
	return frames, d.Finish(emit)
}

// TestProtobufIsReadAsTheOfficialDecoderReadsIt encodes every event of the streams with the official encoder.
func TestProtobufIsReadAsTheOfficialDecoderReadsIt(t *testing.T) {
	http := oracle.StartHTTPAgents(t)
	streams := oracle.Corpus(t)
	for seed := range uint64(60) {
		streams = append(streams, oracle.Generate(seed))
	}
	types := map[string]int{}
	events, refused := 0, 0
	for _, s := range streams {
		encoded := http.Proto(t, jsonOnly(s.Lines))
		var body []byte
		var want []string
		for _, e := range encoded {
			if e.Frame == nil {
				refused++
				continue
			}
			body = append(body, e.Frame...)
			want = append(want, e.Event)
		}
		frames, err := decode(t, framing.NewProtobuf(8<<20), body, 1+len(s.Name)*7)
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		if len(frames) != len(want) {
			t.Fatalf("%s: %d frames of %d", s.Name, len(frames), len(want))
		}
		for i, f := range frames {
			if f.Err != nil {
				t.Fatalf("%s: event %d, %s: %v", s.Name, i, want[i], f.Err)
			}
			got, expected := canonical(t, f.Data), canonical(t, []byte(want[i]))
			if got != expected {
				t.Fatalf("%s: event %d\n got %s\nwant %s", s.Name, i, got, expected)
			}
			var head struct{ Type string }
			if json.Unmarshal(f.Data, &head) == nil {
				types[head.Type]++
			}
			events++
		}
	}
	t.Logf("%d events of %d types; %d that the official encoder refuses", events, len(types), refused)
	if len(types) != len(oracle.Types) {
		t.Errorf("only %d of %d types: %v", len(types), len(oracle.Types), types)
	}
}

// jsonOnly leaves out lines that aren't JSON objects.
func jsonOnly(lines [][]byte) (out [][]byte) {
	for _, l := range lines {
		if json.Valid(l) && l[0] == '{' {
			out = append(out, l)
		}
	}
	return out
}

func canonical(tb testing.TB, raw []byte) string {
	tb.Helper()
	text, err := oracle.Canonical(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

func TestProtobufThatIsNone(t *testing.T) {
	good := []byte{0, 0, 0, 10, 0x7a, 8, 0x0a, 2, 8, 14, 0x12, 2, 's', '1'} // STEP_STARTED
	for name, c := range map[string]struct {
		body    []byte
		frames  int
		good    int
		finish  error
		onlyErr error
	}{
		"nothing":                      {body: nil},
		"one event":                    {body: good, frames: 1, good: 1},
		"cut within the length":        {body: good[:3], finish: framing.ErrTruncated},
		"cut within the message":       {body: good[:9], finish: framing.ErrTruncated},
		"an empty message":             {body: []byte{0, 0, 0, 0}, frames: 1},
		"garbage, then an event":       {body: append([]byte{0, 0, 0, 2, 0xff, 0xff}, good...), frames: 2, good: 1},
		"larger than an event may be":  {body: append(append([]byte{0, 0, 0x10, 0}, make([]byte, 4096)...), good...), frames: 2, good: 1, onlyErr: agui.ErrTooLarge},
		"a length that is never there": {body: []byte{0xff, 0xff, 0xff, 0xff, 1, 2, 3}, finish: framing.ErrTruncated},
		"the wrong type":               {body: []byte{0, 0, 0, 10, 0x7a, 8, 0x0a, 2, 8, 15, 0x12, 2, 's', '1'}, frames: 1},
		"an unknown event":             {body: []byte{0, 0, 0, 3, 0x9a, 0x06, 0}, frames: 1},
	} {
		t.Run(name, func(t *testing.T) {
			frames, err := decode(t, framing.NewProtobuf(1024), c.body, 3)
			if !errors.Is(err, c.finish) {
				t.Fatalf("got %v", err)
			}
			good := 0
			for _, f := range frames {
				if f.Err == nil {
					good++
				} else if c.onlyErr != nil && !errors.Is(f.Err, c.onlyErr) {
					t.Errorf("got %v", f.Err)
				}
			}
			if len(frames) != c.frames || good != c.good {
				t.Fatalf("%d frames, %d good", len(frames), good)
			}
		})
	}
}

func FuzzProtobuf(f *testing.F) {
	f.Add([]byte{0, 0, 0, 10, 0x7a, 8, 0x0a, 2, 8, 14, 0x12, 2, 's', '1'}, uint64(1))
	f.Add([]byte{0, 0, 0, 8, 0x3a, 6, 0x0a, 2, 8, 6, 0x12, 0}, uint64(3))
	f.Fuzz(func(t *testing.T, body []byte, seed uint64) {
		whole, wholeErr := decode(t, framing.NewProtobuf(1<<16), body, len(body)+1)
		rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // for tests
		pieces, piecesErr := decode(t, framing.NewProtobuf(1<<16), body, 1+rng.IntN(9))
		if len(whole) != len(pieces) || !errors.Is(wholeErr, piecesErr) {
			t.Fatalf("whole: %d %v, in pieces: %d %v", len(whole), wholeErr, len(pieces), piecesErr)
		}
		for i, f := range whole {
			if !bytes.Equal(f.Data, pieces[i].Data) {
				t.Fatalf("frame %d differs", i)
			}
			if f.Err == nil && !json.Valid(f.Data) {
				t.Fatalf("not JSON: %q", f.Data)
			}
		}
	})
}
