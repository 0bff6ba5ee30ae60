package checker

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aguihub/aguihub/stream"
)

// published is a run of a start, a message's opening and n events, with ids 1-0, 2-0 and so on.
func published(n int) *Archive {
	a := &Archive{}
	add := func(e Entry) {
		e.ID = stream.ID{Ms: uint64(len(a.entries) + 1)}
		a.Add(e)
	}
	add(Entry{Kind: Start})
	add(Entry{Kind: Open, Message: "m"})
	for i := 1; i <= n; i++ {
		add(Entry{Kind: []Kind{State, Custom, Text, Text}[i%4], N: i, Message: "m"})
	}
	add(Entry{Kind: End})
	return a
}

// lineOf is the event line of an entry.
func lineOf(e Entry) string {
	event := map[Kind]string{
		Start: `{"type":"RUN_STARTED"}`, Open: `{"type":"TEXT_MESSAGE_START","messageId":"m"}`, End: `{"type":"RUN_FINISHED"}`,
		Text:   fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":%q}`, TextOf(e.N)),
		State:  fmt.Sprintf(`{"type":"STATE_SNAPSHOT","snapshot":{"n":%d}}`, e.N),
		Custom: fmt.Sprintf(`{"type":"CUSTOM","name":"n","value":{"n":%d}}`, e.N),
	}[e.Kind]
	return fmt.Sprintf(`{"id":"%s.00000000","event":%s}`, e.ID, event)
}

// script is what a subscriber got: numbers are entries, "7!" is entry 7 with the bytes of another, others are lines.
func play(t *testing.T, a *Archive, script ...string) []string {
	t.Helper()
	s := NewSubscriber("s", "r", nil, Habits{}, 1)
	for _, word := range script {
		raw := word
		var n int
		if _, err := fmt.Sscan(word, &n); err == nil {
			e := a.entries[n-1]
			if strings.HasSuffix(word, "!") {
				e.N++
			}
			raw = lineOf(e)
		}
		var l line
		if err := json.Unmarshal([]byte(raw), &l); err != nil {
			t.Fatal(err)
		}
		if err := s.line(&l); err != nil {
			t.Fatal(err)
		}
	}
	return a.Judge(s)
}

// TestJudgeOfAThread: two runs of a message each, with ids 1-0 to 7-0 and 11-0 to 17-0.
func TestJudgeOfAThread(t *testing.T) {
	publish := func(first uint64, message string) *Archive {
		a := &Archive{}
		for i, e := range []Entry{
			{Kind: Start},
			{Kind: Open, Message: message},
			{Kind: Text, N: 1, Message: message},
			{Kind: Text, N: 2, Message: message},
			{Kind: State, N: 3},
			{Kind: Close, Message: message},
			{Kind: End},
		} {
			e.ID = stream.ID{Ms: first + uint64(i)} //nolint:gosec // small
			a.Add(e)
		}
		return a
	}
	entries := func(archives []*Archive, run, from, to int) (steps []step) {
		for _, e := range archives[run].entries[from-1 : to] {
			steps = append(steps, step{kind: entryStep, id: e.ID, n: e.N, run: stream.HashRun(stream.RunID(strconv.Itoa(run)))})
		}
		return steps
	}
	end := []step{{kind: endStep}}
	both := newView()
	both.texts["a"], both.texts["b"], both.state = []byte("1 2 "), []byte("1 "), 3
	alone := both.clone()
	delete(alone.texts, "a")
	snapshot := func(v *view) []step {
		return []step{{kind: bracketStep, id: stream.ID{Ms: 13}, run: stream.HashRun("1"), digest: v.digest()}}
	}
	for name, c := range map[string]struct {
		steps func(a []*Archive) [][]step
		say   string
	}{
		"one run after the other": {func(a []*Archive) [][]step {
			return [][]step{entries(a, 0, 1, 7), end, entries(a, 1, 1, 7), end}
		}, ""},
		"a run that begins before the end": {func(a []*Archive) [][]step {
			return [][]step{entries(a, 0, 1, 6), entries(a, 1, 1, 7)}
		}, "before the end of run"},
		"a run that lacks its first entry": {func(a []*Archive) [][]step {
			return [][]step{entries(a, 0, 1, 7), end, entries(a, 1, 2, 7)}
		}, "missing"},
		"a snapshot of the next run": {func(a []*Archive) [][]step {
			return [][]step{entries(a, 0, 1, 7), end, snapshot(both), entries(a, 1, 4, 7), end}
		}, ""},
		"a snapshot without what the run before left": {func(a []*Archive) [][]step {
			return [][]step{entries(a, 0, 1, 7), end, snapshot(alone), entries(a, 1, 4, 7), end}
		}, "leaves"},
	} {
		t.Run(name, func(t *testing.T) {
			archives := []*Archive{publish(1, "a"), publish(11, "b")}
			var thread Thread
			for i, a := range archives {
				thread.Add(stream.RunID(strconv.Itoa(i)), a)
			}
			s := NewThreadSubscriber("s", "t", "1", nil, Habits{}, 1)
			s.steps = slices.Concat(c.steps(archives)...)
			found := thread.Judge(s)
			if c.say == "" && len(found) > 0 || c.say != "" && !strings.Contains(strings.Join(found, "\n"), c.say) {
				t.Errorf("found %q, want %q", found, c.say)
			}
		})
	}
}

// TestJudgeOfABareSubscriber: without cursors the counters tell what came.
func TestJudgeOfABareSubscriber(t *testing.T) {
	steps := func(from int, ns ...int) (steps []step) {
		a := published(8)
		id, _ := (&judge{archive: a}).find(stream.ID{Ms: uint64(from + 2)}) //nolint:gosec // small
		steps = append(steps, step{kind: resetStep, bare: true}, step{
			kind: bracketStep, bare: true, n: from, fresh: true, digest: a.fold(a.entries[id].ID, 0, newView()).digest(),
		})
		for _, n := range ns {
			steps = append(steps, step{kind: entryStep, bare: true, n: n})
		}
		return append(steps, step{kind: endStep, bare: true})
	}
	for say, s := range map[string][]step{
		"":                      steps(3, 4, 5, 6, 7, 8),
		"missing":               steps(3, 4, 6, 7, 8),
		"again":                 steps(3, 4, 4, 5, 6, 7, 8),
		"ended without counter": steps(3, 4, 5, 6, 7),
		"nobody published":      steps(3, 4, 5, 6, 7, 8, 9),
	} {
		sub := NewSubscriber("s", "r", nil, Habits{}, 1)
		sub.steps = s
		found := published(8).Judge(sub)
		if say == "" && len(found) > 0 || say != "" && !strings.Contains(strings.Join(found, "\n"), say) {
			t.Errorf("found %q, want %q", found, say)
		}
	}
}

// TestAnEndThatIsLostLater: a bare subscriber that saw it needn't see what came in its place, but all before it.
func TestAnEndThatIsLostLater(t *testing.T) {
	for say, last := range map[string]int{"": 8, "ended without counter": 7} {
		a := published(8)
		there := map[stream.ID]bool{}
		for _, e := range a.entries[:len(a.entries)-1] {
			there[e.ID] = true
		}
		a.Survive(there)
		a.Add(Entry{ID: stream.ID{Ms: 100}, Kind: Text, N: 9, Message: "m"})
		a.Add(Entry{ID: stream.ID{Ms: 101}, Kind: End})
		s := NewSubscriber("s", "r", nil, Habits{}, 1)
		s.steps = []step{{kind: resetStep, bare: true}}
		for n := 1; n <= last; n++ {
			s.steps = append(s.steps, step{kind: entryStep, bare: true, n: n})
		}
		s.steps = append(s.steps, step{kind: endStep, bare: true})
		found := a.Judge(s)
		if say == "" && len(found) > 0 || say != "" && !strings.Contains(strings.Join(found, "\n"), say) {
			t.Errorf("found %q, want %q", found, say)
		}
	}
}

const (
	fresh = `{"control":"catchup","from":null,"mode":"fresh"}`
	reset = `{"control":"reset","reason":"lost"}`
	ended = `{"control":"ended"}`
)

func catchup(mode string, from int) string {
	return fmt.Sprintf(`{"control":"catchup","from":"%d-0.00000000","mode":%q}`, from, mode)
}

func live(id int) string { return fmt.Sprintf(`{"control":"live","id":"%d-0.00000000"}`, id) }

func text(content string) string {
	return fmt.Sprintf(`{"event":{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"m","content":%q}]}}`, content)
}

func state(n int) string {
	return fmt.Sprintf(`{"event":{"type":"STATE_SNAPSHOT","snapshot":{"n":%d}}}`, n)
}

func custom(n int) string {
	return fmt.Sprintf(`{"event":{"type":"CUSTOM","name":"n","value":{"n":%d}}}`, n)
}

func TestJudge(t *testing.T) {
	whole := func(*Archive) {}
	lost := func(from int) func(a *Archive) { // entries from there on, and then 2 of them are there anew
		return func(a *Archive) {
			there := map[stream.ID]bool{}
			for _, e := range a.entries[:from-1] {
				there[e.ID] = true
			}
			a.Survive(there)
			a.Add(Entry{ID: stream.ID{Ms: 100}, Kind: Text, N: 9, Message: "m"})
			a.Add(Entry{ID: stream.ID{Ms: 101}, Kind: Text, N: 10, Message: "m"})
		}
	}
	trimmed := func(a *Archive) { a.Trim(5) }
	// Of 8 events entry 3 is a CUSTOM, 4 and 5 are text, 6 is state, and so on; 11 is the end.
	cases := map[string]struct {
		change func(*Archive)
		script []string
		say    string // "" where all is well
	}{
		"a run from its start":            {whole, []string{fresh, live(1), "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", ended}, ""},
		"an entry that is missing":        {whole, []string{fresh, live(1), "2", "3", "5"}, "missing"},
		"an entry that comes twice":       {whole, []string{fresh, live(1), "2", "3", "3"}, "again"},
		"entries out of order":            {whole, []string{fresh, live(1), "2", "4", "3"}, "missing"},
		"an entry with other bytes":       {whole, []string{fresh, live(1), "2", "3", "4!"}, "counter"},
		"an early end":                    {whole, []string{fresh, live(1), "2", "3", ended}, "ended before"},
		"a snapshot that covers":          {whole, []string{fresh, text("2 3 "), state(4), custom(1), live(6), "7"}, ""},
		"a snapshot that lacks a word":    {whole, []string{fresh, text("2 "), state(4), custom(1), live(6)}, "leaves"},
		"a snapshot with an old state":    {whole, []string{fresh, text("2 3 "), state(0), custom(1), live(6)}, "leaves"},
		"a catch-up that covers":          {whole, []string{fresh, live(1), "2", catchup("snapshot", 2), text("2 3 "), state(4), custom(1), live(6), "7"}, ""},
		"a catch-up without a CUSTOM":     {whole, []string{fresh, live(1), "2", catchup("snapshot", 2), text("2 3 "), state(4), live(6)}, "lacks"},
		"a catch-up from elsewhere":       {whole, []string{fresh, live(1), "2", "3", catchup("snapshot", 2), text("2 "), live(4)}, "a bracket from"},
		"a catch-up by events":            {whole, []string{fresh, live(1), "2", catchup("events", 2), "3", "4", live(4), "5"}, ""},
		"a catch-up that lacks an event":  {whole, []string{fresh, live(1), "2", catchup("events", 2), "3", "5", live(5)}, "missing"},
		"a catch-up that ends early":      {whole, []string{fresh, live(1), "2", catchup("events", 2), "3", live(4)}, "leaves"},
		"a bracket that was cut":          {whole, []string{fresh, live(1), "2", catchup("snapshot", 2), text("2 "), catchup("events", 2), "3", live(3)}, ""},
		"a loss that is said":             {lost(5), []string{fresh, live(1), "2", "3", "4", "5", "6", reset, fresh, text("2 9 "), custom(1), live(100), "13"}, ""},
		"a loss that nobody said":         {lost(5), []string{fresh, live(1), "2", "3", "4", "5", "12"}, "no reset"},
		"a loss that nobody had":          {lost(5), []string{fresh, live(1), "2", "3", "4", "12"}, ""},
		"a gap in what survived":          {lost(5), []string{fresh, live(1), "2", "3", "12"}, "missing"},
		"a snapshot with what was lost":   {lost(5), []string{fresh, text("2 3 9 "), custom(1), live(100)}, "leaves"},
		"a snapshot from before the loss": {lost(5), []string{fresh, text("2 3 "), custom(1), live(5)}, ""},
		"what a trim left, as told":       {trimmed, []string{fresh, live(1), "2", `{"control":"reset","reason":"trimmed"}`, fresh, state(8), custom(5), live(10)}, ""},
		"what a trim left, otherwise":     {trimmed, []string{fresh, live(1), "2", `{"control":"reset","reason":"lost"}`, fresh, state(8), custom(5), live(10)}, "leaves"},
		"what a trim left, for nothing":   {trimmed, []string{fresh, state(8), custom(5), live(10)}, "leaves"},
		"an entry that nobody published":  {whole, []string{fresh, live(1), `{"id":"1-7.00000000","event":{"type":"CUSTOM"}}`}, "nobody published"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a := published(8)
			c.change(a)
			found := play(t, a, c.script...)
			if c.say == "" && len(found) > 0 || c.say != "" && !strings.Contains(strings.Join(found, "\n"), c.say) {
				t.Errorf("found %q, want %q", found, c.say)
			}
		})
	}
}
