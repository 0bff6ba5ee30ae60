package framing

import (
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/aguihub/aguihub/agui"
)

// object is a JSON object in the making.
type object = map[string]any

// absent is a Value without anything in it.
type absent struct{}

// walk calls see with each field of a message: a varint, or the bytes of what has a length, or the bits of a double. Fields of
// other wire types are nothing to AG-UI and left out.
func walk(b []byte, see func(num protowire.Number, typ protowire.Type, v uint64, data []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errWire
		}
		b = b[n:]
		var v uint64
		var data []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return errWire
		}
		b = b[n:]
		if err := see(num, typ, v, data); err != nil {
			return err
		}
	}
	return nil
}

// decodeMessage decodes a message of the schema.
func decodeMessage(name string, b []byte, depth int) (object, error) {
	if depth > agui.MaxDepth {
		return nil, errDeep
	}
	fields := theTables().messages[name]
	out := object{}
	parts := map[int][]byte{} // of a message that comes in parts: they are one, one behind the other
	err := walk(b, func(num protowire.Number, typ protowire.Type, v uint64, data []byte) error {
		if int(num) > len(fields) {
			return nil
		}
		f := fields[num-1]
		if f.kind > kindBool && !f.repeated {
			if typ == protowire.BytesType {
				parts[int(num)] = append(slices.Clip(parts[int(num)]), data...)
			}
			return nil
		}
		value, ok, err := decodeField(f, typ, v, data, depth)
		switch {
		case err != nil || !ok:
			return err
		case f.repeated:
			list, _ := out[f.name].([]any)
			out[f.name] = append(list, value)
		default:
			out[f.name] = value
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for num, data := range parts {
		f := fields[num-1]
		value, ok, err := decodeField(f, protowire.BytesType, 0, data, depth)
		if err != nil {
			return nil, err
		}
		if ok {
			out[f.name] = value
		}
	}
	complete(fields, out)
	return out, finishMessage(name, out)
}

// complete sets what stands in the JSON although it isn't on the wire.
func complete(fields []field, out object) {
	for _, f := range fields {
		if _, there := out[f.name]; there {
			continue
		}
		switch {
		case f.repeated:
			out[f.name] = []any{}
		case f.always && f.kind == kindInt:
			out[f.name] = int64(0)
		case f.always:
			out[f.name] = ""
		}
	}
}

// decodeField decodes one value; ok is false where it is of another wire type, or nothing.
func decodeField(f field, typ protowire.Type, v uint64, data []byte, depth int) (value any, ok bool, err error) {
	if f.kind == kindInt || f.kind == kindBool {
		if typ != protowire.VarintType {
			return nil, false, nil
		}
		if f.kind == kindBool {
			return v != 0, true, nil
		}
		return int64(v), true, nil //nolint:gosec // that is how a varint holds one
	}
	if typ != protowire.BytesType {
		return nil, false, nil
	}
	switch f.kind {
	case kindMessage:
		value, err = decodeMessage(f.message, data, depth+1)
	case kindValue:
		value, err = decodeValue(data, depth+1)
		if _, none := value.(absent); none {
			return nil, false, err
		}
	case kindObject:
		value, err = decodeObject(data, depth+1)
	default:
		value, err = decodeText(data)
	}
	return value, err == nil, err
}

func decodeText(data []byte) (string, error) {
	if !utf8.Valid(data) {
		return "", errText
	}
	return string(data), nil
}

// decodeValue decodes a google.protobuf.Value.
func decodeValue(b []byte, depth int) (value any, err error) {
	if depth > agui.MaxDepth {
		return nil, errDeep
	}
	value = absent{}
	err = walk(b, func(num protowire.Number, typ protowire.Type, v uint64, data []byte) (err error) {
		switch {
		case num == 1 && typ == protowire.VarintType:
			value = nil
		case num == 2 && typ == protowire.Fixed64Type:
			value = nil
			if d := math.Float64frombits(v); !math.IsNaN(d) && !math.IsInf(d, 0) {
				value = d
			}
		case num == 3 && typ == protowire.BytesType:
			value, err = decodeText(data)
		case num == 4 && typ == protowire.VarintType:
			value = v != 0
		case num == 5 && typ == protowire.BytesType:
			value, err = decodeObject(data, depth+1)
		case num == 6 && typ == protowire.BytesType:
			value, err = decodeList(data, depth+1)
		}
		return err
	})
	return value, err
}

// decodeObject decodes a google.protobuf.Struct.
func decodeObject(b []byte, depth int) (object, error) {
	if depth > agui.MaxDepth {
		return nil, errDeep
	}
	out := object{}
	err := walk(b, func(num protowire.Number, typ protowire.Type, _ uint64, data []byte) error {
		if num != 1 || typ != protowire.BytesType {
			return nil
		}
		key, value := "", any(absent{})
		err := walk(data, func(num protowire.Number, typ protowire.Type, _ uint64, data []byte) (err error) {
			switch {
			case typ != protowire.BytesType:
			case num == 1:
				key, err = decodeText(data)
			case num == 2:
				value, err = decodeValue(data, depth+1)
			}
			return err
		})
		if _, none := value.(absent); !none {
			out[key] = value
		}
		return err
	})
	return out, err
}

// decodeList decodes a google.protobuf.ListValue.
func decodeList(b []byte, depth int) ([]any, error) {
	out := []any{}
	err := walk(b, func(num protowire.Number, typ protowire.Type, _ uint64, data []byte) error {
		if num != 1 || typ != protowire.BytesType {
			return nil
		}
		value, err := decodeValue(data, depth)
		if _, none := value.(absent); none {
			value = nil
		}
		out = append(out, value)
		return err
	})
	return out, err
}
