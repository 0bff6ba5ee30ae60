// Package backfill is the past: it brings a subscriber to where a run stands and hands over to its live tail. A
// Service keeps the fold of every run that the hub follows and the conversations that runs left behind; a Session is
// one attach, to a run or to a thread, as a sequence of items that any transport can write.
package backfill
