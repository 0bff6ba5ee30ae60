package stream

import (
	"context"
	"slices"
	"time"
)

// verify looks whether the entries that the positions name are still there and still the same, so that no loss goes
// unnoticed: for each key that the read found something for, before that is handed over; for keys that are read anew,
// which all are after an error; and for all others once in [TailConfig.Verify]. Positions whose entry is gone are named
// in the key's reply.
func (t *Tail) verify(ctx context.Context, s *shard, keys []position, live []*followed, replies []reply) ([]reply, error) {
	all := time.Since(s.verified) >= s.verifyIn
	found := make(map[int]int, len(replies)) // key → reply
	for i, r := range replies {
		found[r.key] = i
	}
	var which []int
	var asked []position
	for i, k := range keys {
		r, some := found[i]
		if some && replies[r].err != nil || !all && !k.fresh && !some {
			continue
		}
		if !k.after.IsZero() {
			which, asked = append(which, i), append(asked, k)
		}
		for _, p := range k.ahead {
			which, asked = append(which, i), append(asked, p)
		}
	}
	if len(asked) > 0 {
		anchors, err := t.src.anchors(ctx, s.id, asked)
		if err != nil {
			return nil, err
		}
		replies = t.judge(live, replies, which, asked, anchors)
	}
	if all {
		s.verified, s.verifyIn = time.Now(), jittered(t.cfg.Verify)
	}
	return replies, nil
}

// judge names the positions whose entry is gone in the replies of their keys. The anchors are of the positions that were asked
// for, which of the keys that these belong to.
func (t *Tail) judge(live []*followed, replies []reply, which []int, asked []position, anchors []anchor) []reply {
	found := make(map[int]int, len(replies)) // key → reply
	for i, r := range replies {
		found[r.key] = i
	}
	for n, a := range anchors {
		i, at := which[n], asked[n]
		switch r, some := found[i]; {
		case a.unread:
		case a.held && at.summed && at.sum == a.sum:
		case a.held && !at.summed:
			t.learn(live[i], at.after, a.sum)
		case some:
			replies[r].lost = append(replies[r].lost, at.after)
		default:
			found[i] = len(replies)
			replies = append(replies, reply{key: i, lost: []ID{at.after}})
		}
	}
	slices.SortFunc(replies, func(a, b reply) int { return a.key - b.key })
	return replies
}

// anchor is what stands at a position.
type anchor struct {
	held   bool
	sum    uint32 // of the entry, where held
	unread bool   // the key can't be read, or the position is before all entries
}

// anchorOf makes an anchor of what a read of one id found.
func anchorOf(ms []message) anchor {
	if len(ms) == 0 {
		return anchor{}
	}
	return anchor{held: true, sum: ms[0].sum()}
}

// sum is the checksum of the entry's event.
func (m message) sum() uint32 {
	event, _ := m.fields["event"].(string)
	return Checksum([]byte(event))
}

// learn notes the checksum of a position that was given without one.
func (t *Tail) learn(fk *followed, at ID, sum uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range fk.followers {
		if f.pos == at && !f.summed {
			f.sum, f.summed = sum, true
		}
	}
}

// lose has a follower know that the entry at its position is gone: nothing more comes, or all from the first entry on where
// it wants that. Caller holds Tail.mu.
func (f *follower) lose() {
	if f.rewinds {
		f.pos, f.sum, f.summed = ID{}, 0, false
		return
	}
	f.lost = true
}
