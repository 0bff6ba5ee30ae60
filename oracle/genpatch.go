package oracle

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// oddOps are operations that JSON Patch libraries disagree about; none makes a value that contains itself.
var oddOps = []string{
	`{"op":"remove","path":"/nowhere"}`, `{"op":"replace","path":"/nowhere/deep","value":1}`, `{"op":"test","path":"/a","value":"never this"}`,
	`{"op":"add","path":"/items/","value":0}`, `{"op":"add","path":"/items/00","value":0}`, `{"op":"replace","path":"/items/01","value":1}`, `{"op":"remove","path":"/items/-"}`,
	`{"op":"add","path":"/items/-","value":"end"}`, `{"op":"add","path":"/items/99","value":1}`, `{"op":"replace","path":"/toString","value":1}`, `{"op":"add","path":"/__proto__/x","value":1}`,
	`{"op":"add","path":"/constructor/prototype/x","value":1}`, `{"op":"inc","path":"/n","value":1}`, `{"op":"remove","path":"/a","value":"left over","x":1}`,
	`{"op":"add","path":"","value":{"a":1,"items":[1,2]}}`, `{"op":"replace","path":"","value":{"items":[]}}`, `{"op":"test","path":"","value":{}}`, `{"op":"test","path":"/n","value":1.0}`,
	`{"op":"move","from":"/a","path":"/a/b"}`, `{"op":"move","from":"/a","path":"/a"}`, `{"op":"copy","from":"","path":"/copy"}`, `{"op":"copy","from":"/nowhere","path":"/b"}`,
	`{"op":"add","path":"/n/x","value":1}`, `{"op":"add","path":"/a~1b","value":"slash"}`, `{"op":"add","path":"/m~0n","value":"tilde"}`, `{"op":"add","path":"/","value":"empty key"}`,
	`{"op":"add","path":"/\ud83d\ude00","value":"pair"}`, `{"op":"replace","path":"/items/length","value":0}`, `{"op":"add","path":"/items/-1","value":0}`, `{"op":"add","path":"/items/1e0","value":0}`,
}

// patch makes a patch for doc and what it most likely leaves: a model of the reducer, not a reference.
func (g *gen) patch(doc any) (patch string, after any) {
	var ops []string
	after = doc
	odd, ok := g.chance(25), true
	for range 1 + g.rng.IntN(3) {
		if odd && g.chance(60) {
			op := one(g, oddOps)
			ops = append(ops, op)
			if n, applied := applyRaw(after, op); applied {
				after = n
			} else {
				ok = ok && strings.Contains(op, `"inc"`)
			}
			continue
		}
		op := g.operation(after)
		ops = append(ops, op)
		if n, applied := applyRaw(after, op); applied {
			after = n
		} else {
			ok = false
		}
	}
	if g.chance(3) {
		ops, after = nil, doc
	}
	if !ok {
		after = doc
	}
	return "[" + strings.Join(ops, ",") + "]", after
}

// operation is one of the six, at a place that is there.
func (g *gen) operation(doc any) string {
	path, leaf := g.place(doc)
	if strings.HasSuffix(path, "/toString") { // should the model err, a client would copy the inherited function, and die of it
		path = ""
	}
	switch g.pick(5, 5, 2, 1, 1, 2) {
	case 1:
		if path != "" {
			return g.obj("op", `"replace"`, "path", quoted(path), "value", g.value(2))
		}
	case 2:
		if path != "" {
			return g.obj("op", `"remove"`, "path", quoted(path))
		}
	case 3:
		if to := g.slot(doc); path != "" && !strings.HasPrefix(to, path) {
			return g.obj("op", `"move"`, "from", quoted(path), "path", quoted(to))
		}
	case 4:
		if path == "" {
			break
		}
		return g.obj("op", `"copy"`, "from", quoted(path), "path", quoted(g.slot(doc)))
	case 5:
		if path == "" {
			leaf = doc
		}
		return g.obj("op", `"test"`, "path", quoted(path), "value", unparse(leaf))
	}
	return g.obj("op", `"add"`, "path", quoted(g.slot(doc)), "value", g.value(2))
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// place walks to some value of doc.
func (g *gen) place(doc any) (pointer string, value any) {
	for depth := 0; ; depth++ {
		var step string
		var next any
		switch d := doc.(type) {
		case map[string]any:
			if len(d) > 0 {
				step = one(g, slices.Sorted(maps.Keys(d)))
				next = d[step]
			}
		case []any:
			if len(d) > 0 {
				i := g.rng.IntN(len(d))
				step, next = strconv.Itoa(i), d[i]
			}
		}
		if next == nil || depth > 0 && g.chance(30) {
			return pointer, doc
		}
		pointer, doc = pointer+"/"+escaper.Replace(step), next
	}
}

// slot is a place where something may be added.
func (g *gen) slot(doc any) string {
	pointer, parent := g.place(doc)
	for range 4 {
		switch d := parent.(type) {
		case map[string]any:
			return pointer + "/" + escaper.Replace(one(g, keys))
		case []any:
			return pointer + "/" + one(g, []string{"-", "0", strconv.Itoa(len(d))})
		}
		pointer, parent = g.place(doc)
	}
	return "/" + escaper.Replace(one(g, keys))
}

func applyRaw(doc any, raw string) (any, bool) {
	var op struct {
		Op, Path, From string
		Value          json.RawMessage
	}
	if json.Unmarshal([]byte(raw), &op) != nil {
		return doc, false
	}
	value := parse(string(op.Value))
	switch op.Op {
	case "test":
		_, ok := lookup(doc, tokens(op.Path))
		return doc, ok
	case "move", "copy":
		v, ok := lookup(doc, tokens(op.From))
		if !ok {
			return doc, false
		}
		if op.Op == "move" {
			if doc, ok = change(doc, tokens(op.From), "remove", nil); !ok {
				return doc, false
			}
		}
		return change(doc, tokens(op.Path), "add", v)
	}
	return change(doc, tokens(op.Path), op.Op, value)
}

func tokens(pointer string) []string {
	if pointer == "" {
		return nil
	}
	out := strings.Split(pointer[1:], "/")
	for i, t := range out {
		out[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(t)
	}
	return out
}

func lookup(doc any, path []string) (any, bool) {
	for _, t := range path {
		switch d := doc.(type) {
		case map[string]any:
			next, ok := d[t]
			if !ok {
				return nil, false
			}
			doc = next
		case []any:
			i, err := strconv.Atoi(t)
			if err != nil || i < 0 || i >= len(d) {
				return nil, false
			}
			doc = d[i]
		default:
			return nil, false
		}
	}
	return doc, true
}

// change gives doc with one place added, replaced or removed; doc itself stays.
func change(doc any, path []string, op string, v any) (any, bool) {
	if len(path) == 0 {
		return v, op == "add" || op == "replace" || op == "remove"
	}
	_, there := lookup(doc, path[:1])
	last := len(path) == 1
	if !there && (!last || op != "add") {
		return doc, false
	}
	var child any
	if !last {
		child, _ = lookup(doc, path[:1])
		var ok bool
		if child, ok = change(child, path[1:], op, v); !ok {
			return doc, false
		}
	}
	switch d := doc.(type) {
	case map[string]any:
		c := maps.Clone(d)
		switch {
		case !last:
			c[path[0]] = child
		case op == "remove":
			delete(c, path[0])
		default:
			c[path[0]] = v
		}
		return c, true
	case []any:
		i, err := strconv.Atoi(path[0])
		if path[0] == "-" {
			i, err = len(d), nil
		}
		if err != nil || i < 0 || i > len(d) {
			return doc, false
		}
		c := slices.Clone(d)
		switch {
		case !last:
			c[i] = child
		case op == "remove":
			c = slices.Delete(c, i, i+1)
		case op == "replace":
			c[i] = v
		default:
			c = slices.Insert(c, i, v)
		}
		return c, true
	}
	return doc, false
}
