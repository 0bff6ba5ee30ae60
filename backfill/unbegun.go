package backfill

import (
	"errors"
	"fmt"

	"github.com/aguihub/aguihub/stream"
)

// ErrNotBegun says that a run has entries, and none that begins it: its RUN_STARTED is missing, or withheld.
var ErrNotBegun = fmt.Errorf("%w: it has entries, but none that begins it", ErrUnknownRun)

// errUnbegun says that the current run has entries that the subscriber wasn't told of, and none that begins it.
var errUnbegun = errors.New("backfill: the run hasn't begun")

// mayKnow says whether the subscriber may know that the current run has entries, though it hasn't begun. Call it under the
// feed's lock.
func (ses *Session) mayKnow() bool {
	g := ses.request.Grant
	return g == nil || g.Open() || g.Sees(string(ses.current.run), string(ses.machine.thread))
}

// isToTell says whether the current run, which hasn't begun, has entries that the subscriber is to be told of. One who is
// attached already waits for a thread's next run, and has lost nothing yet. Call it under the feed's lock.
func (ses *Session) isToTell() bool {
	return ses.request.Skips && !ses.attached && ses.machine.entries > ses.told && ses.mayKnow()
}

// tellSkips are the control lines for what of the current run the subscriber wasn't told: each of its entries was withheld.
// Where they are many it is the newest, as many as look-ups list.
func (ses *Session) tellSkips() (items []Item) {
	ses.feed.With(func(stream.ID) {
		list := ses.machine.withheld.newest
		for _, w := range list[max(0, len(list)-(ses.machine.entries-ses.told)):] {
			line := controlSkipped{Control: ControlSkipped, ID: w.ID, Reason: w.Reason}
			if c, err := stream.ParseCursor(w.ID); err == nil {
				line.ID = ses.place(c).String()
			}
			items = append(items, control(ControlSkipped, line))
		}
		ses.told = ses.machine.entries
	})
	return items
}

// unknown is why the current run isn't waited for any longer.
func (ses *Session) unknown() (err error) {
	ses.feed.With(func(stream.ID) {
		err = ErrUnknownRun
		if ses.machine.entries > 0 && ses.mayKnow() {
			err = ErrNotBegun
		}
	})
	return err
}
