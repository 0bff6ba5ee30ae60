package oracle

import (
	"slices"
	"strings"
)

// message is about what the client holds of one: enough to restate the conversation.
type message struct {
	id, role, owner string

	text   []uint16
	raw    string // content as JSON, in place of text
	calls  []*toolCall
	call   string // a result's call
	kind   string // an activity's type
	doc    any    // an activity's content
	secret bool   // has an encrypted value
}

type toolCall struct {
	id, name string
	args     []uint16
}

func (g *gen) find(id string) *message {
	for _, m := range g.msgs {
		if m.id == id {
			return m
		}
	}
	return nil
}

// note records a message that an event opened, unless it is there.
func (g *gen) note(id, role, owner string) {
	if g.find(id) == nil {
		g.msgs = append(g.msgs, &message{id: id, role: role, owner: owner})
	}
}

func (g *gen) append(id string, piece []uint16) {
	if m := g.find(id); m != nil && m.role != "activity" {
		m.text = append(slices.Clip(m.text), piece...)
	}
}

func (g *gen) argue(id string, piece []uint16) {
	for _, m := range g.msgs {
		for _, c := range m.calls {
			if c.id == id {
				c.args = append(slices.Clip(c.args), piece...)
				return
			}
		}
	}
}

func (g *gen) noteCall(id, name, parent, tag string) {
	m := g.find(parent)
	if parent == "" || m != nil && m.role != "assistant" {
		m, parent = nil, id
	}
	if m == nil {
		m = &message{id: parent, role: "assistant", owner: tag}
		g.msgs = append(g.msgs, m)
	}
	m.calls = append(m.calls, &toolCall{id: id, name: name})
}

func (g *gen) noteResult(r *message) {
	at := len(g.msgs)
	for i, m := range g.msgs {
		if slices.ContainsFunc(m.calls, func(c *toolCall) bool { return c.id == r.call }) {
			at = i + 1
			for at < len(g.msgs) && g.msgs[at].role == "tool" {
				at++
			}
			break
		}
	}
	g.msgs = slices.Insert(g.msgs, at, r)
}

// parts is content of several parts, rarely one that nobody knows yet.
func (g *gen) parts() string {
	out := []string{g.obj("type", `"text"`, "text", g.encode(g.words(3)))}
	for range g.rng.IntN(3) {
		source := one(g, []string{`{"type":"data","value":"aGk=","mimeType":"image/png"}`, `{"type":"url","value":"https://example.com/a.png"}`, `{"type":"file","value":"file-1","provider":"p"}`})
		out = append(out, g.obj("type", quoted(one(g, []string{"image", "audio", "video", "document"})), "source", source, "metadata", g.metadata(20)))
	}
	if g.chance(5) {
		out = append(out, `{"type":"hologram","depth":3}`)
	}
	return "[" + strings.Join(out, ",") + "]"
}

// restate is a message as a snapshot or an input holds it.
func (g *gen) restate(m *message) string {
	content, calls := m.raw, ""
	switch {
	case m.role == "activity":
		content = unparse(m.doc)
		if _, ok := m.doc.(map[string]any); !ok {
			content = "{}"
		}
		return g.obj("id", quoted(m.id), "role", `"activity"`, "activityType", quoted(m.kind), "content", content, "subagentRunId", tagged(m.owner), "metadata", g.metadata(g.weight["metadata"]/3))
	case content == "":
		content = g.encode(m.text)
	}
	if m.role == "assistant" && len(m.calls) > 0 {
		var list []string
		for _, c := range m.calls {
			fn := g.obj("name", quoted(c.name), "arguments", g.encode(c.args))
			list = append(list, g.obj("id", quoted(c.id), "type", `"function"`, "function", fn, "encryptedValue", g.maybe(5, `"enc"`), "metadata", g.metadata(g.weight["metadata"]/3)))
		}
		calls = "[" + strings.Join(list, ",") + "]"
		if len(m.text) == 0 && m.raw == "" {
			content = g.maybe(50, `""`)
		}
	}
	secret := ""
	if m.secret {
		secret = `"sealed"`
	}
	metadata := ""
	if g.opt.Version == V1 {
		metadata = g.metadata(g.weight["metadata"] / 3)
	}
	return g.obj("id", quoted(m.id), "role", quoted(m.role), "content", content, "toolCalls", calls, "toolCallId", tagged(m.call),
		"encryptedValue", secret, "subagentRunId", tagged(m.owner), "metadata", metadata, "x-unknown", g.maybe(2, "1"))
}

func (g *gen) restateAll(list []*message) string {
	parts := make([]string, len(list))
	for i, m := range list {
		parts[i] = g.restate(m)
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// doSnapshot restates the conversation in mid-run: as it is, or with messages gone, new, changed or in another order.
func (g *gen) doSnapshot() {
	list := slices.Clone(g.msgs)
	drop := func(test func(*message) bool) { list = slices.DeleteFunc(list, test) }
	switch g.pick(5, 3, 2, 2, 2, 2, 1) {
	case 1:
		drop(func(*message) bool { return g.chance(30) })
	case 2:
		g.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	case 3:
		role := one(g, []string{"activity", "reasoning"})
		drop(func(m *message) bool { return m.role == role })
	case 4:
		drop(func(m *message) bool { return has(g.text, m.id) || has(g.thoughts, m.id) || len(m.calls) > 0 })
	case 5:
		fresh := &message{id: g.newID("msg"), role: one(g, []string{"user", "assistant", "reasoning", "system"}), text: g.words(4), owner: g.anyTag(20)}
		list = slices.Insert(list, g.rng.IntN(len(list)+1), fresh)
		if len(list) > 1 && g.chance(50) {
			i := g.rng.IntN(len(list))
			if list[i].role != "activity" {
				c := *list[i]
				c.text, c.raw = g.words(5), ""
				list[i] = &c
			}
		}
	case 6:
		list = nil
	}
	metadata := ""
	if g.opt.Version == V1 && g.chance(10) {
		metadata = `{"@ag-ui/client":{"authoritativeActivityTypes":` + one(g, []string{"null", `["PLAN"]`, "[]"}) + `}}`
	}
	g.emit("MESSAGES_SNAPSHOT", "messages", g.restateAll(list), "metadata", metadata)
	g.seed(list, true)
	for _, m := range g.msgs {
		if !slices.ContainsFunc(list, func(x *message) bool { return x.id == m.id }) {
			g.lose(m)
		}
	}
	hasRole := func(role string) bool {
		return slices.ContainsFunc(list, func(m *message) bool { return m.role == role })
	}
	for _, m := range g.msgs { // what the client keeps of its own; in truth at its old place
		if (m.role == "activity" || m.role == "reasoning") && !hasRole(m.role) {
			list = append(list, m)
		}
	}
	g.msgs = list
}

// seed records the owners that a restated conversation names.
func (g *gen) seed(list []*message, authoritative bool) {
	set := func(kind, id, owner string) {
		if _, ok := g.owners[kind][id]; authoritative || !ok {
			g.owners[kind][id] = owner
		}
	}
	for _, m := range list {
		switch m.role {
		case "reasoning", "activity":
			set(m.role, m.id, m.owner)
		default:
			set("message", m.id, m.owner)
		}
		for _, c := range m.calls {
			if m.role == "assistant" {
				set("tool", c.id, m.owner)
			}
		}
	}
}

// start opens the run, with or without the input that it answers.
func (g *gen) start() {
	input := ""
	if g.chance(60) {
		user := &message{id: g.newID("user"), role: "user", text: append(units("Question "), g.words(3)...)}
		if g.opt.Version == V1 && g.chance(25) {
			user.raw = g.parts()
		}
		if len(g.msgs) == 0 && g.chance(30) {
			g.msgs = append(g.msgs, &message{id: g.newID("sys"), role: "system", text: units("Be kind.")}, &message{id: g.newID("user"), role: "user", text: g.words(3)},
				&message{id: g.newID("msg"), role: "assistant", text: g.words(4)})
		}
		g.msgs = append(g.msgs, user)
		told := slices.DeleteFunc(slices.Clone(g.msgs), func(m *message) bool { return m.role == "activity" })
		state := ""
		if g.chance(60) {
			if g.lastRun == "" { // what the client that sent it holds
				g.state = parse(g.object(3))
			}
			state = unparse(g.state)
		}
		var answers []string
		for _, id := range g.interrupts {
			answers = append(answers, g.obj("interruptId", quoted(id), "status", one(g, []string{`"resolved"`, `"cancelled"`}), "payload", g.maybe(50, g.notNull(1))))
		}
		resume := ""
		if len(answers) > 0 {
			resume = "[" + strings.Join(answers, ",") + "]"
		}
		input = g.obj("threadId", quoted(g.thread), "runId", quoted(g.runID), "state", state, "messages", g.restateAll(told),
			"tools", `[{"name":"search","description":"d","parameters":{"type":"object"}}]`, "context", "[]", "forwardedProps", g.maybe(60, g.object(1)), "resume", resume)
		g.seed(told, false)
	}
	if g.state == nil && g.lastRun == "" {
		g.state = map[string]any{}
	}
	parent := ""
	if g.lastRun != "" {
		parent = g.maybe(20, quoted(g.lastRun))
	}
	g.emit("RUN_STARTED", "threadId", quoted(g.thread), "runId", quoted(g.runID), "protocolVersion", g.maybe(20, `"1.0"`), "parentRunId", parent, "input", input)
}
