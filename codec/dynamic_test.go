package codec_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/codec"
)

func requireDynamic[T any](t *testing.T, v T, want any) {
	t.Helper()
	c, err := codec.For[T]()
	require.NoError(t, err)
	b, err := c.Append(nil, v)
	require.NoError(t, err)
	got, err := codec.DecodeValue(c.ID(), b)
	require.NoError(t, err, c.ID())
	require.Equal(t, want, got)
}

func requireDynamicKey[K comparable](t *testing.T, k K, want any) {
	t.Helper()
	c, err := codec.ForKey[K]()
	require.NoError(t, err)
	got, err := codec.DecodeKey(c.ID(), c.Append(nil, k))
	require.NoError(t, err, c.ID())
	require.Equal(t, want, got)
}

func TestValuesAreReadWithoutTheirType(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 5, time.UTC)
	requireDynamic(t, true, true)
	requireDynamic(t, int8(-128), int64(-128))
	requireDynamic(t, int64(-1), int64(-1))
	requireDynamic(t, uint16(65535), uint64(65535))
	requireDynamic(t, 1.5, 1.5)
	requireDynamic(t, float32(1.5), float32(1.5))
	requireDynamic(t, "x\x00y", "x\x00y")
	requireDynamic(t, []byte{1, 0}, []byte{1, 0})
	requireDynamic(t, at, at)
	type inner struct{ A []string }
	type value struct {
		N    uint8
		Map  map[int]inner
		Time time.Time
		None *int
	}
	requireDynamic(t, value{N: 3, Map: map[int]inner{7: {A: []string{"x"}}}, Time: at}, map[string]any{
		"N": int8(3), "Map": map[string]any{"7": map[string]any{"A": []any{"x"}}}, "Time": at.Local(), "None": nil,
	})
	_, err := codec.DecodeValue("int8", []byte{0x80, 0x04})
	require.ErrorIs(t, err, codec.ErrInvalid)
	_, err = codec.DecodeValue("protobuf", nil)
	require.ErrorIs(t, err, codec.ErrUnknown)
}

func TestKeysAreReadWithoutTheirType(t *testing.T) {
	at := time.Date(1926, 5, 4, 3, 2, 1, 5, time.UTC)
	requireDynamicKey(t, "a\x00b", "a\x00b")
	requireDynamicKey(t, int8(-3), int64(-3))
	requireDynamicKey(t, int64(-1<<63), int64(-1<<63))
	requireDynamicKey(t, uint32(7), uint64(7))
	requireDynamicKey(t, true, true)
	requireDynamicKey(t, at, at)
	requireDynamicKey(t, [3]byte{1, 2, 255}, "0102ff")
	type point struct {
		X    int32
		Name string
		In   struct {
			On bool
			At time.Time
			ID [2]byte
		}
		Tail [2]uint16
	}
	k := point{X: -5, Name: "a\x00b", Tail: [2]uint16{1, 2}}
	k.In.On, k.In.At, k.In.ID = true, at, [2]byte{0xab, 0xcd}
	requireDynamicKey(t, k, []any{int64(-5), "a\x00b", []any{true, at, "abcd"}, []any{uint64(1), uint64(2)}})
	requireDynamicKey(t, struct{}{}, []any{})
	requireDynamicKey(t, [2]struct{ S string }{{"a"}, {"b"}}, []any{[]any{"a"}, []any{"b"}})
}

func FuzzDynamic(f *testing.F) {
	for _, id := range []string{"string", "int8", "uint64", "bool", "time", "bytes", "float32", "msgpack", "struct{int8,[2]string}", "[3]byte"} {
		f.Add(id, []byte{0x93, 1, 2, 3})
	}
	f.Fuzz(func(_ *testing.T, id string, src []byte) {
		_, _ = codec.DecodeValue(id, src)
		_, _ = codec.DecodeKey(id, src)
	})
}
