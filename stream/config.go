package stream

import (
	"fmt"
	"time"
)

const (
	// DefaultKeyPrefix begins every key unless the operator says otherwise (contract, "Names").
	DefaultKeyPrefix = "agui"
	// DefaultRegistryMaxLen bounds the registry (contract, section 1).
	DefaultRegistryMaxLen = 100_000

	maxKeyPrefixBytes = 64 // contract, "Names"
)

// Config is what a log needs to know. The zero value is ready for use; nothing may change while running.
type Config struct {
	// KeyPrefix begins every key, [a-z0-9-]{1,64}. Empty means [DefaultKeyPrefix].
	KeyPrefix string
	// RegistryMaxLen is about how many entries the registry keeps. 0 means [DefaultRegistryMaxLen].
	RegistryMaxLen int64
	// Security is how connections to Redis are secured beyond what the URL says.
	Security Security
	// Now is the clock for the scores of new runs and, in [Memory], for entry ids. Nil means [time.Now].
	Now func() time.Time
}

// withDefaults fills in what is zero and checks the rest.
func (c Config) withDefaults() (Config, error) {
	if c.KeyPrefix == "" {
		c.KeyPrefix = DefaultKeyPrefix
	}
	if c.RegistryMaxLen == 0 {
		c.RegistryMaxLen = DefaultRegistryMaxLen
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c, c.validate()
}

func (c Config) validate() error {
	if len(c.KeyPrefix) > maxKeyPrefixBytes {
		return fmt.Errorf("stream: key prefix: %d bytes, at most %d are allowed", len(c.KeyPrefix), maxKeyPrefixBytes)
	}
	for i := range len(c.KeyPrefix) {
		if b := c.KeyPrefix[i]; b != '-' && (b < 'a' || b > 'z') && (b < '0' || b > '9') {
			return fmt.Errorf("stream: key prefix: %q is not of a-z, 0-9 and -", b)
		}
	}
	if c.RegistryMaxLen < 0 {
		return fmt.Errorf("stream: registry length: %d is negative", c.RegistryMaxLen)
	}
	return nil
}

// Keys builds the names of the keys of one prefix (contract, section 1). The zero value has no prefix and is
// of no use; a log's Keys method returns its own.
type Keys struct{ prefix string }

// NewKeys returns the names under prefix; empty means [DefaultKeyPrefix]. It fails if prefix isn't [a-z0-9-]{1,64}.
func NewKeys(prefix string) (Keys, error) {
	cfg, err := Config{KeyPrefix: prefix}.withDefaults()
	return Keys{prefix: cfg.KeyPrefix}, err
}

// Run is the stream of a run.
func (k Keys) Run(run RunID) string { return k.prefix + ":run:" + string(run) }

// Aux is a key that belongs to a run: "lease", "control", a checkpoint. Its braces put it into the Cluster
// slot of the run's stream.
func (k Keys) Aux(run RunID, name string) string { return auxOf(k.Run(run), name) }

func auxOf(key, name string) string { return "{" + key + "}:" + name }

// Thread is the sorted set of a thread's runs.
func (k Keys) Thread(thread ThreadID) string { return k.prefix + ":thread:" + string(thread) }

// ThreadAux is a key that belongs to a thread, such as "conversation", in the slot of its sorted set.
func (k Keys) ThreadAux(thread ThreadID, name string) string {
	return "{" + k.Thread(thread) + "}:" + name
}

// Runs is the registry's stream.
func (k Keys) Runs() string { return k.prefix + ":runs" }

// Wake is the channel on which publishers may announce that they appended.
func (k Keys) Wake() string { return k.prefix + ":wake" }

// tailControl is the private stream that interrupts one blocked read of one process.
func (k Keys) tailControl(process string, shard uint64) string {
	return fmt.Sprintf("{%s:tail:%s}:%d", k.prefix, process, shard)
}
