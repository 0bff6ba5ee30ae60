// Package auth says who may do what: it verifies tokens and makes a Grant of one. The model is docs/security.md. It
// knows nothing of HTTP; a leaf.
package auth
