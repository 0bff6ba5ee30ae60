package framing

// Buffer holds at most Limit bytes. What doesn't fit is dropped, and Over says so.
type Buffer struct {
	Limit int
	Bytes []byte
	Over  bool
}

// Add appends p, as far as it fits.
func (b *Buffer) Add(p []byte) {
	if room := b.Limit - len(b.Bytes); len(p) > room {
		p, b.Over = p[:room], true
	}
	b.Bytes = append(b.Bytes, p...)
}

// Take returns what is held and forgets it.
func (b *Buffer) Take() (data []byte, over bool) {
	data, over = b.Bytes, b.Over
	b.Bytes, b.Over = nil, false
	return data, over
}
