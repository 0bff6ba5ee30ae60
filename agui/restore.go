package agui

// RestoreRun makes a run of what Checkpoint.Pack made, at most limit bytes of it: it goes on as the one that was packed.
// data is read as untrusted. Every error is ErrCheckpoint.
func RestoreRun(data []byte, config RunConfig, limit int) (*Run, error) {
	u, err := newUnpacker(data, runHeader, limit)
	if err != nil {
		return nil, err
	}
	r := NewRun(nil, config)
	r.at, r.entries = u.position(), u.counter()
	r.known, r.inEvent = u.flag(), u.flag()
	r.terminal = u.object(true)
	r.input = u.input()
	if u.flag() {
		r.base = u.conversation()
	}
	u.readFold(r.fold)
	u.readAdmission(&r.adm)
	r.fold.at, r.adm.at = r.at, r.at
	if err := u.done(); err != nil {
		return nil, err
	}
	r.fold.measure()
	return r, nil
}

// At is the position of the entry that was applied last.
func (r *Run) At() Position { return r.at }

// Entries is how many entries were applied.
func (r *Run) Entries() int { return r.entries }

func (u *unpacker) readFold(f *fold) {
	known, missing, state := u.flag(), u.flag(), u.value()
	switch {
	case known && state == nil:
		u.fail("a state is missing")
	case known:
		f.setState(state)
		if missing {
			f.state.root = value{}
		}
	}
	for _, v := range [...]*[]byte{&f.pending, &f.pendingEnd, &f.lastStart, &f.lastFinish, &f.started} {
		*v = u.object(true)
	}
	f.runID = u.text()
	shuffled, hadReasoning, hadActivity := u.position(), u.flag(), u.flag()
	f.passed = u.counter()
	f.customs, f.raws = u.passing(), u.passing()
	for range u.count() {
		if twin := u.counter(); twin > len(f.msgs) {
			u.fail("a message is the same as one that comes later")
		} else if twin > 0 && u.err == nil {
			m := f.msgs[twin-1]
			at := m.at
			f.push(m)
			m.at = at
			continue
		}
		at, legacy, opened := u.position(), u.flag(), u.flag()
		m := readMessage(u.object(false))
		if u.err != nil {
			return
		}
		m.legacy = legacy
		if opened && m.role == "reasoning" {
			m.open() // a preamble may stream its body again
		}
		f.push(m)
		m.at = at
	}
	f.shuffled, f.hadReasoning, f.hadActivity = shuffled, hadReasoning, hadActivity
}

func (u *unpacker) passing() passing {
	p := passing{dropped: u.counter()}
	for range u.count() {
		p.omitted = append(p.omitted, u.position())
	}
	for range u.count() {
		e := passingEvent{u.counter(), u.position(), u.object(false)}
		p.events = append(p.events, e)
		p.bytes += len(e.raw)
	}
	if len(p.events) > maxPassing || p.bytes > maxPassingBytes || len(p.omitted) > 8*maxPassing {
		// One event may be larger than the bound by itself only if it is alone; then it was dropped.
		u.fail("more events than are kept")
	}
	return p
}

func (u *unpacker) readAdmission(a *Admission) {
	a.started, a.ended = u.flag(), u.flag()
	a.thoughts, a.seq = u.counter(), u.number()
	for in := range a.owners {
		for range u.count() {
			id := u.text()
			a.own(bucket(in), id, u.tag())
		}
	}
	for range u.count() {
		s := &subagent{id: u.text(), start: u.object(false), finished: u.flag(), startedAt: u.position(), finishedAt: u.position()}
		if a.byID == nil {
			a.byID = map[string]*subagent{}
		}
		if a.byID[s.id] != nil {
			u.fail("a subagent stands there twice")
		}
		a.byID[s.id] = s
		a.subs = append(a.subs, s)
	}
	for range u.count() {
		u.readItem(a)
	}
	a.closed.floor = u.position()
	n := u.count()
	if n > maxClosed {
		u.fail("more closed items than are kept")
		return
	}
	for range n {
		it := closedItem{key: itemKey{kind: u.kind(), id: u.text(), owner: u.tag(), legacy: u.flag()}, opened: u.position(), closed: u.position()}
		it.closing = (&opened{kind: it.key.kind, id: it.key.id, tag: it.key.owner, legacy: it.key.legacy}).closing()
		a.closed.items = append(a.closed.items, it)
	}
	if a.ended { // as forget leaves it
		a.byID = nil
	}
}

func (u *unpacker) kind() itemKind {
	n := u.number()
	if n >= uint64(numItemKinds) {
		u.fail("an item of an unknown kind")
		return 0
	}
	return itemKind(n)
}

// readItem opens an item, and its chunk lane.
func (u *unpacker) readItem(a *Admission) {
	o := &opened{kind: u.kind(), id: u.text(), tag: u.tag(), opener: u.object(false), parent: u.text(), legacy: u.flag()}
	a.at = u.position()
	var l *laneState
	if u.flag() {
		l = &laneState{kind: o.kind, owner: u.tag(), item: o, seq: u.number(), first: u.tag(), second: u.tag()}
	}
	if u.err != nil {
		return
	}
	var twice bool
	switch {
	case o.legacy && (o.kind == itemSpan || o.kind == itemReasoning) && l == nil:
		place := a.legacy(o.kind)
		twice = *place != nil
		*place = o
	case o.legacy:
		u.fail("an item can't be a legacy one")
		return
	case o.kind == itemStep:
		key := stepKey{o.tag, o.id}
		if a.steps == nil {
			a.steps = map[stepKey]*opened{}
		}
		twice = a.steps[key] != nil || l != nil
		a.steps[key] = o
	default:
		if a.open[o.kind] == nil {
			a.open[o.kind] = map[string]*opened{}
		}
		twice = a.open[o.kind][o.id] != nil
		a.open[o.kind][o.id] = o
	}
	if l != nil {
		if a.byOwner == nil {
			a.byOwner = map[tag]*laneState{}
		}
		if a.byKind[l.kind] == nil {
			a.byKind[l.kind] = map[*laneState]struct{}{}
		}
		twice = twice || a.byOwner[l.owner] != nil
		a.byOwner[l.owner], a.byKind[l.kind][l] = l, struct{}{}
		o.held = l
	}
	if twice {
		u.fail("an item is open twice")
		return
	}
	a.link(o)
}
