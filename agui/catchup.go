package agui

// CatchUp brings a subscriber who has this run's entries up to j to the view, in the same client pipeline: closings of
// what ended meanwhile, snapshots, openings of what opened meanwhile, the CUSTOM (and RAW) events of the gap, and every
// chunk mode anew. It is false where the run has closed too much since j to say what the subscriber takes for open: then
// only the events themselves can bring it on.
func (v *View) CatchUp(j Position) (*Preamble, bool) {
	was, known := v.closed.openAt(j)
	if !known || v.start == nil {
		return nil, false
	}
	p := &Preamble{Closings: v.closingsSince(j, was)}
	g := gap{holder: v.Holder(j), from: j, open: map[itemKey]bool{}}
	for _, c := range was {
		g.open[c.key] = true
	}
	for _, it := range v.items {
		if !it.at.After(j) {
			g.open[it.key()] = true
		}
	}
	p.Past = v.past(g)
	v.pass(p, j)
	for _, l := range v.lanes {
		p.Lanes = append(p.Lanes, l.reopen)
	}
	if v.terminal != nil {
		p.Terminal = [][]byte{v.terminal}
	}
	return p, true
}

// ClosingsSince are the closings alone, for a run that has ended and whose messages a later run's snapshot restates.
func (v *View) ClosingsSince(j Position) ([][]byte, bool) {
	was, known := v.closed.openAt(j)
	if !known {
		return nil, false
	}
	return v.closingsSince(j, was), true
}

// closingsSince ends what was open at j and isn't any more: content before spans, steps and subagents. Legacy items
// end in any case: they can only be opened anew.
func (v *View) closingsSince(j Position, was []closedItem) [][]byte {
	now := map[itemKey]bool{}
	for _, it := range v.items {
		now[it.key()] = true
	}
	var groups [3][][]byte
	add := func(kind itemKind, closing []byte) {
		group := 0
		switch kind {
		case itemSpan:
			group = 1
		case itemStep:
			group = 2
		default:
		}
		groups[group] = append(groups[group], closing)
	}
	for _, it := range v.items {
		if it.legacy && !it.at.After(j) {
			add(it.kind, (&opened{kind: it.kind, legacy: true}).closing())
		}
	}
	for _, c := range was {
		if !now[c.key] {
			add(c.key.kind, c.closing)
		}
	}
	return append(append(groups[0], groups[1]...), groups[2]...)
}

// Holder is what a client holds that has watched up to j, as far as it is certain.
func (v *View) Holder(j Position) Holder {
	h := Holder{Unsure: v.shuffled.After(j)}
	for _, m := range v.messages {
		if m.at.After(j) {
			continue
		}
		if m.legacy {
			h.Unsure = true // it knows the message by an id of its own
		}
		h.Messages = append(h.Messages, m.id)
	}
	return h
}
