package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// giant is the length in bytes of a mutation's giant string: over any buffer's first size, under the limit of an event.
const giant = 300 << 10

// garbage are lines that are no event.
var garbage = []string{
	"", "null", "[]", "7", `"text"`, "{}", "{", `{"type":}`, "data: {}", `{"type":"RUN_STARTED"`, `{"type":null}`, `{"type":7}`, `{"type":["RUN_STARTED"]}`, "\ufeff{\"type\":\"RAW\",\"event\":1}",
	`{"type":"RAW","event":1} {"type":"RAW","event":2}`, `{'type':'RAW'}`, `{"type":"RAW","event":01}`, `{"type":"RAW","event":"\x"}`, "{\"type\":\"RAW\",\"event\":\"a\nb\"}", `{"type":"RAW","event":1,}`,
	`{"type":"RAW","event":"\ud83d"}`, `{"type":"CUSTOM","name":"n"}`, `{"type":"RAW","event":NaN}`, `{"type":"RAW","event":tru}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"nobody","delta":"x"}`,
	`{"type":"RUN_STARTED","threadId":"other","runId":"other"}`, `{"type":"RUN_FINISHED","threadId":"other","runId":"other"}`, `{"type":"RUN_ERROR","message":"early"}`, `{"type":"RUN_ERROR"}`,
	`{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"threadId":"t","runId":"r"}}`, `{"__proto__":{"type":"RAW"},"type":"RAW","event":{"__proto__":1}}`,
}

// Mutate makes a hostile variant of a stream: one to four times an event is dropped, doubled, moved, cut, bent or replaced by garbage. It
// says in Name what it did. Nothing is promised of the result: ask Verdicts. Lines are copied before they are changed; Runs and
// Initial are found anew.
func Mutate(s Stream, rng *rand.Rand) Stream {
	lines := slices.Clone(s.Lines)
	var did []string
	for range 1 + rng.IntN(4) {
		if len(lines) == 0 {
			break
		}
		i := rng.IntN(len(lines))
		m := mutations[rng.IntN(len(mutations))]
		lines = m.apply(lines, i, rng)
		did = append(did, fmt.Sprintf("%s@%d", m.name, i))
	}
	return NewStream(s.Name+" "+strings.Join(did, " "), lines)
}

var mutations = []struct {
	name  string
	apply func(lines [][]byte, i int, rng *rand.Rand) [][]byte
}{
	{"drop", func(l [][]byte, i int, _ *rand.Rand) [][]byte { return slices.Delete(l, i, i+1) }},
	{"double", func(l [][]byte, i int, _ *rand.Rand) [][]byte { return slices.Insert(l, i, l[i]) }},
	{"swap", func(l [][]byte, i int, r *rand.Rand) [][]byte {
		j := r.IntN(len(l))
		l[i], l[j] = l[j], l[i]
		return l
	}},
	{"move", func(l [][]byte, i int, r *rand.Rand) [][]byte {
		line := l[i]
		l = slices.Delete(l, i, i+1)
		return slices.Insert(l, r.IntN(len(l)+1), line)
	}},
	{"truncate", func(l [][]byte, i int, _ *rand.Rand) [][]byte { return l[:i] }},
	{"type", onField(func(r *rand.Rand, key string, _ json.RawMessage) (string, string) {
		return key, []string{"7", "-1.5", "true", `"text"`, "[]", "{}", "[[]]", `{"a":null}`, `""`, "[null]"}[r.IntN(10)]
	})},
	{"null", onField(func(_ *rand.Rand, key string, _ json.RawMessage) (string, string) { return key, "null" })},
	{"remove", onField(func(*rand.Rand, string, json.RawMessage) (string, string) { return "", "" })},
	{"rename", onField(func(_ *rand.Rand, key string, v json.RawMessage) (string, string) { return key + "_", string(v) })},
	{"retype", onField(func(r *rand.Rand, key string, v json.RawMessage) (string, string) {
		if key != "type" {
			return key, string(v)
		}
		return key, quoted(Types[r.IntN(len(Types))])
	})},
	{"deep", onField(func(r *rand.Rand, key string, _ json.RawMessage) (string, string) {
		n := []int{100, 510, 511, 512, 513, 2000}[r.IntN(6)]
		return key, strings.Repeat("[", n) + strings.Repeat("]", n)
	})},
	{"giant", onField(func(_ *rand.Rand, key string, _ json.RawMessage) (string, string) {
		return key, `"` + strings.Repeat("x", giant) + `"`
	})},
	{"cut", onBytes(func(line []byte, r *rand.Rand) []byte { return line[:r.IntN(len(line))] })},
	{"hole", onBytes(func(line []byte, r *rand.Rand) []byte {
		i := r.IntN(len(line))
		return slices.Delete(line, i, min(len(line), i+1+r.IntN(4)))
	})},
	{"flip", onBytes(func(line []byte, r *rand.Rand) []byte {
		line[r.IntN(len(line))] ^= 1 << r.IntN(8)
		return line
	})},
	{"utf8", onBytes(func(line []byte, r *rand.Rand) []byte {
		bad := [][]byte{{0xff}, {0xc0, 0x80}, {0xed, 0xa0, 0xbd}, {0xe2, 0x80}, {0xf4, 0x90, 0x80, 0x80}}[r.IntN(5)]
		at := bytes.LastIndexByte(line, '"')
		return slices.Insert(line, max(0, at), bad...)
	})},
	{"garbage", func(l [][]byte, i int, r *rand.Rand) [][]byte {
		return slices.Insert(l, i, []byte(garbage[r.IntN(len(garbage))]))
	}},
}

// onBytes changes a copy of the line.
func onBytes(f func([]byte, *rand.Rand) []byte) func([][]byte, int, *rand.Rand) [][]byte {
	return func(l [][]byte, i int, r *rand.Rand) [][]byte {
		if len(l[i]) > 0 {
			l[i] = f(bytes.Clone(l[i]), r)
		}
		return l
	}
}

// onField changes one member of an event, sometimes of an object within it; a name "" leaves it out.
func onField(f func(*rand.Rand, string, json.RawMessage) (name, value string)) func([][]byte, int, *rand.Rand) [][]byte {
	var bend func(raw []byte, r *rand.Rand) []byte
	bend = func(raw []byte, r *rand.Rand) []byte {
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil || len(members) == 0 {
			return raw
		}
		names := make([]string, 0, len(members))
		for k := range members {
			names = append(names, k)
		}
		slices.Sort(names)
		hit := names[r.IntN(len(names))]
		out := []string{}
		for _, k := range names {
			name, value := k, string(members[k])
			if k == hit {
				if inner := bytes.TrimSpace(members[k]); len(inner) > 2 && inner[0] == '{' && r.IntN(2) == 0 {
					value = string(bend(inner, r))
				} else if name, value = f(r, k, members[k]); name == "" {
					continue
				}
			}
			out = append(out, quoted(name)+":"+value)
		}
		return []byte("{" + strings.Join(out, ",") + "}")
	}
	return func(l [][]byte, i int, r *rand.Rand) [][]byte {
		l[i] = bend(l[i], r)
		return l
	}
}
