package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aguihub/aguihub/agui"
)

// fuzzLimit is small, so that inputs of a fuzzer's size pass it.
const fuzzLimit = 64

// decodeAll gives a decoder body in pieces whose sizes cuts says, and returns what comes out.
func decodeAll(d decoder, body, cuts []byte) (items []item, err error) {
	emit := func(it item) error {
		it.data = bytes.Clone(it.data)
		items = append(items, it)
		return nil
	}
	for i := 0; len(body) > 0; i++ {
		n := len(body)
		if len(cuts) > 0 {
			n = min(n, int(cuts[i%len(cuts)])%7+1)
		}
		piece := bytes.Clone(body[:n])
		err := d.feed(piece, emit)
		for j := range piece { // a decoder must not keep what it is fed
			piece[j] = '#'
		}
		if err != nil {
			return items, err
		}
		body = body[n:]
	}
	return items, d.finish(emit)
}

func sameItems(a, b []item) bool {
	return slices.EqualFunc(a, b, func(a, b item) bool {
		return bytes.Equal(a.data, b.data) && a.named == b.named && errors.Is(a.err, b.err) && errors.Is(b.err, a.err)
	})
}

func texts(items []item) (out []string) {
	for _, it := range items {
		out = append(out, string(it.data))
	}
	return out
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// anyCut checks that a body gives the same whatever its pieces, that nothing grows, and returns what it gives.
func anyCut(t *testing.T, newDecoder func(limit int) decoder, body, cuts []byte) ([]item, error) {
	t.Helper()
	whole, wholeErr := decodeAll(newDecoder(fuzzLimit), body, nil)
	pieces, piecesErr := decodeAll(newDecoder(fuzzLimit), body, append(bytes.Clone(cuts), 3))
	if !sameItems(whole, pieces) || errText(wholeErr) != errText(piecesErr) {
		t.Fatalf("whole: %q %v\nin pieces: %q %v", texts(whole), wholeErr, texts(pieces), piecesErr)
	}
	for _, it := range whole {
		if len(it.data) > fuzzLimit+len(bom)+1 {
			t.Fatalf("an item of %d bytes", len(it.data))
		}
		if it.err != nil && !errors.Is(it.err, agui.ErrTooLarge) {
			t.Fatal(it.err)
		}
	}
	return whole, wholeErr
}

func asJSON(limit int) decoder   { return newJSONDecoder(limit) }
func asNDJSON(limit int) decoder { return newNDJSONDecoder(limit) }
func asSSE(limit int) decoder    { return newSSEDecoder(limit) }

// fuzzEvents are the events that a text holds, one a line; only those that are short JSON objects.
func fuzzEvents(text []byte) (events [][]byte) {
	for line := range bytes.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = bytes.Trim(line, " \t")
		if len(line) <= fuzzLimit && len(line) > 0 && line[0] == '{' && json.Valid(line) {
			events = append(events, line)
		}
	}
	return events
}

// cameThrough checks that a body made of events gives these.
func cameThrough(t *testing.T, newDecoder func(limit int) decoder, body []byte, events [][]byte, cuts []byte) {
	t.Helper()
	items, err := anyCut(t, newDecoder, body, cuts)
	if err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	if !slices.EqualFunc(items, events, func(it item, e []byte) bool { return it.err == nil && bytes.Equal(it.data, e) }) {
		t.Fatalf("%q\ngave %q\nfor  %q", body, texts(items), events)
	}
}

const fuzzSeed = "{\"a\":\"}\\\"]\"}\n{\"b\":[{}, 1]}\n\n{\"ü\":null}"

func FuzzJSON(f *testing.F) {
	for _, body := range []string{
		fuzzSeed, `[{"a":1},{"b":"\\"}]`, "\ufeff [ ]", `[1,"x",true`, `{}{}`, `[,]`, `[{},]`, `"\"`, "\xef\xbb{}", strings.Repeat("[", 99),
	} {
		f.Add([]byte(body), []byte{0, 4})
	}
	f.Fuzz(func(t *testing.T, body, cuts []byte) {
		if items, err := anyCut(t, asJSON, body, cuts); err == nil && len(body) <= fuzzLimit && json.Valid(body) {
			var values []json.RawMessage
			if json.Unmarshal(body, &values) != nil || values == nil && len(items) == 1 {
				values = []json.RawMessage{bytes.TrimSpace(body)}
			}
			if !slices.EqualFunc(items, values, func(it item, v json.RawMessage) bool { return bytes.Equal(it.data, v) }) {
				t.Fatalf("%q gave %q", body, texts(items))
			}
		} else if json.Valid(body) && err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		events := fuzzEvents(body)
		cameThrough(t, asJSON, append(append([]byte("\ufeff [ "), bytes.Join(events, []byte("\r\n ,\t"))...), " ]\n"...), events, cuts)
		for _, e := range events {
			cameThrough(t, asJSON, e, [][]byte{e}, cuts)
		}
	})
}

func FuzzNDJSON(f *testing.F) {
	for _, body := range []string{fuzzSeed, "\ufeff{}\r\n{}", "{\"a\":", "\r\n\r\n", strings.Repeat("x", 99) + "\n{}", "{\n}"} {
		f.Add([]byte(body), []byte{1})
	}
	f.Fuzz(func(t *testing.T, body, cuts []byte) {
		_, _ = anyCut(t, asNDJSON, body, cuts)
		events := fuzzEvents(body)
		cameThrough(t, asNDJSON, append([]byte("\ufeff"), bytes.Join(events, []byte("\r\n\n"))...), events, cuts)
		cameThrough(t, asNDJSON, append(bytes.Join(events, []byte("\n")), '\n'), events, cuts)
	})
}

func FuzzSSE(f *testing.F) {
	for _, body := range []string{
		fuzzSeed, "\ufeffdata: {}\n\n", "data:{\rdata:}\r\rdata: {}\r\n\r\n", "event: input\ndata: {}\n\n", ": c\nretry: 9\nid\ndata\n\n",
		"data: " + strings.Repeat("x", 99) + "\n\ndata: {}\n\n", "data: {", ":" + strings.Repeat("x", 300), "data\ndata\n\n",
	} {
		f.Add([]byte(body), []byte{2, 6})
	}
	f.Fuzz(func(t *testing.T, body, cuts []byte) {
		_, _ = anyCut(t, asSSE, body, cuts)
		events := fuzzEvents(body)
		for _, end := range []string{"\n", "\r\n", "\r"} {
			var text bytes.Buffer
			text.WriteString("\ufeff")
			for i, e := range events {
				text.WriteString(": comment" + end + "id: 1" + end)
				if i%2 == 0 {
					text.WriteString("event: e" + end + "retry: 5" + end)
				}
				text.WriteString("data: " + string(e) + end + end)
			}
			cameThrough(t, asSSE, text.Bytes(), events, cuts)
			cameThrough(t, asSSE, bytes.TrimRight(text.Bytes(), "\r\n"), events, cuts)
		}
	})
}

func TestEventStreams(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"several data lines are joined by LF":      {"data: {\ndata:\ndata: }\n\n", []string{"{\n\n}"}},
		"one space behind the colon is dropped":    {"data:  x\n\n", []string{" x"}},
		"an event without data is none":            {"event: input\n\ndata: {}\n\n", []string{"{}"}},
		"empty data is none":                       {"data\n\ndata:\n\n", nil},
		"fields of other names are nothing":        {"dat: 1\ndatas: 2\nDATA: 3\n data: 4\n\n", nil},
		"CR alone ends lines":                      {"data: 1\rdata: 2\r\rdata: 3\r\r", []string{"1\n2", "3"}},
		"a name holds for its event only":          {"event: input\ndata: 1\n\ndata: 2\n\n", []string{"input:1", "2"}},
		"the last name counts":                     {"event: input\nevent: x\ndata: 1\n\n", []string{"1"}},
		"a long comment is nothing":                {": " + strings.Repeat("x", 500) + "\ndata: 1\n\n", []string{"1"}},
		"a long event doesn't spoil the next":      {"data: " + strings.Repeat("x", 500) + "\n\ndata: 1\n\n", []string{"large", "1"}},
		"many short lines may be too long as well": {strings.Repeat("data: 123456789\n", 20) + "\ndata: 1\n\n", []string{"large", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			items, err := anyCut(t, asSSE, []byte(c.body), nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, it := range items {
				text := string(it.data)
				if it.named {
					text = "input:" + text
				}
				if it.err != nil {
					text = "large"
				}
				got = append(got, text)
			}
			if !slices.Equal(got, c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
		})
	}
}
