package oracle

import "slices"

// take removes a random element.
func take(g *gen, list *[]*item) *item {
	i := g.rng.IntN(len(*list))
	it := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return it
}

func has(list []*item, id string) bool {
	return slices.ContainsFunc(list, func(it *item) bool { return it.id == id })
}

// inLane tells whether a chunk mode holds the thing.
func (g *gen) inLane(kind, id string) bool {
	for _, p := range g.lanes {
		if p.kind == kind && p.id == id {
			return true
		}
	}
	return false
}

func (g *gen) doText() {
	if len(g.text) == 0 || len(g.text) < 4 && g.chance(15) {
		g.openText(g.newID("msg"), one(g, []string{"", "assistant", "assistant", "user", "system", "developer"}))
		return
	}
	it := one(g, g.text)
	if len(it.rest) == 0 && g.chance(60) {
		g.endText()
		return
	}
	g.say("TEXT_MESSAGE_CONTENT", "message", it)
}

// say adds a piece of what an item has to say.
func (g *gen) say(typ, kind string, it *item) {
	piece := g.cut(&it.rest)
	g.emit(typ, "messageId", quoted(it.id), "delta", g.encode(piece), "subagentRunId", tagged(g.tag(kind, it.id)))
	g.append(it.id, piece)
}

func (g *gen) openText(id, role string) {
	tag := g.tag("message", id)
	name := ""
	if role == "user" {
		name = g.maybe(30, `"Ada"`)
	}
	g.emit("TEXT_MESSAGE_START", "messageId", quoted(id), "role", tagged(role), "name", name, "subagentRunId", tagged(tag))
	g.own("message", id, tag)
	g.text = append(g.text, &item{id: id, tag: tag, rest: g.words(12)})
	if role == "" {
		role = "assistant"
	}
	g.note(id, role, tag)
}

func (g *gen) endText() {
	it := take(g, &g.text)
	if len(it.rest) > 0 && g.chance(70) {
		g.say("TEXT_MESSAGE_CONTENT", "message", it)
	}
	g.emit("TEXT_MESSAGE_END", "messageId", quoted(it.id), "subagentRunId", tagged(g.tag("message", it.id)))
}

func (g *gen) doTool() {
	switch {
	case len(g.tools) == 0 && (len(g.calls) == 0 || g.chance(40)), len(g.tools) < 4 && g.chance(20):
		g.openTool()
	case len(g.tools) > 0 && g.chance(75):
		it := one(g, g.tools)
		if len(it.rest) == 0 && g.chance(70) {
			g.endTool()
			return
		}
		g.sayArgs(it, g.cut(&it.rest))
	default:
		g.result()
	}
}

func (g *gen) sayArgs(it *item, piece []uint16) {
	g.emit("TOOL_CALL_ARGS", "toolCallId", quoted(it.id), "delta", g.encode(piece), "subagentRunId", tagged(g.tag("tool", it.id)))
	g.argue(it.id, piece)
}

var tools = []string{"search", "get_weather", "run_code", "änderung"}

func (g *gen) openTool() {
	id := g.newID("call")
	parent, tag := g.parent()
	name := one(g, tools)
	written := tagged(parent)
	if parent == "" && g.opt.Version == V1 {
		written = g.maybe(3, "null")
	}
	g.emit("TOOL_CALL_START", "toolCallId", quoted(id), "toolCallName", quoted(name), "parentMessageId", written, "subagentRunId", tagged(tag))
	g.called(id, name, parent, tag)
	g.tools = append(g.tools, &item{id: id, tag: tag, rest: g.arguments()})
}

// called records a new call, whose owner is its tag, else its parent message's.
func (g *gen) called(id, name, parent, tag string) {
	owner := tag
	if owner == "" && parent != "" {
		owner = g.owners["message"][parent]
	}
	g.own("tool", id, owner)
	g.calls = append(g.calls, id)
	g.noteCall(id, name, parent, tag)
}

// parent chooses a message for a new call and a tag that agrees with it.
func (g *gen) parent() (id, tag string) {
	switch g.pick(4, 4, 2) {
	case 1:
		if len(g.msgs) > 0 {
			id = one(g, g.msgs).id
		}
	case 2:
		id = g.newID("msg")
	}
	if id == "" {
		return "", g.anyTag(30)
	}
	return id, g.tag("message", id)
}

// arguments is the text of a call's arguments: JSON, sometimes none.
func (g *gen) arguments() []uint16 {
	if g.chance(8) {
		return g.words(2)
	}
	return append(units(`{"q":`+g.encode(g.words(4))+`,"o":`), units(g.object(2)+"}")...)
}

func (g *gen) endTool() {
	it := take(g, &g.tools)
	if len(it.rest) > 0 && g.chance(80) { // most calls are whole
		at := g.rng.IntN(len(it.rest) + 1)
		g.sayArgs(it, it.rest[:at])
		g.sayArgs(it, it.rest[at:])
	}
	g.emit("TOOL_CALL_END", "toolCallId", quoted(it.id), "subagentRunId", tagged(g.tag("tool", it.id)))
}

func (g *gen) result() {
	call := "call-unknown"
	if len(g.calls) > 0 && !g.chance(3) {
		call = one(g, g.calls)
	}
	id := g.newID("res")
	tag := g.anyTag(20)
	if g.chance(g.weight["repeat"]) && len(g.msgs) > 0 { // as .NET agents do: the id of a message that is there
		id = one(g, g.msgs).id
		for _, m := range g.msgs {
			if g.chance(70) && slices.ContainsFunc(m.calls, func(c *toolCall) bool { return c.id == call }) {
				id = m.id
			}
		}
		tag = g.owners["message"][id]
		if owner, ok := g.agreed(id); !g.opt.Contradict && ok {
			tag = owner
		} else if !g.opt.Contradict {
			id = g.newID("res")
		}
	}
	content := g.encode(g.words(5))
	if g.chance(25) && g.opt.Version == V1 {
		content = g.parts()
	}
	g.emit("TOOL_CALL_RESULT", "messageId", quoted(id), "toolCallId", quoted(call), "content", content, "role", g.maybe(60, `"tool"`), "subagentRunId", tagged(tag))
	g.owners["message"][id] = tag
	g.noteResult(&message{id: id, role: "tool", raw: content, call: call, owner: tag})
}

// unnamed gives the one of the chunk modes of a kind that a chunk without id and tag continues; ok is false if there is none, or several.
func (g *gen) unnamed(kind string) (lane string, ok bool) {
	if p := g.lanes[""]; p != nil && p.kind == kind {
		return "", true
	}
	n := 0
	for l, p := range g.lanes {
		if p.kind == kind {
			lane, n = l, n+1
		}
	}
	return lane, n == 1
}

func (g *gen) doChunk() {
	var open []string
	for l := range g.lanes {
		open = append(open, l)
	}
	slices.Sort(open)
	if len(open) == 0 || g.chance(20) {
		g.openChunk()
		return
	}
	lane := one(g, open)
	p := g.lanes[lane]
	id, tag := quoted(p.id), tagged(lane)
	if g.chance(60) {
		id = ""
	}
	if l, ok := g.unnamed(p.kind); g.chance(50) && (id != "" || ok && l == lane) {
		tag = ""
	}
	piece, delta := []uint16(nil), ""
	if len(p.rest) == 0 && g.chance(30) {
		g.openChunk()
		return
	}
	if g.chance(95) {
		piece = g.cut(&p.rest)
		delta = g.encode(piece)
	}
	g.chunk(p.kind, id, delta, tag)
	if p.kind == "tool" {
		g.argue(p.id, piece)
	} else {
		g.append(p.id, piece)
	}
}

func (g *gen) chunk(kind, id, delta, tag string, more ...string) {
	typ, field := "TEXT_MESSAGE_CHUNK", "messageId"
	switch kind {
	case "tool":
		typ, field = "TOOL_CALL_CHUNK", "toolCallId"
	case "reasoning":
		typ = "REASONING_MESSAGE_CHUNK"
	}
	g.emit(typ, append([]string{field, id, "delta", delta, "subagentRunId", tag}, more...)...)
}

func (g *gen) openChunk() {
	lane := g.anyTag(50)
	p := &pending{}
	first := []uint16(nil)
	start := func(rest []uint16) string {
		p.rest = rest
		if g.chance(40) {
			return ""
		}
		first = g.cut(&p.rest)
		return g.encode(first)
	}
	switch g.pick(4, 3, 3) {
	case 0:
		p.kind, p.id = "text", g.newID("msg")
		role := one(g, []string{"", "assistant", "user"})
		g.chunk("text", quoted(p.id), start(g.words(10)), tagged(lane), "role", tagged(role))
		g.own("message", p.id, lane)
		if role == "" {
			role = "assistant"
		}
		g.note(p.id, role, lane)
		g.append(p.id, first)
	case 1:
		parent, tag := g.parent()
		if m := g.find(parent); !g.opt.Contradict && tag == "" && m != nil && m.role != "assistant" {
			tag = g.owners["message"][parent] // whom the verifier lets it inherit, while it gets a message of its own
		}
		lane = tag
		p.kind, p.id = "tool", g.newID("call")
		name := one(g, tools)
		g.chunk("tool", quoted(p.id), start(g.arguments()), tagged(lane), "toolCallName", quoted(name), "parentMessageId", tagged(parent))
		g.called(p.id, name, parent, lane)
		g.argue(p.id, first)
	case 2:
		p.kind, p.id = "reasoning", g.newID("rsn")
		g.chunk("reasoning", quoted(p.id), start(g.words(8)), tagged(lane))
		g.own("reasoning", p.id, lane)
		g.note(p.id, "reasoning", lane)
		g.append(p.id, first)
	}
	g.lanes[lane] = p
}

func (g *gen) doReasoning() {
	switch g.pick(2, 2, 8, 2, 1) {
	case 0:
		if len(g.spans) < 2 {
			id := g.newID("span")
			tag := g.anyTag(30)
			g.emit("REASONING_START", "messageId", quoted(id), "subagentRunId", tagged(tag))
			g.own("reasoning", id, tag)
			g.spans = append(g.spans, &item{id: id, tag: tag})
			return
		}
	case 1:
		if len(g.spans) > 0 && g.chance(60) {
			g.endSpan()
			return
		}
	case 3:
		if len(g.thoughts) > 0 {
			g.endThought()
			return
		}
	case 4:
		g.encrypted()
		return
	}
	if len(g.thoughts) == 0 || len(g.thoughts) < 3 && g.chance(10) {
		id := g.newID("rsn")
		if len(g.spans) > 0 && g.chance(40) { // many name the message as its span
			if s := one(g, g.spans).id; !has(g.thoughts, s) && !g.inLane("reasoning", s) {
				id = s
			}
		}
		g.openThought(id)
		return
	}
	g.say("REASONING_MESSAGE_CONTENT", "reasoning", one(g, g.thoughts))
}

func (g *gen) openThought(id string) {
	tag := g.tag("reasoning", id)
	g.emit("REASONING_MESSAGE_START", "messageId", quoted(id), "role", `"reasoning"`, "subagentRunId", tagged(tag))
	g.own("reasoning", id, tag)
	g.thoughts = append(g.thoughts, &item{id: id, tag: tag, rest: g.words(8)})
	g.note(id, "reasoning", tag)
}

func (g *gen) endThought() {
	it := take(g, &g.thoughts)
	if len(it.rest) > 0 && g.chance(70) {
		g.say("REASONING_MESSAGE_CONTENT", "reasoning", it)
	}
	g.emit("REASONING_MESSAGE_END", "messageId", quoted(it.id), "subagentRunId", tagged(g.tag("reasoning", it.id)))
}

func (g *gen) endSpan() {
	it := take(g, &g.spans)
	g.emit("REASONING_END", "messageId", quoted(it.id), "subagentRunId", tagged(g.tag("reasoning", it.id)))
}

func (g *gen) encrypted() {
	subtype, id := "message", "nobody"
	switch {
	case len(g.calls) > 0 && g.chance(40):
		subtype, id = "tool-call", one(g, g.calls)
	case len(g.msgs) > 0 && g.chance(95):
		id = one(g, g.msgs).id
	}
	g.emit("REASONING_ENCRYPTED_VALUE", "subtype", quoted(subtype), "entityId", quoted(id), "encryptedValue", g.encode(g.words(2)))
	if m := g.find(id); m != nil && subtype == "message" && m.role != "activity" {
		m.secret = true
	}
}

func (g *gen) doStep() {
	name, tag := one(g, []string{"plan", "tools", "answer", "Schritt 1"}), g.anyTag(40)
	open := slices.ContainsFunc(g.steps, func(s *item) bool { return s.id == name && s.tag == tag })
	if open || len(g.steps) > 3 || len(g.steps) > 0 && g.chance(40) {
		g.endStep()
		return
	}
	g.emit("STEP_STARTED", "stepName", quoted(name), "subagentRunId", tagged(tag))
	g.steps = append(g.steps, &item{id: name, tag: tag})
}

func (g *gen) endStep() {
	it := take(g, &g.steps)
	g.emit("STEP_FINISHED", "stepName", quoted(it.id), "subagentRunId", tagged(it.tag))
}

func (g *gen) doSubagent() {
	if len(g.subagents) == 0 || len(g.subagents) < 4 && g.chance(40) {
		id := g.newID("sub")
		message, call := "", ""
		if len(g.calls) > 0 {
			call = g.maybe(50, quoted(one(g, g.calls)))
		}
		if len(g.msgs) > 0 {
			message = g.maybe(30, quoted(one(g, g.msgs).id))
		}
		g.emit("SUBAGENT_STARTED", "subagentRunId", quoted(id), "name", `"researcher"`, "description", g.maybe(30, g.str("digs ")),
			"parentSubagentRunId", tagged(g.anyTag(40)), "parentToolCallId", call, "parentMessageId", message)
		g.subagents = append(g.subagents, id)
		return
	}
	g.endSubagent()
}

func (g *gen) endSubagent() {
	i := g.rng.IntN(len(g.subagents))
	id := g.subagents[i]
	g.subagents = slices.Delete(g.subagents, i, i+1)
	g.ended = append(g.ended, id)
	if g.chance(25) {
		g.emit("SUBAGENT_ERROR", "subagentRunId", quoted(id), "message", g.str("lost "), "code", g.maybe(30, `"E1"`))
		return
	}
	result := ""
	if g.chance(30) {
		result = g.notNull(2)
	}
	outcome := one(g, []string{"", "", `{"type":"success"}`, `{"type":"suspended","interruptIds":["i1"]}`})
	if g.opt.Version != V1 {
		outcome = ""
	}
	g.emit("SUBAGENT_FINISHED", "subagentRunId", quoted(id), "result", result, "outcome", outcome)
}

func (g *gen) doCustom() {
	if g.chance(40) {
		g.emit("RAW", "event", g.value(3), "source", g.maybe(50, `"provider"`), "subagentRunId", tagged(g.anyTag(20)))
		return
	}
	g.emit("CUSTOM", "name", quoted(one(g, []string{"progress", "on_interrupt", "x/y"})), "value", g.value(3), "subagentRunId", tagged(g.anyTag(20)))
}

func (g *gen) doUnknown() {
	g.emit(one(g, []string{"FUTURE_EVENT", "X_TRACE", "text_message_start", ""}), "data", g.value(2), "messageId", g.maybe(30, `"m"`))
}

// doReopen continues what has ended: a message, or a call that the client knows.
func (g *gen) doReopen() {
	if g.chance(30) && g.opt.Version == V1 {
		if len(g.calls) > 0 {
			if id := one(g, g.calls); !has(g.tools, id) && !g.inLane("tool", id) {
				tag := g.tag("tool", id)
				g.emit("TOOL_CALL_START", "toolCallId", quoted(id), "toolCallName", quoted(one(g, tools)), "subagentRunId", tagged(tag))
				g.own("tool", id, tag)
				g.tools = append(g.tools, &item{id: id, tag: tag, rest: g.words(2)})
				return
			}
		}
	}
	var closed []*message
	for _, m := range g.msgs {
		if slices.Contains([]string{"assistant", "user", "system", "developer"}, m.role) && !has(g.text, m.id) && !g.inLane("text", m.id) {
			closed = append(closed, m)
		}
		if m.role == "reasoning" && !has(g.thoughts, m.id) && !g.inLane("reasoning", m.id) {
			closed = append(closed, m)
		}
	}
	if len(closed) == 0 {
		g.doText()
		return
	}
	if m := one(g, closed); m.role == "reasoning" {
		g.openThought(m.id)
	} else {
		g.openText(m.id, m.role)
	}
}

// doOdd does what no agent should: one id for things of several kinds.
func (g *gen) doOdd() {
	if len(g.msgs) == 0 {
		g.doText()
		return
	}
	m := one(g, g.msgs)
	switch g.pick(3, 2, 2) {
	case 0:
		tag, replace := g.anyTag(20), one(g, []string{"", "true", "false"})
		if !g.opt.Contradict && g.heldByLane(m) {
			replace = "false"
		}
		if replace == "false" { // then an owner that is known stays
			tag = g.tag("activity", m.id)
			g.own("activity", m.id, tag)
		} else {
			g.owners["activity"][m.id] = tag
		}
		doc := g.object(2)
		g.emit("ACTIVITY_SNAPSHOT", "messageId", quoted(m.id), "activityType", `"PLAN"`, "content", doc, "replace", replace, "subagentRunId", tagged(tag))
		if replace != "false" {
			g.lose(m)
			*m = message{id: m.id, role: "activity", kind: "PLAN", doc: parse(doc), owner: tag}
		}
	case 1:
		if m.role != "reasoning" && !has(g.thoughts, m.id) && !g.inLane("reasoning", m.id) {
			g.openThought(m.id)
		}
	case 2:
		if !has(g.text, m.id) && !g.inLane("text", m.id) {
			g.openText(m.id, "assistant")
		}
	}
}

// doThinking adds the events of before 0.0.45, which clients turn into reasoning with ids of their own.
func (g *gen) doThinking() {
	switch {
	case !g.thinking:
		g.thinking = true
		g.emit("THINKING_START", "title", g.maybe(40, `"Thinking"`))
	case !g.musing && g.chance(60):
		g.musing = true
		g.emit("THINKING_TEXT_MESSAGE_START")
	case g.musing && g.chance(80):
		g.emit("THINKING_TEXT_MESSAGE_CONTENT", "delta", g.str("hm "))
	default:
		g.endThinking()
	}
}

func (g *gen) endThinking() {
	if g.musing {
		g.musing = false
		g.emit("THINKING_TEXT_MESSAGE_END")
		return
	}
	g.thinking = false
	g.emit("THINKING_END")
}
