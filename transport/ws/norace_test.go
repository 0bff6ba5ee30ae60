//go:build !race

package ws

const raced = false
