package codec_test

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/codec"
)

type userID string

type order struct {
	ID     int64
	User   userID
	Tags   []string
	Extra  map[string]any
	Amount *uint64
	At     time.Time
	Raw    []byte
	cached int `msgpack:"-"`
}

// orderV2 is order after a field was added and one removed.
type orderV2 struct {
	ID   int64
	User userID
	Note string
}

// point encodes itself.
type point struct{ x, y uint32 }

func (p point) AppendBinary(dst []byte) ([]byte, error) {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, p.x), p.y), nil
}

func (p *point) UnmarshalBinary(src []byte) error {
	if len(src) != 8 {
		return codec.ErrTruncated
	}
	p.x, p.y = binary.BigEndian.Uint32(src), binary.BigEndian.Uint32(src[4:])
	return nil
}

func must[T any](t require.TestingT) codec.Codec[T] {
	c, err := codec.For[T]()
	require.NoError(t, err)
	return c
}

func vector[T any](t *testing.T, id, want string, v T) {
	t.Helper()
	c := must[T](t)
	require.Equal(t, id, c.ID())
	b, err := c.Append([]byte("x"), v)
	require.NoError(t, err)
	require.Equal(t, want, hex.EncodeToString(b[1:]))
	got, err := c.Decode(b[1:])
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(v, got, cmp.AllowUnexported(point{}, order{}), protocmp.Transform()))
}

// The vectors hold the formats: state and checkpoints written by a released version must stay readable.
func TestVectorsOfValueCodecs(t *testing.T) {
	vector(t, "bool", "01", true)
	vector(t, "int8", "ff01", int8(-128))
	vector(t, "int16", "ac02", int16(150))
	vector(t, "int32", "ffffffff0f", int32(math.MinInt32))
	vector(t, "int64", "ffffffffffffffffff01", int64(math.MinInt64))
	vector(t, "int64", "8280808080808020", int(9007199254740993))
	vector(t, "uint8", "ff01", uint8(255))
	vector(t, "uint64", "ffffffffffffffffff01", uint64(math.MaxUint64))
	vector(t, "float64", "3ff8000000000000", 1.5)
	vector(t, "float32", "3fc00000", float32(1.5))
	vector(t, "string", "c3b600ff", "ö\x00\xff")
	vector(t, "string", "", "")
	vector(t, "string", "6162", userID("ab"))
	vector(t, "bytes", "00", []byte(nil))
	vector(t, "bytes", "01", []byte{})
	vector(t, "bytes", "010080", []byte{0, 0x80})
	vector(t, "time", "80f783ac0d0700", time.Unix(1791000000, 7).UTC())
	vector(t, "time", "ffdb8ff9ce030000", time.Time{})
	vector(t, "time", "0000a038", time.Unix(0, 0).In(time.FixedZone("", 3600)))
	vector(t, "binary", "0000000100000002", point{1, 2})
	vector(t, "binary", "00", (*point)(nil))
	vector(t, "binary", "010000000100000002", &point{1, 2})
	vector(t, "protobuf", "00", (*durationpb.Duration)(nil))
	vector(t, "protobuf", "01", &durationpb.Duration{})
	vector(t, "protobuf", "010803", &durationpb.Duration{Seconds: 3})
	vector(t, "msgpack", "83a24944cf0020000000000001a455736572a175a44e6f7465a0", orderV2{ID: 9007199254740993, User: "u"})
	vector(t, "msgpack", "81a16101", map[string]int{"a": 1})
	vector(t, "msgpack", "c0", map[string]int(nil))
	vector(t, "msgpack", "80", map[string]int{})
}

func TestIntegersInsideInterfacesStayExact(t *testing.T) {
	c := must[map[string]any](t)
	want := map[string]any{
		"odd": int64(9007199254740993), "min": int64(math.MinInt64), "max": uint64(math.MaxUint64), "small": int64(3),
		"bytes": []byte{0, 0xff}, "text": "t", "nil": nil,
	}
	b, err := c.Append(nil, want)
	require.NoError(t, err)
	got, err := c.Decode(b)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want, got))
}

func TestStructFieldsMayComeAndGo(t *testing.T) {
	old, latest := must[order](t), must[orderV2](t)
	require.Equal(t, old.Fingerprint(), latest.Fingerprint())
	amount := uint64(math.MaxUint64)
	b, err := old.Append(nil, order{ID: 7, User: "u", Tags: []string{"a"}, Amount: &amount, cached: 3})
	require.NoError(t, err)
	got, err := latest.Decode(b)
	require.NoError(t, err)
	require.Equal(t, orderV2{ID: 7, User: "u"}, got)
}

func TestFingerprintsTellUnreadableTypesApart(t *testing.T) {
	prints := map[uint64]string{}
	add := func(name string, fp uint64) {
		require.NotContains(t, prints, fp, name)
		prints[fp] = name
	}
	add("struct", must[order](t).Fingerprint())
	add("slice of structs", must[[]order](t).Fingerprint())
	add("map to string", must[map[string]string](t).Fingerprint())
	add("map to int64", must[map[string]int64](t).Fingerprint())
	add("map to int32", must[map[string]int32](t).Fingerprint())
	add("duration", must[*durationpb.Duration](t).Fingerprint())
	add("point", must[point](t).Fingerprint())
	require.Equal(t, must[map[string]int64](t).Fingerprint(), must[map[userID]int](t).Fingerprint())
}

func TestTypesThatWouldLoseSomethingAreRefused(t *testing.T) {
	_, err := codec.For[struct{ hidden int }]()
	require.ErrorContains(t, err, "hidden: an unexported field would be lost")
	_, err = codec.For[map[string][]struct{ C chan int }]()
	require.ErrorContains(t, err, "[][].C: values of kind chan")
	_, err = codec.For[func()]()
	require.Error(t, err)
	_, err = codec.For[error]()
	require.ErrorContains(t, err, "concrete type")
}

func TestDecodersCheckTheirInput(t *testing.T) {
	_, err := must[int8](t).Decode(binary.AppendVarint(nil, 128))
	require.ErrorIs(t, err, codec.ErrInvalid)
	_, err = must[int64](t).Decode(nil)
	require.ErrorIs(t, err, codec.ErrTruncated)
	_, err = must[uint64](t).Decode([]byte{1, 1})
	require.ErrorIs(t, err, codec.ErrTrailing)
	_, err = must[bool](t).Decode([]byte{2})
	require.ErrorIs(t, err, codec.ErrInvalid)
	_, err = must[float64](t).Decode(make([]byte, 7))
	require.ErrorIs(t, err, codec.ErrTruncated)
	_, err = must[[]byte](t).Decode([]byte{0, 1})
	require.ErrorIs(t, err, codec.ErrTrailing)
	_, err = must[orderV2](t).Decode([]byte{0x80, 0x80})
	require.ErrorIs(t, err, codec.ErrTrailing)
}

func TestDecodedValuesDoNotAliasTheirInput(t *testing.T) {
	src := []byte{1, 'a', 'b'}
	b, err := must[[]byte](t).Decode(src)
	require.NoError(t, err)
	s, err := must[string](t).Decode(src[1:])
	require.NoError(t, err)
	type record struct{ B []byte }
	enc, err := must[record](t).Append(nil, record{[]byte("zz")})
	require.NoError(t, err)
	r, err := must[record](t).Decode(enc)
	require.NoError(t, err)
	clear(src)
	clear(enc)
	require.Equal(t, []byte("ab"), b)
	require.Equal(t, "ab", s)
	require.Equal(t, []byte("zz"), r.B)
}

func TestStructsRoundTrip(t *testing.T) {
	c := must[order](t)
	rapid.Check(t, func(t *rapid.T) {
		want := order{
			ID:     rapid.Int64().Draw(t, "id"),
			User:   userID(rapid.String().Draw(t, "user")),
			Tags:   rapid.SliceOf(rapid.String()).Draw(t, "tags"),
			Raw:    rapid.SliceOf(rapid.Byte()).Draw(t, "raw"),
			Amount: rapid.Ptr(rapid.Uint64(), true).Draw(t, "amount"),
			At:     time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "sec"), rapid.Int64Range(0, 999999999).Draw(t, "nsec")),
		}
		b, err := c.Append(nil, want)
		require.NoError(t, err)
		got, err := c.Decode(b)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, got, cmp.AllowUnexported(order{})))
	})
}

func TestFastPathsDoNotAllocate(t *testing.T) {
	dst := make([]byte, 0, 256)
	check := func(name string, fn func()) {
		require.Zero(t, testing.AllocsPerRun(100, fn), name)
	}
	i, s, b, at := must[int64](t), must[userID](t), must[[]byte](t), must[time.Time](t)
	now := time.Now()
	raw := []byte("raw")
	check("int64", func() { dst, _ = i.Append(dst[:0], -5) })
	check("string", func() { dst, _ = s.Append(dst[:0], "user") })
	check("bytes", func() { dst, _ = b.Append(dst[:0], raw) })
	check("time", func() { dst, _ = at.Append(dst[:0], now) })
	type compound struct {
		Name string
		N    int32
		ID   [16]byte
	}
	key, err := codec.ForKey[compound]()
	require.NoError(t, err)
	check("struct key", func() { dst = key.Append(dst[:0], compound{Name: "n", N: 3}) })
}

func FuzzDecode(f *testing.F) {
	amount := uint64(3)
	seed, err := must[order](f).Append(nil, order{ID: 1, Extra: map[string]any{"a": []any{int64(1), "b"}}, Amount: &amount})
	require.NoError(f, err)
	f.Add(seed)
	f.Add([]byte{0x01, 0x00})
	f.Add([]byte{0xdf, 0xff, 0xff, 0xff, 0xff})
	for range 3 {
		seed = append([]byte{0x91, 0x91, 0x91}, seed...)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, src []byte) {
		checkFuzzed[int64](t, src)
		checkFuzzed[uint16](t, src)
		checkFuzzed[bool](t, src)
		checkFuzzed[string](t, src)
		checkFuzzed[[]byte](t, src)
		checkFuzzed[float64](t, src)
		checkFuzzed[time.Time](t, src)
		checkFuzzed[*point](t, src)
		checkFuzzed[*durationpb.Duration](t, src)
		checkFuzzed[order](t, src)
		checkFuzzed[any](t, src)
	})
}

// checkFuzzed checks that whatever decodes encodes again.
func checkFuzzed[T any](t *testing.T, src []byte) {
	c := must[T](t)
	v, err := c.Decode(src)
	if err != nil {
		return
	}
	b, err := c.Append(nil, v)
	require.NoError(t, err)
	_, err = c.Decode(b)
	require.NoError(t, err)
}
