//go:build race

package ws

// raced says that the race detector runs, under which sync.Pool forgets at random.
const raced = true
