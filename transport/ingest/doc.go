// Package ingest takes a run's events over HTTP and appends them: docs/contract.md, section 5.
//
// A body is JSON, NDJSON or an event stream. It is read as it comes: whatever of it is complete is judged by package
// publish and appended before more is read, so that a live body is live for those who watch, and memory is bounded by one
// event. While the log takes its time the next events gather in the socket and share the next write.
package ingest
