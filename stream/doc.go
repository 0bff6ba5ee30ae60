// Package stream is order and position: what has been appended to a run, where a reader stands in it, and
// how one learns of what comes next. It is the only package that knows Redis.
//
// A run is a Redis stream with one entry per AG-UI event. An [ID] is an entry's place in it; a [Cursor] is
// the last entry that a reader has, with a checksum that tells another generation of the same key. [Redis]
// and [Memory] are two logs with the same methods: Append, Range, Bounds, Trim, NewTail and NewRegistry.
// A [Tail] follows many runs over few connections, and a [Registry] says which runs and threads there are.
//
// Nothing here looks into an event. Agents write to the same keys with plain XADD, so whatever is read back
// is untrusted: an entry may lack its event, a key may be of another type, a registry entry may name
// anything. Such things are reported or skipped and counted; they never panic and never stop other runs.
package stream
