package load

import (
	"fmt"
	"time"

	"github.com/gobwas/ws"
	"google.golang.org/protobuf/encoding/protowire"
)

// Numbers of the fields of Centrifugo's client protocol that are written or read here. Events need no decoding: they stand in
// their messages as they were published, and see finds them.
const (
	commandID        protowire.Number = 1
	commandConnect   protowire.Number = 4
	commandSubscribe protowire.Number = 5
	replyID          protowire.Number = 1
	replyError       protowire.Number = 2
	replyConnect     protowire.Number = 5
	replySubscribe   protowire.Number = 6
	subscribeChannel protowire.Number = 1
	subscribeCanDo   protowire.Number = 3 // recoverable
)

// subscribeBinary is subscribe in the protocol's other form: length-delimited protobuf messages in binary frames.
func (*centrifugo) subscribeBinary(s *socket, channel string) error {
	if _, err := s.command(1, commandConnect, nil, replyConnect); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	request := protowire.AppendString(protowire.AppendTag(nil, subscribeChannel, protowire.BytesType), channel)
	result, err := s.command(2, commandSubscribe, request, replySubscribe)
	if err == nil && result.numbers[subscribeCanDo] != 1 {
		err = fmt.Errorf("it can't be recovered: %v", result)
	}
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	return nil
}

// command sends a command and reads up to its result. What stands behind it is what Next returns first.
func (s *socket) command(id uint64, kind protowire.Number, request []byte, result protowire.Number) (message, error) {
	b := protowire.AppendVarint(protowire.AppendTag(nil, commandID, protowire.VarintType), id)
	b = protowire.AppendBytes(protowire.AppendTag(b, kind, protowire.BytesType), request)
	if err := s.write(ws.NewBinaryFrame(protowire.AppendBytes(nil, b))); err != nil {
		return message{}, err
	}
	if err := s.conn.SetReadDeadline(time.Now().Add(dialPatience)); err != nil {
		return message{}, err
	}
	for {
		rest, err := s.Next()
		if err != nil {
			return message{}, err
		}
		for len(rest) > 0 {
			b, n := protowire.ConsumeBytes(rest)
			if n < 0 {
				return message{}, protowire.ParseError(n)
			}
			rest = rest[n:]
			reply, err := parseMessage(b)
			if err != nil {
				return message{}, err
			}
			if reply.numbers[replyID] != id {
				continue
			}
			if text, failed := reply.texts[replyError]; failed {
				return message{}, fmt.Errorf("error: %q", text)
			}
			s.rest = rest
			if err := s.conn.SetReadDeadline(time.Time{}); err != nil {
				return message{}, err
			}
			return parseMessage(reply.texts[result])
		}
	}
}

// message is the fields of a protobuf message; of repeated ones the last.
type message struct {
	numbers map[protowire.Number]uint64
	texts   map[protowire.Number][]byte // and messages
}

func parseMessage(b []byte) (message, error) {
	m := message{numbers: map[protowire.Number]uint64{}, texts: map[protowire.Number][]byte{}}
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return m, protowire.ParseError(n)
		}
		b = b[n:]
		switch kind {
		case protowire.VarintType:
			m.numbers[field], n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			m.texts[field], n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(field, kind, b)
		}
		if n < 0 {
			return m, protowire.ParseError(n)
		}
		b = b[n:]
	}
	return m, nil
}
