package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
)

// obj writes an object of pairs of key and JSON, leaving out those whose JSON is "".
func (g *gen) obj(members ...string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := 0; i+1 < len(members); i += 2 {
		if members[i+1] == "" {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(quoted(members[i]) + ":" + members[i+1])
	}
	b.WriteByte('}')
	return b.String()
}

func (g *gen) maybe(percent int, json string) string {
	if g.chance(percent) {
		return json
	}
	return ""
}

// newer is s for client 1.0.0 and "" for those before it.
func (g *gen) newer(s string) string {
	if g.opt.Version != V1 {
		return ""
	}
	return s
}

func quoted(s string) string { return quote(utf16.Encode([]rune(s))) }

func unquoted(s string) string {
	var out string
	if s == "" || json.Unmarshal([]byte(s), &out) != nil {
		return ""
	}
	return out
}

// tagged is a subagentRunId as JSON, or "" for the parent.
func tagged(tag string) string {
	if tag == "" {
		return ""
	}
	return quoted(tag)
}

func (g *gen) str(s string) string { return g.encode(append(units(s), g.words(3)...)) }

func (g *gen) strs(list []string) string {
	parts := make([]string, len(list))
	for i, s := range list {
		parts[i] = quoted(s)
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func units(s string) []uint16 { return utf16.Encode([]rune(s)) }

// fragments are what texts are made of: what breaks encoders stands beside what doesn't.
var fragments = []string{
	"Hello ", "world. ", "The quick brown fox ", "Grüße ", "日本語のテキスト", "😀", "👩‍👩‍👧", "🇩🇪", "e\u0301", "\u2028", "\u2029", "\n", "\r\n\t", "\"quoted\" ", `back\slash `,
	"\x00", "\x1f\x7f", "</script>", "{\"json\":[1,", "data: x\n\n", "\ufeff", "שלום ", "𝒳𝒴", "/ and \\/ ", "\u00a0", "\ufffd",
}

// words are up to n fragments as UTF-16; rarely one is half of a pair that never gets its other half.
func (g *gen) words(n int) []uint16 {
	var out []uint16
	for range g.rng.IntN(n + 1) {
		if g.chance(1) {
			out = append(out, 0xd83d)
			continue
		}
		out = append(out, units(one(g, fragments))...)
	}
	return out
}

// cut takes some units off the front, wherever that cuts; sometimes none, sometimes all.
func (g *gen) cut(rest *[]uint16) []uint16 {
	n := min(len(*rest), []int{g.rng.IntN(3), 1 + g.rng.IntN(8), 1 + g.rng.IntN(30), len(*rest)}[g.pick(2, 6, 3, 1)])
	out := (*rest)[:n]
	*rest = (*rest)[n:]
	return out
}

// encode writes a string with any of the escapes that JSON allows; halves of pairs always escaped, since UTF-8 can't hold them.
func (g *gen) encode(u []uint16) string {
	text := quote(u)
	if g.opt.Plain || !g.chance(25) {
		return text
	}
	var b strings.Builder
	b.WriteByte('"')
	style := []string{`\u%04x`, `\u%04X`}[g.rng.IntN(2)]
	for i := 0; i < len(u); i++ {
		end := i + 1
		if isHigh(u[i]) && end < len(u) && isLow(u[end]) && g.chance(70) {
			end++ // whole
		}
		if end == i+1 && (g.chance(20) || isHigh(u[i]) || isLow(u[i])) || end == i+2 && g.chance(30) {
			for ; i < end; i++ {
				fmt.Fprintf(&b, style, u[i])
			}
			i--
			continue
		}
		q := quote(u[i:end])
		if q == `"/"` && g.chance(30) {
			q = `"\/"`
		}
		b.WriteString(q[1 : len(q)-1])
		i = end - 1
	}
	b.WriteByte('"')
	return b.String()
}

var keys = []string{"a", "b", "n", "items", "a/b", "m~n", "", "0", "é", "long key", "toString", "__proto", "😀"}

var numbers = []string{"0", "1", "-1", "1.0", "-0", "0.1", "1e3", "1E-7", "123456789012345680000", "9007199254740993", "1e21", "-1.50"}

// value is any JSON value of limited depth.
func (g *gen) value(depth int) string {
	switch g.pick(2, 2, 4, 5, 2*depth, 3*depth) {
	case 0:
		return "null"
	case 1:
		return strconv.FormatBool(g.chance(50))
	case 2:
		return one(g, numbers)
	case 3:
		return g.encode(g.words(3))
	case 4:
		var parts []string
		for range g.rng.IntN(4) {
			parts = append(parts, g.value(depth-1))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return g.object(depth)
}

// object is any JSON object of limited depth.
func (g *gen) object(depth int) string {
	var members []string
	for range g.rng.IntN(5) {
		members = append(members, one(g, keys), g.value(depth-1))
	}
	return g.obj(members...)
}

func (g *gen) notNull(depth int) string {
	if v := g.value(depth); v != "null" {
		return v
	}
	return `"some"`
}

func (g *gen) metadata(percent int) string {
	if !g.chance(percent) {
		return ""
	}
	var members []string
	for range g.rng.IntN(4) {
		members = append(members, one(g, []string{"model", "tokens", "tags", "nested", "ag-ui", "é"}), g.value(2))
	}
	return g.obj(members...)
}

// parse reads JSON for the models of state and activities.
func parse(raw string) any {
	d := json.NewDecoder(bytes.NewReader([]byte(raw)))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

func unparse(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return "null"
	}
	return string(raw)
}

// mostState is the size in bytes beyond which a state is replaced: copies of copies would grow it without bound.
const mostState = 4 << 10

func (g *gen) doState() {
	if g.chance(25) || len(unparse(g.state)) > mostState {
		snapshot := g.object(3)
		if g.chance(15) {
			snapshot = one(g, []string{"null", "null", "0", `""`, "false", "[]", "[1,[2]]", `"text"`, "5"})
		}
		if g.opt.Version != V1 {
			snapshot = g.object(3) // older clients skip falsy states
		}
		g.emit("STATE_SNAPSHOT", "snapshot", snapshot, "subagentRunId", tagged(g.anyTag(10)))
		g.state = parse(snapshot)
		return
	}
	patch, state := g.patch(g.state)
	g.emit("STATE_DELTA", "delta", patch, "subagentRunId", tagged(g.anyTag(10)))
	g.state = state
}

func (g *gen) doActivity() {
	var known []*message
	for _, m := range g.msgs {
		if m.role == "activity" {
			known = append(known, m)
		}
	}
	if len(known) == 0 || g.chance(20) {
		m := &message{id: g.newID("act"), role: "activity", kind: one(g, []string{"PLAN", "SEARCH"}), doc: parse(g.object(3)), owner: g.anyTag(15)}
		if g.chance(8) {
			g.emit("ACTIVITY_DELTA", "messageId", quoted(m.id), "activityType", quoted(m.kind), "patch", `[{"op":"add","path":"/early","value":1}]`)
		}
		g.emit("ACTIVITY_SNAPSHOT", "messageId", quoted(m.id), "activityType", quoted(m.kind), "content", unparse(m.doc), "replace", g.maybe(30, "true"), "subagentRunId", tagged(m.owner))
		g.owners["activity"][m.id] = m.owner
		g.msgs = append(g.msgs, m)
		return
	}
	m := one(g, known)
	if g.chance(25) || len(unparse(m.doc)) > mostState {
		doc, replace := parse(g.object(3)), one(g, []string{"", "true", "false"})
		tag := g.anyTag(15)
		if replace == "false" {
			tag = g.tag("activity", m.id)
			g.own("activity", m.id, tag) // unless this run knows none yet
		} else {
			m.doc, m.owner = doc, tag
			g.owners["activity"][m.id] = tag
		}
		g.emit("ACTIVITY_SNAPSHOT", "messageId", quoted(m.id), "activityType", quoted(m.kind), "content", unparse(doc), "replace", replace, "subagentRunId", tagged(tag))
		return
	}
	patch, doc := g.patch(m.doc)
	tag := g.newer(g.tag("activity", m.id)) // older clients disagree about the owner after a second snapshot
	if _, ok := doc.(map[string]any); ok {  // else a snapshot could not hold it
		m.doc = doc
	} else {
		patch = `[{"op":"add","path":"/last","value":true}]`
	}
	g.emit("ACTIVITY_DELTA", "messageId", quoted(m.id), "activityType", quoted(m.kind), "patch", patch, "subagentRunId", tagged(tag))
}
