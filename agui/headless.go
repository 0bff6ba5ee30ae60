package agui

import "bytes"

// BeginWithoutStart begins a run whose RUN_STARTED, and perhaps more, isn't there any more: what it started from isn't
// known, and what its events refer to may not be either. thread and run are ids as they stand in JSON, at a position
// before that of the first entry. It has no effect once the run has started.
func (r *Run) BeginWithoutStart(thread, run []byte, at Position) {
	if r.adm.Started() {
		return
	}
	event := bytes.Join([][]byte{[]byte(`{"type":"RUN_STARTED","threadId":`), thread, []byte(`,"runId":`), run, []byte(`}`)}, nil)
	r.Apply(Entry{At: at, Event: event})
	r.entries--
}

// Admission is what the run judges its next event by. It is the run's own: who takes it leaves the run alone.
func (r *Run) Admission() *Admission { return &r.adm }

// StartEvent is the run's RUN_STARTED without its input; nil before there was one.
func (r *Run) StartEvent() []byte { return r.fold.started }
