package checker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aguihub/aguihub/stream"
)

// step is one thing that happened to a subscriber.
type step struct {
	kind stepKind
	id   stream.ID // of an entry; of a bracket, where it ends
	run  uint32    // hash of its run, on a thread
	bare bool      // id isn't known, only n
	n    int       // counter of an entry's event, 0 where it has none

	// of a bracket
	from    stream.ID // zero for nothing
	fresh   bool      // the client began from nothing
	digest  string    // of the view, when the bracket was applied
	customs []int     // counters of its CUSTOM events
	omitted int
	exact   bool   // of events only, which were judged one by one: it adds nothing
	reason  string // of a reset

	when time.Time
}

type stepKind int

const (
	entryStep stepKind = iota
	bracketStep
	resetStep
	endStep
)

// Judge compares a subscriber's record with what was published and returns what the contract doesn't allow:
// an entry that came twice or out of order, one that is there and never came, one that nobody published, a bracket that
// doesn't leave the client with what was published up to its end, an end before the run's.
func (a *Archive) Judge(s *Subscriber) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	j := judge{archive: a}
	return j.judge(s)
}

func (j *judge) judge(s *Subscriber) []string {
	for i, st := range s.steps {
		j.at = i
		before := len(j.found)
		j.step(st)
		if before == 0 && len(j.found) > 0 {
			j.found[0] += "; steps: " + lately(s.steps[max(0, i-5):i+1])
		}
	}
	for i := range j.found {
		j.found[i] = s.name + ": " + j.found[i]
	}
	return j.found
}

// lately tells the steps that led to a violation.
func lately(steps []step) string {
	told := make([]string, len(steps))
	for i, st := range steps {
		switch st.kind {
		case entryStep:
			told[i] = fmt.Sprintf("entry %s of %08x (counter %d)", st.id, st.run, st.n)
		case bracketStep:
			told[i] = fmt.Sprintf("bracket %s to %s of %08x (fresh %t, exact %t)", st.from, st.id, st.run, st.fresh, st.exact)
		case resetStep:
			told[i] = "reset " + st.reason
		case endStep:
			told[i] = "end"
		}
		if !st.when.IsZero() {
			told[i] += st.when.Format(" at 15:04:05.000")
		}
	}
	return strings.Join(told, ", ")
}

type judge struct {
	archive *Archive  // of the current run
	thread  *Thread   // nil for a run
	run     int       // the current one of the thread; -1 for none
	ended   bool      // it was told that the run has ended
	trimmed bool      // it was told that what it held was trimmed, and nothing since
	crossed bool      // the step is the first one of another run
	before  stream.ID // where the subscriber stood in the run before
	at      int
	pos     stream.ID
	gone    int // the first loss that took something of what the client holds; 0 for none
	found   []string
}

func (j *judge) say(format string, args ...any) {
	j.found = append(j.found, fmt.Sprintf("step %d, at %s: ", j.at, j.pos)+fmt.Sprintf(format, args...))
}

func (j *judge) step(st step) {
	if st.bare && st.kind != resetStep && !j.resolve(&st) {
		return
	}
	switch st.kind {
	case resetStep:
		j.pos, j.gone, j.run, j.trimmed = stream.ID{}, 0, -1, st.reason == "trimmed"
	case entryStep:
		j.enter(st)
		j.entry(st)
		j.hold(st.id)
	case bracketStep:
		j.enter(st)
		if st.fresh {
			j.gone = 0
		}
		j.bracket(st)
		j.trimmed = false
		j.hold(st.id)
	case endStep:
		if i, ok := j.find(j.pos); !ok || j.archive.entries[i].Kind != End {
			j.say("it ended before the run's end")
		}
		j.ended = true
	}
}

// resolve finds the entry that a subscriber without cursors means, by its counter.
func (j *judge) resolve(st *step) bool {
	if st.kind == endStep {
		j.resolveEnd()
		return true
	}
	for _, e := range j.archive.entries {
		if e.N == st.n && e.N > 0 {
			st.id = e.ID
			return true
		}
	}
	j.say("counter %d, which nobody published", st.n)
	return false
}

// resolveEnd has a subscriber without cursors stand at the run's end: at one that was lost later, or at that which stayed, as
// long as nothing that has a counter and was there by then is missing.
func (j *judge) resolveEnd() {
	missed := 0
	for i, e := range j.archive.entries {
		if e.Kind != End {
			continue
		}
		version := j.archive.losses
		if e.gone > 0 {
			version = e.gone - 1
		}
		missed = 0
		for _, before := range j.archive.entries[:i] {
			if before.N > 0 && before.in(version) && j.pos.Less(before.ID) {
				missed = before.N
			}
		}
		if missed == 0 {
			j.pos = e.ID
			return
		}
	}
	if missed > 0 {
		j.say("it ended without counter %d", missed)
	}
}

// hold has the client hold an entry. What was published after a loss mustn't come to one who holds what was lost.
func (j *judge) hold(id stream.ID) {
	j.pos = id
	i, ok := j.find(id)
	if !ok {
		return
	}
	e := j.archive.entries[i]
	if j.gone > 0 && e.born >= j.gone {
		j.say("an entry that was published after loss %d came, and no reset, to one who holds what was lost", j.gone)
		j.gone = 0 // once is enough
	}
	if e.gone > 0 && (j.gone == 0 || e.gone < j.gone) {
		j.gone = e.gone
	}
}

// find returns the place of an entry, or where it would be.
func (j *judge) find(id stream.ID) (int, bool) {
	return slices.BinarySearchFunc(j.archive.entries, id, func(e Entry, id stream.ID) int { return e.ID.Compare(id) })
}

func (j *judge) entry(st step) {
	i, ok := j.find(st.id)
	switch {
	case !ok:
		j.say("entry %s, which nobody published", st.id)
		return
	case !j.pos.Less(st.id):
		j.say("entry %s again", st.id)
		return
	case j.archive.entries[i].N != st.n:
		j.say("entry %s has counter %d, published %d", st.id, st.n, j.archive.entries[i].N)
	}
	if j.pos.IsZero() && !j.crossed {
		return
	}
	for i--; i >= 0 && j.pos.Less(j.archive.entries[i].ID); i-- {
		if e := j.archive.entries[i]; e.gone == 0 && (e.N > 0 || !st.bare) {
			j.say("entry %s (counter %d, trimmed %v) is missing before %s", e.ID, e.N, e.trimmed, st.id)
			return
		}
	}
}

func (j *judge) bracket(st step) {
	i, ok := j.find(st.id)
	if !ok {
		j.say("a bracket ends at %s, which nobody published", st.id)
		return
	}
	if !st.fresh && !j.crossed && (st.id.Less(j.pos) || st.from != j.pos) ||
		!st.fresh && j.crossed && !st.from.IsZero() && st.from != j.before {
		j.say("a bracket from %s to %s", st.from, st.id)
	}
	matches := func(version int) bool {
		return j.fold(st.id, version).digest() == st.digest || j.trimmed && j.isLeft(st, version)
	}
	if !slices.ContainsFunc(versions(j.archive.entries[i].born, j.archive.losses), matches) {
		var published strings.Builder
		for _, v := range versions(j.archive.entries[i].born, j.archive.losses) {
			fmt.Fprintf(&published, ", after loss %d: %s", v, j.fold(st.id, v).digest())
		}
		j.say("a bracket to %s (fresh %v, run %d) leaves %s, published%s", st.id, st.fresh, j.run, st.digest, published.String())
	}
	if !slices.IsSorted(st.customs) || len(slices.Compact(slices.Clone(st.customs))) != len(st.customs) {
		j.say("CUSTOM events out of order: %v", st.customs)
	}
	if st.omitted > 0 || st.fresh || j.crossed {
		return
	}
	for _, e := range j.archive.entries {
		if st.from.Less(e.ID) && !st.id.Less(e.ID) && (st.exact || e.Kind == Custom) && e.gone == 0 && !slices.Contains(st.customs, e.N) {
			j.say("a bracket from %s to %s lacks counter %d", st.from, st.id, e.N)
			return
		}
	}
}

// isLeft says whether a bracket leaves what one makes of what a trim left of a run: all that a hub can show that was behind
// the trim, and tells by the reset that comes before.
func (j *judge) isLeft(st step, version int) bool {
	for trim := 1; trim <= j.archive.trims; trim++ {
		if j.archive.foldLeft(st.id, version, trim, newView()).digest() == st.digest {
			return true
		}
	}
	return false
}

// fold is what a client holds at an entry of the current run.
func (j *judge) fold(at stream.ID, version int) *view {
	if j.thread == nil {
		return j.archive.fold(at, version, newView())
	}
	return j.thread.fold(j.run, at, version)
}

// versions are the numbers from first to last.
func versions(first, last int) []int {
	var all []int
	for n := first; n <= last; n++ {
		all = append(all, n)
	}
	return all
}
