// Package agui knows AG-UI events: as raw bytes plus the few fields that are read, what the official client would
// reject (Admission), and what a client holds after it has seen them (Fold). It is pure: no clock, no I/O, no
// goroutine; and a leaf: it imports nothing of this module.
//
// Bytes stay raw. An event that passes is never decoded and encoded again: strings are joined as they were escaped,
// numbers keep their spelling, unknown properties survive. The measure for all of it is @ag-ui/client 1.0.0.
package agui
