package agui

import "slices"

// twins says whether a snapshot has made messages of one id one and the same, and all that share an id.
func (f *fold) twins() bool {
	first, found := make(map[string]*message, len(f.msgs)), false
	for _, m := range f.msgs {
		other, again := first[m.id]
		if again && other != m {
			return false
		}
		first[m.id], found = m, found || again
	}
	return found
}

// snapshot reconciles with a MESSAGES_SNAPSHOT: replaces in place by id, appends what is new in the snapshot's order,
// drops what it lacks, but keeps activity and reasoning messages that it doesn't speak about.
func (f *fold) snapshot(raw, meta []byte) {
	var incoming []*message
	last := map[string]*message{}
	hasActivity, hasReasoning := false, false
	eachElement(raw, func(v []byte) bool {
		if drop, err := checkMessage(v); drop || err != nil {
			return true
		}
		m := readMessage(v)
		f.size += messageCost + len(v)
		incoming = append(incoming, m)
		last[m.id] = m
		hasActivity = hasActivity || m.role == "activity"
		hasReasoning = hasReasoning || m.role == "reasoning"
		return true
	})
	owns := activityOwnership(meta, hasActivity)
	kept := make([]*message, 0, len(f.msgs)+len(incoming))
	held := map[string]bool{}
	for _, m := range f.msgs {
		by, ok := last[m.id]
		switch {
		case ok:
			if by.at == (Position{}) || m.at.Compare(by.at) < 0 {
				by.at = m.at
			}
			if held[m.id] {
				f.shuffled = f.at
			}
			m = by
		case m.role == "activity" && !owns(m), m.role == "reasoning" && !hasReasoning:
		default:
			f.shuffled = f.at
			continue
		}
		kept = append(kept, m)
		held[m.id] = true
	}
	for _, m := range incoming {
		if !held[m.id] {
			m.at = f.at
			kept = append(kept, m)
			if last[m.id] != m {
				f.shuffled = f.at
			}
		}
	}
	f.reset(kept)
}

// reset makes the list of messages anew, with its maps.
func (f *fold) reset(msgs []*message) {
	f.msgs = msgs
	clear(f.byID)
	clear(f.call)
	for _, m := range msgs {
		f.note(m)
		if _, ok := f.byID[m.id]; !ok {
			f.byID[m.id] = m
		}
		for _, c := range m.calls {
			if _, ok := f.call[c.id]; !ok {
				f.call[c.id] = m
			}
		}
	}
}

// activityOwnership reads which activity messages a snapshot without them removes: the client's own convention in the
// metadata, else all of them if the snapshot has any.
func activityOwnership(meta []byte, hasActivity bool) func(*message) bool {
	inferred := func(*message) bool { return hasActivity }
	if !isObject(meta) {
		return inferred
	}
	convention := member(meta, "@ag-ui/client")
	if convention == nil {
		return inferred
	}
	none := func(*message) bool { return false }
	if !isObject(convention) {
		return none
	}
	types := member(convention, "authoritativeActivityTypes")
	switch {
	case types == nil:
		return inferred
	case isNull(types):
		return func(*message) bool { return true }
	case !isArray(types):
		return none
	}
	var owned []string
	valid := true
	eachElement(types, func(v []byte) bool {
		if !isString(v) {
			valid = false
			return false
		}
		owned = append(owned, decode(v))
		return true
	})
	if !valid {
		return none
	}
	return func(m *message) bool { return slices.Contains(owned, m.activityType()) }
}

// activityType is an activity message's type, decoded.
func (m *message) activityType() string {
	raw := m.whole
	if raw == nil {
		raw = append(append([]byte{'{'}, m.rest...), '}')
	}
	if t := member(raw, "activityType"); isString(t) {
		return decode(t)
	}
	return ""
}

// begin takes what a run started from: messages of its input that aren't held yet, and its state where none is known.
// It reports whether the whole input could be used.
func (f *fold) begin(input []byte, verbatim bool) bool {
	if !isObject(input) {
		return false
	}
	messages := member(input, "messages")
	whole := isArray(messages)
	if whole {
		empty := len(f.msgs) == 0
		eachElement(messages, func(v []byte) bool {
			if drop, err := checkMessage(v); drop || err != nil {
				whole = whole && drop
				return true
			}
			m := readMessage(v)
			if f.byID[m.id] == nil || (empty && verbatim) {
				f.push(m)
			}
			return true
		})
	}
	if state := member(input, "state"); !f.stateKnown && state != nil && !isNull(state) {
		f.setState(state)
	}
	return whole
}
