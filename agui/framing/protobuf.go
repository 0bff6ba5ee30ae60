package framing

// NewProtobuf stub
func NewProtobuf(limit int) Decoder { return NewEventStream(limit) }
