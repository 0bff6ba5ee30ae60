package agui

import (
	"bytes"
	"maps"
)

// Checkpoint is a Run at one entry, immutable: it shares the run's bytes, and the run goes on beside it.
type Checkpoint struct {
	run    Run // of it only what is packed
	view   *View
	owners [numBuckets]map[string]tag
	items  []opened
	held   []*laneState // by item; nil for an explicit one
	// missing says that the last patch left the state without a value.
	missing bool
	fold    fold // of it only what is packed and View hasn't
}

// Checkpoint is the run as of the entry that was applied last. It costs a small step for each message, item and owner.
func (r *Run) Checkpoint() *Checkpoint {
	a, f := &r.adm, r.fold
	c := &Checkpoint{view: r.View(), missing: f.state.missing()}
	c.run = Run{
		base: r.base, input: r.input, known: r.known, inEvent: r.inEvent, terminal: r.terminal, entries: r.entries, at: r.at,
		adm: Admission{started: a.started, ended: a.ended, thoughts: a.thoughts, seq: a.seq, closed: a.closed},
	}
	c.fold = fold{
		pending: f.pending, pendingEnd: f.pendingEnd, lastStart: f.lastStart, lastFinish: f.lastFinish, shuffled: f.shuffled,
		hadReasoning: f.hadReasoning, hadActivity: f.hadActivity, started: f.started, runID: f.runID, passed: f.passed,
	}
	for i := range a.owners {
		c.owners[i] = maps.Clone(a.owners[i])
	}
	for o := a.first; o != nil; o = o.next {
		c.items = append(c.items, *o)
		var held *laneState
		if o.held != nil {
			l := *o.held
			held = &l
		}
		c.held = append(c.held, held)
	}
	return c
}

// Size is about what the checkpoint weighs before it is compressed, in bytes.
func (c *Checkpoint) Size() int { return c.view.Size() + c.view.customs.bytes + c.view.raws.bytes }

// Pack makes bytes of the checkpoint, at most limit before they are compressed.
func (c *Checkpoint) Pack(limit int) ([]byte, error) {
	p := newPacker()
	r := &c.run
	p.position(r.at)
	p.count(r.entries)
	p.flag(r.known)
	p.flag(r.inEvent)
	p.value(r.terminal)
	input, base := r.input, r.base
	if r.adm.ended { // nothing begins anew any more
		input = nil
		if base != nil {
			base = &Conversation{Full: base.Full, LastStart: base.LastStart, LastFinish: base.LastFinish}
		}
	}
	p.input(input)
	p.flag(base != nil)
	if base != nil {
		p.conversation(base)
	}
	p.packFold(c)
	p.packAdmission(c)
	return p.finish(runHeader, limit)
}

func (p *packer) packFold(c *Checkpoint) {
	f, v := &c.fold, c.view
	p.flag(v.StateKnown)
	p.flag(c.missing)
	p.value(v.state)
	for _, value := range [...][]byte{f.pending, f.pendingEnd, f.lastStart, f.lastFinish, f.started} {
		p.value(value)
	}
	p.text(f.runID)
	p.position(f.shuffled)
	p.flag(f.hadReasoning)
	p.flag(f.hadActivity)
	p.count(f.passed)
	p.passing(&v.customs)
	p.passing(&v.raws)
	p.count(len(v.messages))
	first := make(map[*message]int, len(v.messages))
	for i, m := range v.messages {
		if at, again := first[m.self]; again { // a snapshot made two messages of one id one and the same
			p.count(at + 1)
			continue
		}
		first[m.self] = i
		p.count(0)
		p.position(m.at)
		p.flag(m.legacy)
		p.flag(len(m.segs) > 1) // it was opened up
		if len(m.segs) == 1 {
			p.value(m.segs[0])
		} else {
			p.value(bytes.Join(m.segs, nil))
		}
	}
}

func (p *packer) passing(x *passing) {
	p.count(x.dropped)
	p.count(len(x.omitted))
	for _, at := range x.omitted {
		p.position(at)
	}
	p.count(len(x.events))
	for _, e := range x.events {
		p.count(e.order)
		p.position(e.at)
		p.value(e.raw)
	}
}

func (p *packer) packAdmission(c *Checkpoint) {
	a := &c.run.adm
	p.flag(a.started)
	p.flag(a.ended)
	p.count(a.thoughts)
	p.number(a.seq)
	for _, owners := range c.owners {
		p.count(len(owners))
		for id, t := range owners {
			p.text(id)
			p.tag(t)
		}
	}
	p.count(len(c.view.subagents))
	for _, s := range c.view.subagents {
		p.text(s.id)
		p.value(s.start)
		p.flag(s.finished)
		p.position(s.startedAt)
		p.position(s.finishedAt)
	}
	p.count(len(c.items))
	for i := range c.items {
		o, l := &c.items[i], c.held[i]
		p.count(int(o.kind))
		p.text(o.id)
		p.tag(o.tag)
		p.value(o.opener)
		p.text(o.parent)
		p.flag(o.legacy)
		p.position(o.at)
		p.flag(l != nil)
		if l != nil {
			p.tag(l.owner)
			p.number(l.seq)
			p.tag(l.first)
			p.tag(l.second)
		}
	}
	p.position(a.closed.floor)
	p.count(len(a.closed.items))
	for _, it := range a.closed.items {
		p.count(int(it.key.kind))
		p.text(it.key.id)
		p.tag(it.key.owner)
		p.flag(it.key.legacy)
		p.position(it.opened)
		p.position(it.closed)
	}
}
