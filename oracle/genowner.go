package oracle

import "slices"

// anyTag names a subagent of the run, in percent of the cases; else "", the parent.
func (g *gen) anyTag(percent int) string {
	all := append(slices.Clone(g.subagents), g.ended...)
	if len(all) == 0 || !g.chance(percent) {
		return ""
	}
	return one(g, all)
}

// tag is what a further event of a thing may carry: its owner, or nothing; anything for what nobody owns yet.
func (g *gen) tag(kind, id string) string {
	owner, ok := g.owners[kind][id]
	if g.opt.Contradict {
		switch {
		case !ok:
			return g.anyTag(30)
		case g.chance(25):
			return ""
		}
		return owner
	}
	named, held := g.named(kind, id)
	lost, gone := g.lost[kind][id]
	var all []string // who may be its owner, to clients that came at different times
	for _, by := range []struct {
		owner string
		known bool
	}{{owner, ok}, {named, held}, {lost, gone}} {
		if by.known {
			all = append(all, by.owner)
		}
	}
	switch {
	case len(all) == 0:
		return g.anyTag(30)
	case slices.ContainsFunc(all, func(o string) bool { return o != all[0] }):
		return "" // which agrees with each
	case held && g.chance(25):
		return ""
	}
	return all[0] // always, where nothing else tells it to a client that comes later
}

// lose notes the owners of what leaves the conversation: a client that came before holds them.
func (g *gen) lose(m *message) {
	kind := "message"
	if m.role == "reasoning" || m.role == "activity" {
		kind = m.role
	}
	g.lost[kind][m.id] = m.owner
	for _, c := range m.calls {
		g.lost["tool"][c.id] = m.owner
	}
}

// named is the owner that a snapshot of the conversation would make a thing's.
func (g *gen) named(kind, id string) (owner string, held bool) {
	for _, m := range g.msgs {
		is := m.id == id && (m.role == kind || kind == "message" && m.role != "reasoning" && m.role != "activity")
		if is || kind == "tool" && slices.ContainsFunc(m.calls, func(c *toolCall) bool { return c.id == id }) {
			owner, held = m.owner, true
		}
	}
	return owner, held
}

// agreed says whether all that a client can know of a message's owner is one and the same.
func (g *gen) agreed(id string) (owner string, ok bool) {
	owner, known := g.owners["message"][id]
	if lost, gone := g.lost["message"][id]; gone {
		if known && lost != owner {
			return "", false
		}
		owner, known = lost, true
	}
	for _, m := range g.msgs {
		switch {
		case m.id != id || m.role == "reasoning" || m.role == "activity":
		case known && m.owner != owner:
			return "", false
		default:
			owner, known = m.owner, true
		}
	}
	return owner, true
}

// heldByLane tells whether a chunk mode holds a call of the message.
func (g *gen) heldByLane(m *message) bool {
	return slices.ContainsFunc(m.calls, func(c *toolCall) bool { return g.inLane("tool", c.id) })
}

// own records the owner of what an event opens, which the first opener of the run decides.
func (g *gen) own(kind, id, tag string) {
	if _, ok := g.owners[kind][id]; !ok {
		g.owners[kind][id] = tag
	}
}
