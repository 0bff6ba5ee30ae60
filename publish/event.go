package publish

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/aguihub/aguihub/stream"
)

// Event returns v, a map or a struct with JSON tags, as an event's bytes. It doesn't look into them: Append does.
func Event(v any) ([]byte, error) {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

func recordOf(event []byte) stream.Record { return stream.Record{Event: event} }
