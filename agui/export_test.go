package agui

import "slices"

// OwnerConflict says whether the tail speaks, under a subagent's tag, of something whose owner a snapshot would change.
// A snapshot makes the subagent that a message names its owner, and that of its calls; a client that watched goes by
// who opened them. Where the two differ (an id that two producers used) and the tail carries tags, what a watcher
// accepts is fatal after any snapshot.
func OwnerConflict(r *Run, tail [][]byte) bool {
	changed := map[string]bool{}
	note := func(in bucket, id string, by tag) {
		if was, known := r.adm.owners[in][id]; !known || was != by {
			changed[id] = true
		}
	}
	for _, m := range r.View().messages {
		var by tag
		eachElement(joinMessages(nil, []viewMessage{m}, nil), func(o []byte) bool {
			if t := member(o, "subagentRunId"); isString(t) {
				by = tag{decode(t), true}
			}
			return true
		})
		in := inMessages
		switch m.role {
		case "reasoning":
			in = inReasoning
		case "activity":
			in = inActivities
		}
		note(in, m.id, by)
		for _, c := range m.calls {
			note(inTools, c, by)
		}
	}
	var e Event
	for _, line := range tail {
		if e.Parse(line) != nil {
			continue
		}
		if e.Type == RunStarted {
			return false
		}
		for _, f := range [...]field{fMessageID, fToolCallID, fParentMessageID, fEntityID} {
			if id, ok := e.text(f); ok && changed[id] {
				return true
			}
		}
	}
	return false
}

// LostCall says whether a chunk lane holds a tool call that the conversation lost to an activity of the same id. Opening
// it again makes the call anew, and only a snapshot, which closes all lanes, could drop it.
func LostCall(v *View) bool {
	for _, l := range v.lanes {
		if l.kind == itemTool && !slices.ContainsFunc(v.messages, func(m viewMessage) bool { return slices.Contains(m.calls, l.id) }) {
			return true
		}
	}
	return false
}

// Unpacked are the bytes of a checkpoint before they are compressed, Repacked compresses such bytes.
func Unpacked(c *Checkpoint) []byte {
	data, err := c.Pack(1 << 26)
	if err != nil {
		panic(err)
	}
	u, err := newUnpacker(data, runHeader, 1<<26)
	if err != nil {
		panic(err)
	}
	return u.in
}

// Repacked compresses bytes as a checkpoint.
func Repacked(raw []byte) []byte {
	data, err := (&packer{out: raw}).finish(runHeader, 1<<26)
	if err != nil {
		panic(err)
	}
	return data
}
