package agui

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"sync"
)

// ErrCheckpoint says that bytes are no checkpoint or conversation that this version can read: damaged, of another
// version, or larger than allowed.
var ErrCheckpoint = errors.New("agui: checkpoint can't be read")

// ErrCheckpointTooLarge says that what is to be packed exceeds the bound.
var ErrCheckpointTooLarge = errors.New("agui: too large for a checkpoint")

// Kinds and version of packed bytes. What follows the header is compressed and carries a checksum.
const (
	runHeader          = "agui-run 2\n"
	conversationHeader = "agui-conversation 1\n"
)

// minShared is the shortest value that is looked for among those before it, in bytes.
const minShared = 32

// How a value is packed.
const (
	packedNil = iota
	packedLiteral
	packedAgain // a number: which of the values before it
)

// packer writes values one after another. A value that was written before is named by its number, so that a
// conversation that stands in an input, in a base and in a fold takes its place once.
type packer struct {
	out    []byte
	seed   maphash.Seed
	shared map[uint64][]sharedValue
	values int
}

type sharedValue struct {
	number int
	value  []byte
}

func newPacker() *packer {
	return &packer{seed: maphash.MakeSeed(), shared: map[uint64][]sharedValue{}}
}

func (p *packer) number(n uint64) { p.out = binary.AppendUvarint(p.out, n) }
func (p *packer) count(n int)     { p.number(uint64(max(n, 0))) }
func (p *packer) text(s string)   { p.count(len(s)); p.out = append(p.out, s...) }

func (p *packer) flag(b bool) {
	if b {
		p.out = append(p.out, 1)
	} else {
		p.out = append(p.out, 0)
	}
}

func (p *packer) position(at Position) { p.number(at.Hi); p.number(at.Lo) }

func (p *packer) tag(t tag) {
	p.flag(t.set)
	if t.set {
		p.text(t.id)
	}
}

// value writes a JSON value, or nil.
func (p *packer) value(v []byte) {
	if v == nil {
		p.count(packedNil)
		return
	}
	if n, ok := p.find(v); ok {
		p.count(packedAgain)
		p.count(n)
		return
	}
	p.count(packedLiteral)
	p.count(len(v))
	p.out = append(p.out, v...)
	p.share(v)
}

func (p *packer) find(v []byte) (number int, ok bool) {
	if len(v) < minShared {
		return 0, false
	}
	for _, s := range p.shared[maphash.Bytes(p.seed, v)] {
		if bytes.Equal(s.value, v) {
			return s.number, true
		}
	}
	return 0, false
}

// share gives a value the next number.
func (p *packer) share(v []byte) {
	if len(v) >= minShared {
		h := maphash.Bytes(p.seed, v)
		p.shared[h] = append(p.shared[h], sharedValue{p.values, v})
	}
	p.values++
}

// input writes a RunAgentInput, and gives its messages numbers.
func (p *packer) input(v []byte) {
	p.value(v)
	eachInputMessage(v, p.share)
}

func eachInputMessage(input []byte, visit func([]byte)) {
	if !isObject(input) {
		return
	}
	if messages := member(input, "messages"); isArray(messages) {
		eachElement(messages, func(m []byte) bool {
			visit(m)
			return true
		})
	}
}

// compressors are *gzip.Writer: each keeps over a megabyte, many times what most checkpoints weigh.
var compressors = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	if err != nil {
		panic(err) // of the level alone
	}
	return z
}}

// finish compresses what was packed behind the header.
func (p *packer) finish(header string, limit int) ([]byte, error) {
	if len(p.out) > limit {
		return nil, fmt.Errorf("%w: %d bytes of %d", ErrCheckpointTooLarge, len(p.out), limit)
	}
	var out bytes.Buffer
	out.Grow(len(header) + len(p.out)/4 + 256)
	out.WriteString(header)
	z := compressors.Get().(*gzip.Writer)
	defer compressors.Put(z)
	z.Reset(&out)
	_, err := z.Write(p.out)
	err = errors.Join(err, z.Close())
	z.Reset(io.Discard) // and lets go of out
	if err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// unpacker reads what a packer wrote. The first fault stays; what is read after it is zero.
type unpacker struct {
	in     []byte
	values [][]byte
	err    error
}

// newUnpacker decompresses up to limit bytes.
func newUnpacker(data []byte, header string, limit int) (*unpacker, error) {
	rest, ok := bytes.CutPrefix(data, []byte(header))
	if !ok {
		return nil, fmt.Errorf("%w: it begins with %q", ErrCheckpoint, clip(string(data[:min(len(data), len(header))]), maxQuoted))
	}
	z, err := gzip.NewReader(bytes.NewReader(rest))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	z.Multistream(false)
	in, err := io.ReadAll(io.LimitReader(z, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	if len(in) > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrCheckpoint, limit)
	}
	return &unpacker{in: in}, nil
}

func (u *unpacker) fail(what string) {
	if u.err == nil {
		u.err = fmt.Errorf("%w: %s", ErrCheckpoint, what)
		u.in = nil
	}
}

func (u *unpacker) number() uint64 {
	n, size := binary.Uvarint(u.in)
	if size <= 0 {
		u.fail("a number is cut")
		return 0
	}
	u.in = u.in[size:]
	return n
}

// maxCounter bounds counters of events, so that sums of them stay in range.
const maxCounter = 1 << 48

func (u *unpacker) counter() int {
	n := u.number()
	if n > maxCounter {
		u.fail("a counter is out of range")
		return 0
	}
	return int(n)
}

// count reads how many things follow, each of a byte at least.
func (u *unpacker) count() int {
	n := u.number()
	if n > uint64(len(u.in)) {
		u.fail("more is announced than there is")
		return 0
	}
	return int(n)
}

func (u *unpacker) take() []byte {
	n := u.count()
	v := u.in[:n:n]
	u.in = u.in[n:]
	return v
}

func (u *unpacker) text() string { return string(u.take()) }

func (u *unpacker) flag() bool {
	if len(u.in) == 0 || u.in[0] > 1 {
		u.fail("a flag is neither set nor not")
		return false
	}
	set := u.in[0] == 1
	u.in = u.in[1:]
	return set
}

func (u *unpacker) position() Position { return Position{Hi: u.number(), Lo: u.number()} }

func (u *unpacker) tag() tag {
	if !u.flag() {
		return tag{}
	}
	return tag{u.text(), true}
}

// value reads a JSON value, or nil.
func (u *unpacker) value() []byte {
	switch u.number() {
	case packedNil:
		return nil
	case packedLiteral:
		v := u.take()
		if u.err == nil && checkValue(v) != nil {
			u.fail("a value isn't JSON")
			return nil
		}
		u.values = append(u.values, v)
		return v
	case packedAgain:
		n := u.number()
		if n >= uint64(len(u.values)) {
			u.fail("a value isn't there")
			return nil
		}
		return u.values[n]
	default:
		u.fail("a value of an unknown kind")
		return nil
	}
}

// object reads a JSON object; nil is allowed where optional.
func (u *unpacker) object(optional bool) []byte {
	v := u.value()
	if u.err == nil && !isObject(v) && (v != nil || !optional) {
		u.fail("a value is no object")
		return nil
	}
	return v
}

func (u *unpacker) input() []byte {
	v := u.value()
	eachInputMessage(v, func(m []byte) { u.values = append(u.values, m) })
	return v
}

// done tells what was wrong. Nothing may be left over.
func (u *unpacker) done() error {
	if u.err == nil && len(u.in) > 0 {
		u.fail("something is left over")
	}
	return u.err
}
