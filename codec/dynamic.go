package codec

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/vmihailenco/msgpack/v5"
)

// ErrUnknown is returned for an encoding that does not describe itself, so that only the program that wrote it can read it.
var ErrUnknown = errors.New("encoding is known to the program only that wrote it")

// DecodeValue decodes a value of a codec that is known by its ID only, as stored with the state. Structs in MessagePack become maps by
// the names of their fields. It returns ErrUnknown for encodings that do not describe themselves.
func DecodeValue(id string, src []byte) (any, error) {
	switch id {
	case "bool":
		return boolCodec[bool]{}.Decode(src)
	case "string":
		return stringCodec[string]{}.Decode(src)
	case "bytes":
		return bytesCodec[[]byte]{}.Decode(src)
	case "time":
		return timeCodec[time.Time]{}.Decode(src)
	case "float32":
		return float32Codec[float32]{}.Decode(src)
	case "float64":
		return float64Codec[float64]{}.Decode(src)
	case "msgpack":
		return decodeMsgpack(src)
	case "json":
		return decodeJSON(src)
	}
	signed, bits, ok := integer(id)
	switch {
	case !ok:
	case signed:
		v, err := intCodec[int64]{bits: 64}.Decode(src)
		return v, fits(err, v<<(64-bits)>>(64-bits) == v, id)
	default:
		v, err := uintCodec[uint64]{bits: 64}.Decode(src)
		return v, fits(err, v<<(64-bits)>>(64-bits) == v, id)
	}
	return nil, fmt.Errorf("%w: %s", ErrUnknown, id)
}

func fits(err error, ok bool, id string) error {
	if err == nil && !ok {
		return fmt.Errorf("%w: number too large for %s", ErrInvalid, id)
	}
	return err
}

// integer takes "int32" and the like apart.
func integer(id string) (signed bool, bits int, ok bool) {
	size, signed := strings.CutPrefix(id, "int")
	if !signed {
		if size, ok = strings.CutPrefix(id, "uint"); !ok {
			return false, 0, false
		}
	}
	switch size {
	case "8", "16", "32", "64":
		bits, _ = strconv.Atoi(size)
		return signed, bits, true
	}
	return false, 0, false
}

// decodeJSON decodes a value of package jsoncodec. Numbers stay as they are written.
func decodeJSON(src []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(src))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, ErrTrailing
	}
	return v, nil
}

func decodeMsgpack(src []byte) (any, error) {
	d := msgpack.NewDecoder(bytes.NewReader(src))
	d.SetMapDecoder(func(d *msgpack.Decoder) (any, error) {
		m, err := d.DecodeUntypedMap()
		if err != nil {
			return nil, err
		}
		named := make(map[string]any, len(m))
		for k, v := range m {
			named[fmt.Sprint(k)] = v
		}
		return named, nil
	})
	v, err := d.DecodeInterface()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return v, nil
}

// DecodeKey decodes a key of a codec that is known by its ID only. Structs and arrays become slices of their parts in order, arrays of
// bytes hexadecimal text.
func DecodeKey(id string, src []byte) (any, error) {
	if id == "string" {
		return string(src), nil // escaped only inside others
	}
	v, id, rest, err := cutKey(id, src)
	switch {
	case err != nil:
		return nil, err
	case id != "":
		return nil, fmt.Errorf("%w: %q", ErrUnknown, id)
	case len(rest) > 0:
		return nil, ErrTrailing
	}
	return v, nil
}

// cutKey decodes the part of a key that id begins with, and returns what follows in id and src.
func cutKey(id string, src []byte) (v any, idRest string, rest []byte, err error) {
	if inner, ok := strings.CutPrefix(id, "struct{"); ok {
		parts := []any{}
		for inner != "" && inner[0] != '}' {
			if v, inner, src, err = cutKey(strings.TrimPrefix(inner, ","), src); err != nil {
				return nil, "", nil, err
			}
			parts = append(parts, v)
		}
		return parts, strings.TrimPrefix(inner, "}"), src, nil
	}
	if strings.HasPrefix(id, "[") {
		return cutKeyArray(id, src)
	}
	end := strings.IndexAny(id, ",}")
	if end < 0 {
		end = len(id)
	}
	name, idRest := id[:end], id[end:]
	switch name {
	case "string":
		var b []byte
		b, rest, err = CutEscaped(nil, src)
		v = string(b)
	case "bool":
		v, rest, err = cutBool(src)
	case "time":
		var t time.Time
		rest, err = keyPart{kind: partTime}.decode(unsafe.Pointer(&t), src)
		v = t
	default:
		isSigned, bits, ok := integer(name)
		switch {
		case !ok:
			err = fmt.Errorf("%w: key %q", ErrUnknown, name)
		case len(src) < bits/8:
			err = ErrTruncated
		case isSigned:
			v, rest = signed(cutFixed(src, bits), bits), src[bits/8:]
		default:
			v, rest = cutFixed(src, bits), src[bits/8:]
		}
	}
	if err != nil {
		return nil, "", nil, err
	}
	return v, idRest, rest, nil
}

func cutKeyArray(id string, src []byte) (v any, idRest string, rest []byte, err error) {
	size, of, ok := strings.Cut(id[1:], "]")
	n, err := strconv.Atoi(size)
	if !ok || err != nil || n < 0 {
		return nil, "", nil, fmt.Errorf("%w: key %q", ErrUnknown, id)
	}
	if idRest, ok := strings.CutPrefix(of, "byte"); ok {
		if len(src) < n {
			return nil, "", nil, ErrTruncated
		}
		return hex.EncodeToString(src[:n]), idRest, src[n:], nil
	}
	if n > len(src) {
		return nil, "", nil, ErrTruncated
	}
	parts := make([]any, 0, n)
	for range n {
		if v, idRest, src, err = cutKey(of, src); err != nil {
			return nil, "", nil, err
		}
		parts = append(parts, v)
	}
	return parts, idRest, src, nil
}
