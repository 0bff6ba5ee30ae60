// Package publish is the Go API of an agent: it opens a run, appends its events, and ends it in order.
//
// A [Publisher] belongs to a process, a [Run] to one run that this process writes. A run's first entry carries its
// input, the registry learns of its start and its end, and each event is judged as the hub will judge it, so that the
// agent hears at once of what no client would get:
//
//	run, err := publisher.Open(ctx, publish.RunConfig{Run: "r1", Thread: "t1", Input: input, Start: true})
//	…
//	defer run.Close(ctx)
//	err = run.Append(ctx, event)
//	…
//	err = run.Finish(ctx, publish.End{})
//
// Events are buffered for some milliseconds and written together. What was written, what wasn't and what can't be known
// is never guessed: see [WriteError]. Nothing is ever appended twice: an append whose answer was lost is asked for again by
// its sequence number. While a run is open its lease is renewed, and [Run.Context] ends when somebody cancels it or another
// producer takes it over. A [Reaper], which runs on every hub, ends the runs of producers that are lost.
package publish
