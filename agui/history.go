package agui

import "cmp"

// Position is an entry's place in its run: whatever the caller orders entries by, in two words. The zero Position is
// before every entry.
type Position struct{ Hi, Lo uint64 }

// Compare returns -1, 0 or 1 as p is before, at or after q.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Hi, q.Hi), cmp.Compare(p.Lo, q.Lo))
}

// After says whether p is after q.
func (p Position) After(q Position) bool { return p.Compare(q) > 0 }

// history is what was open in a run and no longer is, so that it can be told what a subscriber who is behind still
// takes for open. Items of chunk lanes aren't noted: a snapshot closes those.
type history struct {
	items []closedItem // in order of closing; only ever appended to
	floor Position     // what closed at it or before may be missing
}

type closedItem struct {
	key     itemKey
	opened  Position
	closed  Position
	closing []byte
	private bool // of a message that a veil hides
}

// itemKey tells explicit items apart.
type itemKey struct {
	kind   itemKind
	id     string
	owner  tag // of steps only
	legacy bool
}

// maxClosed bounds the history of a run; 8,192 items cost about 1.5 MB.
const maxClosed = 8192

// remember notes an explicit item that is being closed.
func (a *Admission) remember(o *opened) {
	if o.held != nil {
		return
	}
	h := &a.closed
	if len(h.items) >= maxClosed {
		half := len(h.items) / 2
		h.floor = h.items[half-1].closed
		h.items = append(make([]closedItem, 0, maxClosed), h.items[half:]...)
	}
	h.items = append(h.items, closedItem{key: o.key(), opened: o.at, closed: a.at, closing: o.closing(), private: private(o.kind, o.opener)})
}

func (o *opened) key() itemKey {
	k := itemKey{kind: o.kind, id: o.id, legacy: o.legacy}
	if o.kind == itemStep {
		k.owner = o.tag
	}
	return k
}

func (it openItem) key() itemKey {
	k := itemKey{kind: it.kind, id: it.id, legacy: it.legacy}
	if it.kind == itemStep {
		k.owner = tag{it.owner, it.owned}
	}
	return k
}

// openAt returns the items that were open at j and are closed now; false where too much was closed since to say.
func (h *history) openAt(j Position) (items []closedItem, known bool) {
	if h.floor.After(j) {
		return nil, false
	}
	for i := len(h.items) - 1; i >= 0 && h.items[i].closed.After(j); i-- {
		if !h.items[i].opened.After(j) {
			items = append(items, h.items[i])
		}
	}
	return items, true
}
