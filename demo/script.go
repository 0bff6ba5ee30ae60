package demo

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// beat is an event and the pause before it.
type beat struct {
	pause time.Duration
	event []byte
}

// script is what one run says.
type script struct {
	city  city
	id    string // begins the ids of everything in the run
	beats []beat
}

// city is what the agent knows of a place.
type city struct {
	name, question, weather, museum, cafe, walk, doubt string
	degrees, rain                                      int
}

var cities = [runsPerThread]city{
	{
		name: "Lisbon", question: "I have a free afternoon in **Lisbon** tomorrow. What should I do?", weather: "showers until three", degrees: 17, rain: 70,
		museum: "Museu Nacional do Azulejo", cafe: "a pastelaria in Alfama", walk: "up to Miradouro da Graça when the sky clears", doubt: "The tile museum closes on Mondays.",
	},
	{
		name: "Kyoto", question: "And if I were in Kyoto instead?", weather: "clear and cold", degrees: 9, rain: 5,
		museum: "Kyoto Railway Museum", cafe: "a tea house near Nishiki Market", walk: "along the Philosopher's Path before dusk", doubt: "The path is crowded at weekends.",
	},
	{
		name: "Reykjavík", question: "What about Reykjavík, with two children?", weather: "wind and a little snow", degrees: -1, rain: 40,
		museum: "Perlan", cafe: "a bakery on Laugavegur", walk: "round the Tjörnin pond to see the ducks", doubt: "Small children may find the ice cave too cold.",
	},
	{
		name: "Nairobi", question: "Could you do the same for Nairobi?", weather: "warm with a late thunderstorm", degrees: 26, rain: 55,
		museum: "Nairobi National Museum", cafe: "a coffee roaster in Karen", walk: "through the Arboretum before the storm", doubt: "Traffic to Karen doubles after four o'clock.",
	},
	{
		name: "Montréal", question: "Last one: Montréal, on a budget.", weather: "grey and mild", degrees: 12, rain: 30,
		museum: "Musée des beaux-arts", cafe: "a bagel counter in Mile End", walk: "over Mont Royal by the stairs", doubt: "The museum is free on the first Sunday of the month only.",
	},
}

// scriptOf writes the script of run number n.
func scriptOf(n int) script {
	s := script{city: cities[(n-1)%len(cities)], id: string(RunID(n))}
	s.think()
	s.research()
	s.review()
	s.answer()
	return s
}

// input is the RunAgentInput that run n answers to.
func (s *script) input(n int) []byte {
	tool := func(name, description string) string {
		return object("name", name, "description", description, "parameters", json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}}}`))
	}
	user := object("id", s.id+"-question", "role", "user", "content", s.city.question)
	return []byte(object(
		"threadId", string(ThreadID(n)), "runId", string(RunID(n)),
		"messages", json.RawMessage("["+user+"]"),
		"tools", json.RawMessage("["+tool("get_weather", "The weather of a city tomorrow")+","+tool("find_places", "Places to visit in a city")+"]"),
		"context", json.RawMessage(`[{"description":"The user's language","value":"English"}]`),
		"forwardedProps", json.RawMessage(`{}`),
	))
}

// think is the first step: what to do at all.
func (s *script) think() {
	id := s.id + "-thought"
	s.add(300, "STATE_SNAPSHOT", "snapshot", json.RawMessage(object(
		"plan", json.RawMessage(object("city", s.city.name, "status", "thinking", "stops", json.RawMessage("[]"))), "progress", 0)))
	s.add(50, "STEP_STARTED", "stepName", "understand")
	s.add(400, "REASONING_START", "messageId", id)
	s.add(20, "REASONING_MESSAGE_START", "messageId", id, "role", "reasoning")
	s.say("REASONING_MESSAGE_CONTENT", id,
		"An afternoon in "+s.city.name+". I need the weather first, because it decides between indoors and outdoors. "+
			"Both look-ups are independent, so I can make them at the same time. Then somebody should check my plan for mistakes.")
	s.add(50, "REASONING_MESSAGE_END", "messageId", id)
	s.add(20, "REASONING_END", "messageId", id)
	s.add(50, "STEP_FINISHED", "stepName", "understand")
	s.progress(20, "researching")
}

// research calls two tools at once and shows an activity beside them.
func (s *script) research() {
	intro, weather, places, activity := s.id+"-intro", s.id+"-weather", s.id+"-places", s.id+"-activity"
	s.add(50, "STEP_STARTED", "stepName", "research")
	s.add(100, "TEXT_MESSAGE_START", "messageId", intro, "role", "assistant")
	s.say("TEXT_MESSAGE_CONTENT", intro, "Let me look up the weather in "+s.city.name+" and what there is to see.")
	s.add(30, "TEXT_MESSAGE_END", "messageId", intro)
	s.add(250, "ACTIVITY_SNAPSHOT", "messageId", activity, "activityType", "LOOKUP", "content", json.RawMessage(object(
		"title", "Looking things up", "sources", json.RawMessage(`[{"name":"weather","state":"waiting"},{"name":"places","state":"waiting"}]`))), "replace", true)
	s.add(80, "TOOL_CALL_START", "toolCallId", weather, "toolCallName", "get_weather", "parentMessageId", intro)
	s.add(30, "TOOL_CALL_START", "toolCallId", places, "toolCallName", "find_places", "parentMessageId", intro)
	one := pieces(object("city", s.city.name, "day", "tomorrow", "unit", "celsius"))
	two := pieces(object("city", s.city.name, "kinds", json.RawMessage(`["museum","café","walk"]`), "limit", 3))
	for i := range max(len(one), len(two)) { // the arguments of both come mixed, as from a model that writes them at once
		if i < len(one) {
			s.add(40, "TOOL_CALL_ARGS", "toolCallId", weather, "delta", one[i])
		}
		if i < len(two) {
			s.add(40, "TOOL_CALL_ARGS", "toolCallId", places, "delta", two[i])
		}
	}
	s.add(40, "TOOL_CALL_END", "toolCallId", places)
	s.add(20, "TOOL_CALL_END", "toolCallId", weather)
	s.activity(300, 1, "running")
	s.activity(20, 0, "running")
	s.add(900, "TOOL_CALL_RESULT", "messageId", places+"-result", "toolCallId", places, "role", "tool", "content",
		object("museum", s.city.museum, "café", s.city.cafe, "walk", s.city.walk))
	s.activity(30, 1, "done")
	s.add(700, "TOOL_CALL_RESULT", "messageId", weather+"-result", "toolCallId", weather, "role", "tool", "content",
		object("city", s.city.name, "summary", s.city.weather, "degrees", s.city.degrees, "rain", s.city.rain))
	s.activity(30, 0, "done")
	s.add(50, "STEP_FINISHED", "stepName", "research")
	s.add(20, "STATE_DELTA", "delta", json.RawMessage(`[`+strings.Join([]string{
		object("op", "add", "path", "/plan/stops/-", "value", s.city.museum),
		object("op", "add", "path", "/plan/stops/-", "value", s.city.cafe),
		object("op", "add", "path", "/weather", "value", json.RawMessage(object("summary", s.city.weather, "degrees", s.city.degrees))),
	}, ",")+`]`))
	s.progress(50, "reviewing")
}

// review has a subagent doubt the plan.
func (s *script) review() {
	sub, text := s.id+"-critic", s.id+"-doubt"
	s.add(300, "SUBAGENT_STARTED", "subagentRunId", sub, "name", "critic", "description", "Looks for what could go wrong")
	s.add(400, "TEXT_MESSAGE_START", "messageId", text, "role", "assistant", "subagentRunId", sub)
	s.say("TEXT_MESSAGE_CONTENT", text, "One thing to watch: "+s.city.doubt+" I would say so in the answer.", "subagentRunId", sub)
	s.add(30, "TEXT_MESSAGE_END", "messageId", text, "subagentRunId", sub)
	s.add(100, "SUBAGENT_FINISHED", "subagentRunId", sub, "result", json.RawMessage(object("verdict", "fine, with a warning")))
	s.progress(70, "answering")
}

// answer is the text that the user asked for.
func (s *script) answer() {
	id, c := s.id+"-answer", s.city
	s.add(50, "STEP_STARTED", "stepName", "answer")
	s.add(200, "TEXT_MESSAGE_START", "messageId", id, "role", "assistant")
	s.say("TEXT_MESSAGE_CONTENT", id, "## An afternoon in "+c.name+"\n\n"+
		"Tomorrow: **"+c.weather+"**, around "+strconv.Itoa(c.degrees)+" °C.\n\n"+
		"1. Start at the *"+c.museum+"*, which takes about two hours.\n"+
		"2. Have a break at "+c.cafe+".\n"+
		"3. Walk "+c.walk+".\n\n"+
		"| time | stop | indoors |\n|---|---|---|\n| 13:00 | museum | yes |\n| 15:15 | café | yes |\n| 16:00 | walk | no |\n\n"+
		"> "+c.doubt+"\n\n"+
		"To keep the plan:\n\n```json\n{\"city\": "+quoted(c.name)+", \"rain\": "+strconv.Itoa(c.rain)+"}\n```\n\nEnjoy it! ☂\n")
	s.add(50, "TEXT_MESSAGE_END", "messageId", id)
	s.add(20, "STATE_DELTA", "delta", json.RawMessage("["+object("op", "add", "path", "/plan/stops/-", "value", c.walk)+"]"))
	s.add(20, "STEP_FINISHED", "stepName", "answer")
	s.progress(100, "done")
}

// progress says how far the plan is, in the state and as an application's own event.
func (s *script) progress(percent int, status string) {
	s.add(20, "STATE_DELTA", "delta", json.RawMessage("["+
		object("op", "replace", "path", "/progress", "value", percent)+","+object("op", "replace", "path", "/plan/status", "value", status)+"]"))
	s.add(10, "CUSTOM", "name", "demo.progress", "value", json.RawMessage(object("percent", percent, "status", status)))
}

// activity changes what the activity says of one source.
func (s *script) activity(ms, source int, state string) {
	s.add(ms, "ACTIVITY_DELTA", "messageId", s.id+"-activity", "activityType", "LOOKUP", "patch",
		json.RawMessage("["+object("op", "replace", "path", "/sources/"+strconv.Itoa(source)+"/state", "value", state)+"]"))
}

// add puts an event behind the others, ms milliseconds later.
func (s *script) add(ms int, kind string, members ...any) {
	s.beats = append(s.beats, beat{
		pause: time.Duration(ms) * time.Millisecond,
		event: []byte(object(append([]any{"type", kind}, members...)...)),
	})
}

// say adds the deltas of a text to the message id.
func (s *script) say(kind, id, text string, members ...any) {
	for i, piece := range pieces(text) {
		s.add(32+(i*29)%50, kind, append([]any{"messageId", id, "delta", piece}, members...)...)
	}
}

// pieces cuts a text as models do: a word or less at a time.
func pieces(text string) []string {
	var out []string
	var piece []rune
	for _, r := range text {
		if len(piece) > 0 && (unicode.IsSpace(r) && !unicode.IsSpace(piece[len(piece)-1]) || len(piece) >= 7) {
			out, piece = append(out, string(piece)), piece[:0]
		}
		piece = append(piece, r)
	}
	return append(out, string(piece))
}

// object is a JSON object of names and values in turn, in this order.
func object(members ...any) string {
	out := []byte{'{'}
	for i := 0; i+1 < len(members); i += 2 {
		if i > 0 {
			out = append(out, ',')
		}
		name, _ := members[i].(string)
		out = append(out, quoted(name)...)
		out = append(out, ':')
		switch v := members[i+1].(type) {
		case string:
			out = append(out, quoted(v)...)
		case int:
			out = strconv.AppendInt(out, int64(v), 10)
		case bool:
			out = strconv.AppendBool(out, v)
		case json.RawMessage:
			out = append(out, v...)
		}
	}
	return string(append(out, '}'))
}

// quoted is a JSON string.
func quoted(s string) string {
	out, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(out)
}
