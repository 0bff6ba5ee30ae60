// Package transport is what all wires share: problem documents, the table of errors and close codes, the guard against
// foreign pages, ids in paths, the query of an attach, and the forms in which deliveries are written. Its folders ws,
// sse and lookup are the wires themselves, over what a backfill.Session gives.
package transport
