package load

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"github.com/aguihub/aguihub/loadtest/checker"
)

// Event is something to publish to a run.
type Event struct {
	Run  int
	Kind checker.Kind
	N    int // counter of a text event, from 1; 0 for all others
	Data []byte
}

// epoch is what events' times count from. It is greater than any time that a test takes, so that all have as many digits.
const epoch = int64(1e15)

var began = time.Now()

// stamp is a moment as events bear it: on the monotonic clock, in nanoseconds.
func stamp(t time.Time) int64 { return epoch + int64(t.Sub(began)) }

// Where a reader finds an event's counter and its time, whatever stands around the event.
var (
	deltaMark = []byte(`"delta":"`)
	timeMark  = []byte(`"at":`)
)

// text is the event with a counter, scheduled for a moment, padded to a size. Its delta is what package checker expects; a
// client doesn't know the other properties and passes them.
func text(n int, due time.Time, size int) []byte {
	b := make([]byte, 0, max(size, 128))
	b = append(b, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m",`...)
	b = append(b, deltaMark...)
	b = append(append(b, checker.TextOf(n)...), `",`...)
	b = strconv.AppendInt(append(b, timeMark...), stamp(due), 10)
	b = append(b, `,"pad":"`...)
	for len(b) < size-2 {
		b = append(b, 'x')
	}
	return append(b, `"}`...)
}

// sighting is a text event that a reader got.
type sighting struct {
	n    int
	took time.Duration // since it was due
}

// see calls found with each text event in a message. What a snapshot repeats has no delta.
func see(message []byte, now time.Time, found func(sighting)) error {
	for {
		at := bytes.Index(message, deltaMark)
		if at < 0 {
			return nil
		}
		message = message[at+len(deltaMark):]
		n, ok := digits(message)
		if !ok {
			return fmt.Errorf("a delta without a counter: %.80s", message)
		}
		at = bytes.Index(message, timeMark)
		if at < 0 {
			return fmt.Errorf("an event without its time: %.80s", message)
		}
		message = message[at+len(timeMark):]
		due, ok := digits(message)
		if !ok {
			return fmt.Errorf("no time: %.80s", message)
		}
		found(sighting{n: int(n), took: time.Duration(stamp(now) - due)})
	}
}

// digits is the number that b begins with.
func digits(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			break
		}
		n, ok = 10*n+int64(c-'0'), true
	}
	return n, ok
}

// beginning are the first events of a run.
func beginning(run int) []Event {
	name := runName(run)
	return []Event{
		{Run: run, Kind: checker.Start, Data: fmt.Appendf(nil, `{"type":"RUN_STARTED","threadId":"t-%s","runId":"%s"}`, name, name)},
		{Run: run, Kind: checker.Open, Data: []byte(`{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`)},
	}
}

// end are the last events of a run.
func end(run int) []Event {
	name := runName(run)
	return []Event{
		{Run: run, Kind: checker.Close, Data: []byte(`{"type":"TEXT_MESSAGE_END","messageId":"m"}`)},
		{Run: run, Kind: checker.End, Data: fmt.Appendf(nil, `{"type":"RUN_FINISHED","threadId":"t-%s","runId":"%s"}`, name, name)},
	}
}

// conversation is what a history weighs in a conversation, in bytes, however many events it has, and texts the most events
// that it comes in. The other events change a state.
const (
	conversation = 20_000
	texts        = 2000
)

// past is event number i of a run's history of n.
func past(run, i, n int) Event {
	e := Event{Run: run}
	pieces := max(min(n/2, texts), 1)
	switch {
	case i == 0:
		e.Data = []byte(`{"type":"STATE_SNAPSHOT","snapshot":{"n":0}}`)
	case i%(n/pieces) == 0:
		e.Data = fmt.Appendf(nil, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"%0*d"}`, conversation/pieces, i)
	default:
		e.Data = fmt.Appendf(nil, `{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/n","value":%d}]}`, i)
	}
	return e
}

// runName is the id of the run numbered n.
func runName(n int) string { return fmt.Sprintf("load-%d", n) }
