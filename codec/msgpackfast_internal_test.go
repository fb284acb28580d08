package codec

import (
	"encoding"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

type level int8

type scalars struct {
	I    int
	I8   int8
	I16  int16
	I32  int32
	I64  int64 `msgpack:"sixty-four"`
	U    uint
	U8   uint8
	U16  uint16
	U32  uint32
	U64  uint64
	Is   bool
	F32  float32
	F64  float64
	S    string
	B    []byte
	At   time.Time
	L    level
	In   inner
	None struct{}
	Wait time.Duration
	Left int `msgpack:"-"`
	Last struct{}
}

type inner struct {
	A struct{ B string }
	C uint64
}

// moved is scalars as another program would write it: other order, other fields.
type moved struct {
	S   string
	New string
	I   int
}

func drawScalars(t *rapid.T) scalars {
	text := rapid.OneOf(rapid.String(), rapid.Custom(func(t *rapid.T) string {
		return string(make([]byte, rapid.IntRange(0, 70_000).Draw(t, "length")))
	}))
	return scalars{
		I: rapid.Int().Draw(t, "i"), I8: rapid.Int8().Draw(t, "i8"), I16: rapid.Int16().Draw(t, "i16"), I32: rapid.Int32().Draw(t, "i32"),
		I64: rapid.Int64().Draw(t, "i64"), U: rapid.Uint().Draw(t, "u"), U8: rapid.Uint8().Draw(t, "u8"), U16: rapid.Uint16().Draw(t, "u16"),
		U32: rapid.Uint32().Draw(t, "u32"), U64: rapid.Uint64().Draw(t, "u64"), Is: rapid.Bool().Draw(t, "is"), F32: rapid.Float32().Draw(t, "f32"),
		F64: rapid.Float64().Draw(t, "f64"), S: text.Draw(t, "s"), L: level(rapid.Int8().Draw(t, "l")),
		B: rapid.OneOf(rapid.Just([]byte(nil)), rapid.Just([]byte{}), rapid.Map(text, func(s string) []byte { return []byte(s) })).Draw(t, "b"),
		At: rapid.OneOf(rapid.Just(time.Time{}), rapid.Custom(func(t *rapid.T) time.Time {
			return time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "seconds"), rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 999_999_999)).Draw(t, "nanos"))
		})).Draw(t, "at"),
		In: inner{A: struct{ B string }{rapid.String().Draw(t, "inner")}, C: rapid.Uint64().Draw(t, "c")}, Wait: time.Duration(rapid.Int64().Draw(t, "wait")),
	}
}

func codecFor[T any](t require.TestingT) *msgpackCodec[T] {
	c, err := For[T]()
	require.NoError(t, err)
	return c.(*msgpackCodec[T])
}

// sameDecoding requires that both ways read src alike.
func sameDecoding[T any](t require.TestingT, c *msgpackCodec[T], src []byte) {
	want, wantErr := c.decodeAny(src)
	got, err := c.Decode(src)
	if wantErr != nil {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	// Compared as they are written, since NaN is not equal to itself.
	wantText, err := c.appendAny(nil, want)
	require.NoError(t, err)
	gotText, err := c.appendAny(nil, got)
	require.NoError(t, err)
	require.Equal(t, wantText, gotText)
}

func TestCompiledCodecsWriteAndReadWhatTheLibraryDoes(t *testing.T) {
	c := codecFor[scalars](t)
	require.NotNil(t, c.fast)
	rapid.Check(t, func(t *rapid.T) {
		v := drawScalars(t)
		want, err := c.appendAny([]byte("before"), v)
		require.NoError(t, err)
		got, err := c.Append([]byte("before"), v)
		require.NoError(t, err)
		require.Equal(t, want, got)
		src := got[len("before"):]
		var read scalars
		require.True(t, c.fast.decode(reflect.ValueOf(&read).UnsafePointer(), src), "what it has written, it reads")
		sameDecoding(t, c, src)
		if len(src) > 1000 {
			return
		}
		for range 20 {
			damaged := append([]byte{}, src...)
			at := rapid.IntRange(0, len(damaged)-1).Draw(t, "at")
			switch rapid.IntRange(0, 3).Draw(t, "how") {
			case 0:
				damaged[at] = rapid.Byte().Draw(t, "byte")
			case 1:
				damaged = damaged[:at]
			case 2:
				damaged = append(damaged[:at], damaged[at+1:]...)
			case 3:
				damaged = append(damaged, 0)
			}
			sameDecoding(t, c, damaged)
		}
	})
}

func TestCompiledCodecsReadOtherVersions(t *testing.T) {
	now, before := codecFor[scalars](t), codecFor[moved](t)
	require.NotNil(t, before.fast)
	b, err := before.Append(nil, moved{"text", "unknown", 7})
	require.NoError(t, err)
	v, err := now.Decode(b)
	require.NoError(t, err)
	require.Equal(t, scalars{S: "text", I: 7}, v)
	b, err = now.Append(nil, scalars{S: "text", I: -1, U64: 3})
	require.NoError(t, err)
	m, err := before.Decode(b)
	require.NoError(t, err)
	require.Equal(t, moved{S: "text", I: -1}, m)
}

type shout struct{ S string }

func (s shout) MarshalText() ([]byte, error)     { return []byte(s.S + "!"), nil }
func (s *shout) UnmarshalText(text []byte) error { s.S = string(text[:len(text)-1]); return nil }

var _ encoding.TextMarshaler = shout{}

type base struct{ A int }

type extended struct{ N int64 }

// TestWhatMethodsAndTagsEncodeIsLeftToTheLibrary names what must not be compiled.
func TestWhatMethodsAndTagsEncodeIsLeftToTheLibrary(t *testing.T) {
	requireLibrary(t, struct{ S shout }{shout{"a"}})
	requireLibrary(t, struct{ S []shout }{[]shout{{"a"}}})
	requireLibrary(t, struct{ base }{base{1}})
	requireLibrary(t, struct {
		A int `msgpack:"a,omitempty"`
	}{})
	requireLibrary(t, struct {
		_msgpack struct{} `msgpack:"-,as_array"`
		A        int
	}{A: 1})
	requireLibrary(t, struct{ P *int }{new(int)})
	requireLibrary(t, struct{ M map[string]int }{map[string]int{"a": 1}})
	requireLibrary(t, struct{ L []string }{[]string{"a"}})
	msgpack.RegisterExt(77, (*extended)(nil))
	requireLibrary(t, struct{ E extended }{extended{5}})
}

// MarshalMsgpack is for the extension.
func (e *extended) MarshalMsgpack() ([]byte, error) { return []byte{byte(e.N)}, nil }

// UnmarshalMsgpack is for the extension.
func (e *extended) UnmarshalMsgpack(b []byte) error { e.N = int64(b[0]); return nil }

func requireLibrary[T any](t *testing.T, v T) {
	t.Helper()
	c := codecFor[T](t)
	require.Nil(t, c.fast, "%T", v)
	b, err := c.Append(nil, v)
	require.NoError(t, err)
	got, err := c.Decode(b)
	require.NoError(t, err)
	require.Equal(t, v, got)
}

// TestCompiledCodecsDoNotAllocate: exactly nothing for types without text, and the text itself for others.
func TestCompiledCodecsDoNotAllocate(t *testing.T) {
	type fixed struct {
		Key, Sequence uint64
		Millis        int64
		At            time.Time
		In            struct{ F float64 }
	}
	requireAllocations(t, 0, 0, fixed{1, 1 << 60, -5, time.Unix(1_700_000_000, 5), struct{ F float64 }{1.5}})
	requireAllocations(t, 0, 1, struct {
		User string
		N    int64
	}{"user-1234567", 5})
}

func requireAllocations[T any](t *testing.T, encode, decode int, v T) {
	t.Helper()
	c, err := For[T]()
	require.NoError(t, err)
	buf, err := c.Append(nil, v)
	require.NoError(t, err)
	encoded := append([]byte{}, buf...)
	require.Equal(t, encode, int(testing.AllocsPerRun(1000, func() { buf, _ = c.Append(buf[:0], v) })))
	var got T
	require.Equal(t, decode, int(testing.AllocsPerRun(1000, func() { got, _ = c.Decode(encoded) })))
	require.Equal(t, v, got)
}

func BenchmarkStruct(b *testing.B) {
	type event struct {
		Key, Sequence uint64
		Millis        int64
	}
	c := codecFor[event](b)
	v := event{123456, 7_654_321, 1_700_000_000_123}
	buf, err := c.Append(nil, v)
	require.NoError(b, err)
	encoded := append([]byte{}, buf...)
	b.Run("append", func(b *testing.B) {
		for b.Loop() {
			buf, _ = c.Append(buf[:0], v)
		}
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			_, _ = c.Decode(encoded)
		}
	})
	b.Run("append by the library", func(b *testing.B) {
		for b.Loop() {
			buf, _ = c.appendAny(buf[:0], v)
		}
	})
	b.Run("decode by the library", func(b *testing.B) {
		for b.Loop() {
			_, _ = c.decodeAny(encoded)
		}
	})
}
