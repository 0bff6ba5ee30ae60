// Package demo is an agent that always has something to show: it publishes one run after another through package
// publish, at the pace of a person who reads. Its runs have all that AG-UI has: text in small pieces, reasoning, tool calls
// that overlap, a shared state, an activity, steps, a subagent. What they say depends on their number alone.
package demo
