package checker

import (
	"github.com/aguihub/aguihub/stream"
)

// Thread is what was published to the runs of one thread, each with its archive, in the order in which they were begun.
type Thread struct {
	runs []threadRun
}

type threadRun struct {
	hash    uint32
	archive *Archive
}

// Add adds a run. It must not be called while Judge runs.
func (t *Thread) Add(run stream.RunID, a *Archive) {
	t.runs = append(t.runs, threadRun{hash: stream.HashRun(run), archive: a})
}

// Judge is Archive.Judge for a subscriber of the thread: beside what holds for each run, no run begins before the end of
// the one before was told, none is passed over, and a bracket holds what the runs before have left.
func (t *Thread) Judge(s *Subscriber) []string {
	for _, r := range t.runs {
		r.archive.mu.Lock()
	}
	defer func() { // all of them are held until the end
		for _, r := range t.runs {
			r.archive.mu.Unlock()
		}
	}()
	j := judge{thread: t, run: -1, archive: &Archive{}}
	return j.judge(s)
}

// fold is the view as of an entry of run i, as it was before the loss numbered version+1: on what the run's parent left.
func (t *Thread) fold(i int, at stream.ID, version int) *view {
	base := newView()
	if p := t.parent(i, version); p >= 0 {
		base = t.fold(p, stream.MaxID, version)
	}
	return t.runs[i].archive.fold(at, version, base)
}

// parent is the run that run i goes on from: the newest that started before it and had ended; -1 for none.
func (t *Thread) parent(i, version int) int {
	start, _, ok := t.runs[i].archive.span(version)
	best, newest := -1, stream.ID{}
	for k := range t.runs {
		s, end, started := t.runs[k].archive.span(version)
		if k != i && ok && started && s.Less(start) && !end.IsZero() && end.Ms <= start.Ms && newest.Less(s) {
			best, newest = k, s
		}
	}
	return best
}

// span is where the run starts and ends, as it was before the loss numbered version+1.
func (a *Archive) span(version int) (start, end stream.ID, ok bool) {
	for _, e := range a.entries {
		switch {
		case !e.in(version):
		case e.Kind == Start && !ok:
			start, ok = e.ID, true
		case e.Kind == End:
			end = e.ID
		}
	}
	return start, end, ok
}

// enter goes on with the run of a step.
func (j *judge) enter(st step) {
	if j.crossed = false; j.thread == nil {
		return
	}
	to := -1
	for i, r := range j.thread.runs {
		if r.hash == st.run {
			to = i
		}
	}
	switch {
	case to < 0:
		j.say("a cursor of a run that isn't the thread's")
		return
	case to == j.run:
		return
	case st.kind == entryStep && j.run >= 0:
		if !j.ended {
			j.say("an entry of run %d comes before the end of run %d", to, j.run)
		}
		for i := j.run + 1; i < to; i++ {
			if _, _, there := j.thread.runs[i].archive.span(j.thread.runs[i].archive.losses); there {
				j.say("an entry of run %d comes, and none of run %d", to, i)
			}
		}
	}
	j.before, j.pos, j.crossed, j.ended = j.pos, stream.ID{}, true, false
	j.run, j.archive = to, j.thread.runs[to].archive
}
