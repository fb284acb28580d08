package codec

import (
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"
)

// timeCodec is seconds since the epoch, nanoseconds, and the zone's offset in seconds east of UTC, each a varint. The zone's name and
// a monotonic reading are not kept.
type timeCodec[T any] struct{}

func (timeCodec[T]) ID() string          { return "time" }
func (timeCodec[T]) Fingerprint() uint64 { return 0 }

func (timeCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	t := *(*time.Time)(unsafe.Pointer(&v))
	_, offset := t.Zone()
	dst = binary.AppendVarint(dst, t.Unix())
	dst = binary.AppendUvarint(dst, uint64(t.Nanosecond()))
	return binary.AppendVarint(dst, int64(offset)), nil
}

func (timeCodec[T]) Decode(src []byte) (v T, err error) {
	sec, n := binary.Varint(src)
	if n <= 0 {
		return v, fmt.Errorf("seconds of a time: %w", ErrTruncated)
	}
	src = src[n:]
	nsec, n := binary.Uvarint(src)
	if n <= 0 {
		return v, fmt.Errorf("nanoseconds of a time: %w", ErrTruncated)
	}
	src = src[n:]
	offset, n := binary.Varint(src)
	if err := checkVarint(src, n); err != nil {
		return v, fmt.Errorf("zone of a time: %w", err)
	}
	if nsec >= 1e9 || offset != int64(int32(offset)) {
		return v, fmt.Errorf("%w: %d nanoseconds, zone offset %d s", ErrInvalid, nsec, offset)
	}
	t := time.Unix(sec, int64(nsec)).UTC()
	if offset != 0 {
		t = t.In(time.FixedZone("", int(offset)))
	}
	*(*time.Time)(unsafe.Pointer(&v)) = t
	return v, nil
}
