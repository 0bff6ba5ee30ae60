package agui

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/aguihub/aguihub/oracle"
)

// patchGen makes documents and patches that JavaScript has opinions about.
type patchGen struct{ *rand.Rand }

var (
	hostileKeys = []string{
		`a`, `b`, `c`, ``, `0`, `1`, `2`, `01`, `-`, `a/b`, `m~n`, `~1`, `length`, `toString`, `valueOf`, `constructor`, `hasOwnProperty`,
		`__proto__`, `prototype`, `é`, `\ud800`, `\ude00`, `\ud83d\ude00`, `\u0061`, `\"\\\n`, `map`, `at`,
	}
	hostileTokens = []string{
		`a`, `b`, ``, `0`, `1`, `2`, `00`, `01`, `-`, `-1`, `+1`, `1e0`, `1.0`, ` 1`, `99`, `4294967295`, `4294967296`, `4294967297`, `2147483648`,
		`99999999999999999999`, `length`, `toString`, `valueOf`, `constructor`, `constructor/prototype`, `hasOwnProperty`, `__proto__`, `prototype`,
		`map`, `at`, `toFixed`, `~0`, `~1`, `~01`, `~10`, `\ud800`, `\ud83d\ude00`, `é`, `\u0030`,
	}
	hostileScalars = []string{
		`0`, `-0`, `1`, `1.0`, `1e0`, `10E-1`, `0.1`, `1e-400`, `12345678901234567890`, `12345678901234567891`, `true`, `false`, `null`, `""`, `"s"`, `"\u0073"`,
		`"abc"`, `"\ud83d"`, `"\ud83d\ude00"`, `"😀"`, `"\u2028"`, `"0"`,
	}
)

func (g patchGen) one(of []string) string { return of[g.IntN(len(of))] }

func (g patchGen) doc(depth int) string {
	switch n := g.IntN(10); {
	case depth == 0 || n < 3:
		return g.one(hostileScalars)
	case n < 6:
		items := make([]string, g.IntN(4))
		for i := range items {
			items[i] = g.doc(depth - 1)
		}
		return "[" + strings.Join(items, ", ") + "]"
	default:
		members := make([]string, g.IntN(5))
		for i := range members {
			members[i] = `"` + g.one(hostileKeys) + `": ` + g.doc(depth-1)
		}
		return "{" + strings.Join(members, ",") + "}"
	}
}

// places lists the pointers into raw, as bodies of JSON strings, with what stands there.
func places(raw []byte, prefix string, visit func(pointer string, v []byte)) {
	visit(prefix, raw)
	switch {
	case isObject(raw):
		eachMember(raw, func(key, v []byte) bool {
			name := strings.NewReplacer("~", "~0", "/", "~1").Replace(decode(key))
			places(v, prefix+"/"+string(body(appendString(nil, name))), visit)
			return true
		})
	case isArray(raw):
		n := 0
		eachElement(raw, func(v []byte) bool {
			places(v, fmt.Sprintf("%s/%d", prefix, n), visit)
			n++
			return true
		})
	}
}

// patch makes a patch for doc. Most of its paths lead somewhere, at least in the original.
func (g patchGen) patch(doc string) string {
	var pointers, values []string
	places([]byte(doc), "", func(p string, v []byte) { pointers, values = append(pointers, p), append(values, string(v)) })
	path := func() (string, string) {
		i := g.IntN(len(pointers))
		p, v := pointers[i], values[i]
		switch n := g.IntN(20); {
		case n < 3:
			p += "/" + g.one(hostileTokens)
		case n < 5 && p != "":
			p = p[:strings.LastIndexByte(p, '/')+1] + g.one(hostileTokens)
		case n < 6:
			p += "/-"
		case n < 7:
			p = "/" + g.one(hostileTokens) + p
		}
		return p, v
	}
	from := func() string {
		for {
			if p, _ := path(); !throughFunction(p) {
				return p
			}
		}
	}
	ops := make([]string, 1+g.IntN(4))
	for i := range ops {
		p, v := path()
		if g.IntN(2) == 0 {
			v = g.doc(2)
		}
		switch g.IntN(13) {
		case 0, 1, 2:
			ops[i] = fmt.Sprintf(`{"op":"add","path":%q,"value":%s}`, p, v)
		case 3, 4:
			ops[i] = fmt.Sprintf(`{"path":%q,"op":"replace","value":%s}`, p, v)
		case 5, 6:
			ops[i] = fmt.Sprintf(`{"op":"remove","path":%q}`, p)
		case 7, 8:
			ops[i] = fmt.Sprintf(`{"op":"move","path":%q,"from":%q}`, p, from())
		case 9, 10:
			ops[i] = fmt.Sprintf(`{"op":"copy","from":%q,"path":%q}`, from(), p)
		case 11:
			if g.IntN(8) == 0 {
				v = "1e999"
			}
			ops[i] = fmt.Sprintf(`{"op":"test","path":%q,"value":%s}`, p, v)
		default:
			ops[i] = g.one([]string{`{"op":"inc","path":"bad"}`, `{"op":7}`, `{"path":"/a"}`, `{"op":"_get","path":"/a"}`})
		}
	}
	return "[" + strings.Join(ops, ",") + "]"
}

// throughFunction says whether a path might go on behind a function, where a move would take Array.isArray from the
// oracle's own process.
func throughFunction(pointer string) bool {
	tokens := strings.Split(pointer, "/")
	return slices.ContainsFunc(tokens[:len(tokens)-1], arrayHas)
}

// harmful are the failures of ours where the client, to its own harm, goes on.
func harmful(err error) bool {
	return errors.Is(err, errCircular) || errors.Is(err, errInherited) || errors.Is(err, errLength)
}

func TestPatchAgreesWithTheOfficialClient(t *testing.T) {
	const pairs, seed = 12_000, 1
	o := oracle.Start(t)
	g := patchGen{rand.New(rand.NewPCG(seed, 0))}
	cases := make([]oracle.PatchCase, 0, pairs+len(patchCases))
	for _, c := range patchCases {
		cases = append(cases, oracle.PatchCase{Doc: []byte(c.doc), Patch: []byte(c.patch)})
	}
	for range pairs {
		doc := g.doc(4)
		if g.IntN(20) == 0 {
			doc = strings.Replace(doc, "0.1", "-1e999", 1)
		}
		cases = append(cases, oracle.PatchCase{Doc: []byte(doc), Patch: []byte(g.patch(doc))})
	}
	results := o.Patch(t, "", cases)
	silent := skippedInSilence(t, o, cases, results)
	var applied, skipped, harmed, unharmed, bad int
	for i, r := range results {
		c := cases[i]
		d := newDocument(c.Doc)
		err := checkApply(t, d, c.Patch)
		got, bug := oracle.Canonical(d.raw())
		if bug != nil {
			t.Fatal(bug)
		}
		switch {
		case harmful(err) && (r.Fatal || r.Error != "" || silent[i]):
			harmed++
		case harmful(err):
			unharmed++
		case r.Fatal || (r.Error != "" || silent[i]) != (err != nil) || got != r.Doc:
			if bad++; bad <= 10 {
				t.Errorf("case %d: %s on %s\nwant %s, %q, fatal %v\ngot  %s, %v", i, c.Patch, c.Doc, r.Doc, r.Error, r.Fatal, got, err)
			}
		case err != nil:
			skipped++
		default:
			applied++
		}
	}
	t.Logf("seed %d: %d applied and %d skipped as the client does, %d end its run or are skipped, %d it survives and we skip, %d differ",
		seed, applied, skipped, harmed, unharmed, bad)
	if applied < pairs/5 || skipped < pairs/5 || harmed > pairs/20 || unharmed > pairs/100 {
		t.Error("the cases are out of balance")
	}
}

// skippedInSilence says which patches the client skipped though the oracle has no reason for it: it knows a failure from
// the text of a warning, which it cuts. With one more operation at the end an applied patch shows.
func skippedInSilence(t *testing.T, o *oracle.Oracle, cases []oracle.PatchCase, results []oracle.PatchResult) map[int]bool {
	t.Helper()
	const mark = `"applied"`
	var doubtful []int
	var again []oracle.PatchCase
	for i, r := range results {
		doc, err := oracle.Canonical(cases[i].Doc)
		if err != nil {
			t.Fatal(err)
		}
		if ops := string(cases[i].Patch); r.Error == "" && !r.Fatal && r.Doc == doc && ops != "[]" {
			doubtful = append(doubtful, i)
			again = append(again, oracle.PatchCase{Doc: cases[i].Doc, Patch: []byte(strings.TrimSuffix(ops, "]") + `,{"op":"add","path":"","value":` + mark + `}]`)})
		}
	}
	silent := map[int]bool{}
	for i, r := range o.Patch(t, "", again) {
		if r.Doc != mark {
			silent[doubtful[i]] = true
		}
	}
	return silent
}

func TestPatchesInARowAgreeWithTheOfficialClient(t *testing.T) {
	const rows, length, seed = 600, 6, 2
	o := oracle.Start(t)
	g := patchGen{rand.New(rand.NewPCG(seed, 0))}
	steps, bad := 0, 0
	for row := range rows {
		doc := g.doc(4)
		d := newDocument([]byte(doc))
		lines := [][]byte{[]byte(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`), []byte(`{"type":"STATE_SNAPSHOT","snapshot":` + doc + `}`)}
		var states []string
		var patches []string
		for range length {
			patch := g.patch(string(d.raw()))
			if harmful(checkApply(t, d, []byte(patch))) {
				break
			}
			state, err := oracle.Canonical(d.raw())
			if err != nil {
				t.Fatal(err)
			}
			states, patches = append(states, state), append(patches, patch)
			lines = append(lines, []byte(`{"type":"STATE_DELTA","delta":`+patch+`}`))
		}
		prefixes, result := o.Prefixes(t, oracle.Job{Lines: lines})
		for i, want := range states {
			steps++
			if i+2 >= len(prefixes) || prefixes[i+2].State != want {
				if bad++; bad <= 10 {
					t.Errorf("row %d: %s\nthen %s\nours %s\nclient %+v", row, doc, strings.Join(patches[:i+1], "\nthen "), want, result)
				}
				break
			}
		}
	}
	t.Logf("seed %d: %d of %d steps in %d rows agree", seed, steps-bad, steps, rows)
}
