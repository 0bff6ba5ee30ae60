package agui

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Reason says why an entry is withheld, as docs/contract.md names it on the wire and in metrics.
type Reason string

// Reasons of a Verdict.
const (
	ReasonNotUTF8     Reason = "not_utf8"
	ReasonNotJSON     Reason = "not_json"
	ReasonNotObject   Reason = "not_object"
	ReasonTooDeep     Reason = "too_deep"
	ReasonNoType      Reason = "no_type"
	ReasonTooLarge    Reason = "too_large"
	ReasonNoEvent     Reason = "no_event"
	ReasonMalformed   Reason = "malformed"    // a field that the protocol describes has a wrong value
	ReasonIllegal     Reason = "illegal"      // well formed, but not at this place of the run
	ReasonBeforeStart Reason = "before_start" // before the first RUN_STARTED or RUN_ERROR
	ReasonAfterEnd    Reason = "after_end"    // after the first terminal event
	ReasonUnclosed    Reason = "unclosed"     // sent, behind closings
	ReasonOtherThread Reason = "other_thread" // a RUN_STARTED of another thread than the run's first one
	ReasonInvalidEnd  Reason = "invalid_end"  // a terminal event that is none: RUN_ERROR is sent in its place
)

// Errors for Refuse beside those of Parse: what only the caller can see.
var (
	ErrTooLarge = errors.New("agui: larger than an event may be")
	ErrNoEvent  = errors.New("agui: the entry has no field event")
)

// Verdict says what of one entry is sent. Its bytes are immutable.
type Verdict struct {
	Event    []byte   // the event as it may be sent; set by Run
	Send     bool     // the event itself goes to subscribers, as published
	Closings [][]byte // events that are sent before it: before a RUN_FINISHED what closes the items that are open
	Instead  []byte   // sent in its place: RUN_ERROR, code invalid_end
	Reason   Reason   // why it is withheld, or what was mended; "" where nothing is wrong
	Detail   string   // Reason in words for people, at most 300 bytes of UTF-8
	End      bool     // the run ends with this entry
	Restart  bool     // RUN_STARTED while the run was open: everything begins anew
	Late     bool     // MESSAGES_SNAPSHOT after the end: not sent, but folded
	Fold     bool     // the fold takes it
	// Private says that the event is of a message that a veil hides, PrivateClosings which of Closings are; nil for none. Set
	// by Run.
	Private         bool
	PrivateClosings []bool
}

// Admission judges the entries of one run, in order: what @ag-ui/client 1.0.0 would reject is withheld and leaves no
// trace, so what remains is legal for the client. The zero Admission is before the first entry. One goroutine at a time
// may use it. It keeps no event and no slice of one.
type Admission struct {
	started, ended bool

	owners        [numBuckets]map[string]tag
	open          [numItemKinds]map[string]*opened
	steps         map[stepKey]*opened
	legacySpan    *opened
	legacyMessage *opened
	thoughts      int     // legacy items so far
	first, last   *opened // all that is open, in order of opening
	subs          []*subagent
	byID          map[string]*subagent
	byOwner       map[tag]*laneState
	byKind        [numItemKinds]map[*laneState]struct{}
	seq           uint64
	at            Position // of the entry that is judged; set by Run
	closed        history

	// Of the entry that was admitted last.
	eff      effect
	before   [][]byte
	unclosed string
}

// effect is what an admitted event means to the reducer, after translation and expansion.
type effect struct {
	typ     Type // legacy types translated; of a chunk the type of its content
	opens   bool // a chunk that opens its item: the reducer takes the START first, from the same fields
	content bool // a chunk that has content: a delta, or a rawEvent or metadata that needs a carrier
	// id is what the event speaks of: of the message, call, entity, subagent or step; of a TOOL_CALL_RESULT the message's.
	// A legacy event has one that is made up here, unique in its run; the client's is random.
	id string
}

// effect is that of the entry that Admit was last asked about; it means nothing unless its Verdict had Fold.
func (a *Admission) effect() effect { return a.eff }

// Started says whether a RUN_STARTED was admitted.
func (a *Admission) Started() bool { return a.started }

// Ended says whether the run is over.
func (a *Admission) Ended() bool { return a.ended }

// Admit judges an event that was parsed. It never panics, whatever the event.
func (a *Admission) Admit(e *Event) Verdict {
	a.eff, a.before, a.unclosed = effect{}, nil, ""
	switch t := e.Type; {
	case a.ended:
		return a.admitLate(e)
	case t == RunStarted:
		return a.start(e)
	case t.Terminal():
		return a.end(e)
	case !a.started:
		return withheld(ReasonBeforeStart, e.describe()+" before RUN_STARTED")
	case t == TypeUnknown:
		return Verdict{Send: true}
	}
	if p := checkEvent(e); p != nil {
		return withheld(ReasonMalformed, p.Error())
	}
	if illegal := a.verify(e); illegal != "" {
		return withheld(ReasonIllegal, illegal)
	}
	if a.before != nil {
		return Verdict{Send: true, Fold: true, Closings: a.before, Reason: ReasonUnclosed, Detail: clip(a.unclosed, maxDetail)}
	}
	return Verdict{Send: true, Fold: true}
}

func (a *Admission) start(e *Event) Verdict {
	if p := checkEvent(e); p != nil {
		return withheld(ReasonMalformed, p.Error())
	}
	v := Verdict{Send: true, Fold: true, Restart: a.started}
	*a = Admission{started: true, at: a.at, eff: effect{typ: RunStarted}}
	if input := e.get(fInput); isObject(input) {
		a.seed(member(input, "messages"), false)
	}
	return v
}

func (a *Admission) end(e *Event) Verdict {
	if p := checkEvent(e); p != nil {
		return a.invalidEnd(p.Error())
	}
	if e.Type == RunFinished {
		if !a.started {
			return a.invalidEnd("RUN_FINISHED before RUN_STARTED")
		}
		a.closeLanes()
	}
	a.ended = true
	a.eff.typ = e.Type
	v := Verdict{Send: true, End: true, Fold: true}
	if e.Type == RunFinished {
		if v.Closings = a.closings(); len(v.Closings) > 0 {
			v.Reason, v.Detail = ReasonUnclosed, clip(a.whatIsOpen(), maxDetail)
		}
	}
	a.forget()
	return v
}

// forget drops what no event can speak of any more.
func (a *Admission) forget() {
	for o := a.first; o != nil; o = o.next {
		a.remember(o)
	}
	for _, s := range a.subs {
		if !s.finished {
			s.finished, s.finishedAt = true, a.at
		}
	}
	*a = Admission{started: a.started, ended: true, eff: a.eff, at: a.at, closed: a.closed, subs: a.subs}
}

// invalidEnd ends the run with an event that can't be sent.
func (a *Admission) invalidEnd(detail string) Verdict {
	a.ended = true
	a.forget()
	return Verdict{
		Instead: []byte(`{"type":"RUN_ERROR","message":"The event that ended the run was invalid and is withheld.","code":"invalid_end"}`),
		Reason:  ReasonInvalidEnd, Detail: clip(detail, maxDetail), End: true,
	}
}

// admitLate judges what comes after the end: nothing is sent, a snapshot of the messages is folded for later attaches.
func (a *Admission) admitLate(e *Event) Verdict {
	v := withheld(ReasonAfterEnd, e.describe()+" after the end of the run")
	if e.Type == MessagesSnapshot && checkEvent(e) == nil {
		v.Late, v.Fold = true, true
		a.eff.typ = MessagesSnapshot
	}
	return v
}

// Refuse judges an entry that Parse reported err for, or that is ErrTooLarge or ErrNoEvent; raw is what there is of
// it. If raw can still be seen to be a terminal event, it ends the run.
func (a *Admission) Refuse(err error, raw []byte) Verdict {
	a.eff = effect{}
	reason := ReasonMalformed
	for _, r := range [...]struct {
		err    error
		reason Reason
	}{
		{ErrNotUTF8, ReasonNotUTF8},
		{ErrNotJSON, ReasonNotJSON},
		{ErrNotObject, ReasonNotObject},
		{ErrTooDeep, ReasonTooDeep},
		{ErrNoType, ReasonNoType},
		{ErrTooLarge, ReasonTooLarge},
		{ErrNoEvent, ReasonNoEvent},
	} {
		if errors.Is(err, r.err) {
			reason = r.reason
		}
	}
	detail := string(reason)
	if err != nil {
		detail = strings.TrimPrefix(err.Error(), "agui: ")
	}
	switch {
	case a.ended:
		return withheld(ReasonAfterEnd, detail+", after the end of the run")
	case looksTerminal(raw):
		return a.invalidEnd(detail)
	}
	return withheld(reason, detail)
}

// looksTerminal says whether bytes that are no event have a top-level type of a terminal event, as far as they can be
// read: cut, not UTF-8, or with garbage elsewhere.
func looksTerminal(raw []byte) bool {
	i := skipSpace(raw, 0)
	if i == len(raw) || raw[i] != '{' {
		return false
	}
	found, depth := false, 0
	for i < len(raw) {
		switch raw[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return found
			}
		case '"':
			end := skipString(raw, i)
			if at := skipSpace(raw, end); depth == 1 && at < len(raw) && raw[at] == ':' && string(raw[i:end]) == `"type"` {
				value := raw[skipSpace(raw, at+1):]
				found = bytes.HasPrefix(value, []byte(`"RUN_FINISHED"`)) || bytes.HasPrefix(value, []byte(`"RUN_ERROR"`))
			}
			i = end
			continue
		}
		i++
	}
	return found
}

// whatIsOpen names some of what a RUN_FINISHED left open.
func (a *Admission) whatIsOpen() string {
	var out []byte
	add := func(what, id string) bool {
		if len(out) > 0 {
			out = append(out, ", "...)
		}
		out = append(append(append(out, what...), ' '), quote(id)...)
		return len(out) < maxDetail
	}
	for o := a.first; o != nil; o = o.next {
		if o.held == nil && !add(itemNames[o.kind], o.id) {
			break
		}
	}
	for _, s := range a.subs {
		if len(out) >= maxDetail || (!s.finished && !add("subagent", s.id)) {
			break
		}
	}
	return "still open: " + string(out)
}

func withheld(reason Reason, detail string) Verdict {
	return Verdict{Reason: reason, Detail: clip(detail, maxDetail)}
}

// describe is an event's type in words for people.
func (e *Event) describe() string {
	if e.Type != TypeUnknown {
		return e.Type.String()
	}
	return "an event of type " + quote(e.TypeName())
}

// Bounds of what a Detail says, in bytes: all of it, and what it quotes of the content.
const (
	maxDetail = 300
	maxQuoted = 64
)

// quote is a piece of content in quotation marks, printable and cut.
func quote(s string) string {
	short := clip(s, maxQuoted)
	if len(short) < len(s) {
		return strconv.Quote(short) + "…"
	}
	return strconv.Quote(short)
}

// clip cuts s to at most n bytes of valid UTF-8.
func clip(s string, n int) string {
	if len(s) > n {
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "?")
}

func legacyID(n int) string { return "thinking-" + strconv.Itoa(n) }
