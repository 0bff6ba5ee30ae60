package backfill

import (
	"encoding/json"

	"github.com/aguihub/aguihub/agui"
	"github.com/aguihub/aguihub/hub"
	"github.com/aguihub/aguihub/stream"
)

// Item is one thing that a session hands to its transport: a control line, a restated event, or a live entry. Exactly
// one of Control, Event and Delivery is set. The bytes are immutable and may be shared.
type Item struct {
	// Control is a control line's name and Line the whole line as JSON. Transports without control lines look at the
	// name only: ControlReset means that what follows starts from nothing.
	Control string
	Line    []byte
	mode    string // of a ControlCatchup
	// Event is an event of a preamble or a catch-up.
	Event []byte
	// Restated is the event where it is large, else nil: wires may make a form of it once for all who get the same.
	Restated *agui.Restated
	// Delivery is an entry of the run. It may have no event to send (withheld) or more than one (closings).
	Delivery *hub.Delivery
	// Cursor is where one may resume after this item; zero where nowhere. For a Delivery it is its own, with the run's
	// hash on a thread.
	Cursor stream.Cursor
}

// Names of control lines: docs/contract.md, section 3.
const (
	ControlAttached = "attached"
	ControlCatchup  = "catchup"
	ControlLive     = "live"
	ControlReset    = "reset"
	ControlEnded    = "ended"
	ControlSkipped  = "skipped"
	ControlStalled  = "stalled"
)

type controlAttached struct {
	Control string           `json:"control"`
	Run     *stream.RunID    `json:"run"`
	Thread  *stream.ThreadID `json:"thread"`
	History string           `json:"history"`
	Hub     string           `json:"hub"`
}

type controlCatchup struct {
	Control string  `json:"control"`
	From    *string `json:"from"`
	Mode    string  `json:"mode"`
}

type controlLive struct {
	Control string  `json:"control"`
	ID      *string `json:"id"`
	Omitted int     `json:"omitted,omitempty"`
}

type controlReset struct {
	Control   string  `json:"control"`
	Reason    string  `json:"reason"`
	Requested *string `json:"requested"`
	Earliest  *string `json:"earliest"`
	Latest    *string `json:"latest"`
}

type controlEnded struct {
	Control string       `json:"control"`
	Run     stream.RunID `json:"run"`
}

type controlSkipped struct {
	Control string `json:"control"`
	ID      string `json:"id"`
	Reason  string `json:"reason"`
}

type controlStalled struct {
	Control string `json:"control"`
	Since   int64  `json:"since"` // milliseconds since 1970, by the clock of Redis
}

func control(name string, line any) Item {
	b, err := json.Marshal(line)
	if err != nil {
		panic("backfill: control line: " + err.Error()) // plain structs of strings and numbers always encode
	}
	return Item{Control: name, Line: b}
}

func attached(run stream.RunID, thread stream.ThreadID, full bool, name string) Item {
	c := controlAttached{Control: ControlAttached, History: "partial", Hub: name}
	if run != "" {
		c.Run = &run
	}
	if thread != "" {
		c.Thread = &thread
	}
	if full {
		c.History = "full"
	}
	return control(ControlAttached, c)
}

// catchup opens a bracket; from is the cursor that it goes on from, "" for nothing.
func catchup(mode, from string) Item {
	c := controlCatchup{Control: ControlCatchup, Mode: mode}
	if from != "" {
		c.From = &from
	}
	it := control(ControlCatchup, c)
	it.mode = mode
	return it
}

func live(cursor stream.Cursor, omitted int) Item {
	c := controlLive{Control: ControlLive, Omitted: omitted}
	if !cursor.Entry.IsZero() {
		id := cursor.String()
		c.ID = &id
	}
	it := control(ControlLive, c)
	it.Cursor = cursor
	return it
}

func ended(run stream.RunID) Item {
	return control(ControlEnded, controlEnded{ControlEnded, run})
}
