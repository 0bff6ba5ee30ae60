// Package framing cuts what AG-UI agents answer over HTTP into events: an event stream, or length-prefixed protobuf. It
// is pure: bytes go in, in pieces of any size, and frames come out.
package framing
