package codec_test

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/codec"
)

func mustKey[K comparable](t require.TestingT) codec.Key[K] {
	k, err := codec.ForKey[K]()
	require.NoError(t, err)
	return k
}

type compoundKey struct {
	Region string
	Shard  int16
	_      int
	user   userID
	Flag   bool
	At     time.Time
	ID     [2]byte
	Pair   [2]uint32
}

func keyVector[K comparable](t *testing.T, id, want string, k K) {
	t.Helper()
	c := mustKey[K](t)
	require.Equal(t, id, c.ID())
	b := c.Append([]byte("x"), k)[1:]
	require.Equal(t, want, hex.EncodeToString(b))
	got, err := c.Decode(b)
	require.NoError(t, err)
	require.Equal(t, k, got)
}

// The vectors hold the formats: they decide which subtask owns a key.
func TestVectorsOfKeyCodecs(t *testing.T) {
	keyVector(t, "string", "", "")
	keyVector(t, "string", "d0ba00ff", "к\x00\xff")
	keyVector(t, "string", "75", userID("u"))
	keyVector(t, "int64", "7fffffffffffffff", -1)
	keyVector(t, "int64", "0000000000000000", int64(math.MinInt64))
	keyVector(t, "int8", "85", int8(5))
	keyVector(t, "uint16", "0102", uint16(258))
	keyVector(t, "uint64", "ffffffffffffffff", uint64(math.MaxUint64))
	keyVector(t, "bool", "01", true)
	keyVector(t, "[4]byte", "00ff8001", [4]byte{0, 0xff, 0x80, 1})
	keyVector(t, "time", "800000000000000100000002", time.Unix(1, 2).UTC())
	keyVector(t, "struct{string,int16,string,bool,time,[2]byte,[2]uint32}",
		"6100ff620001"+"7ffe"+"0001"+"01"+"7fffffffffffffff00000000"+"0102"+"0000000300000004",
		compoundKey{Region: "a\x00b", Shard: -2, Flag: true, At: time.Unix(-1, 0).UTC(), ID: [2]byte{1, 2}, Pair: [2]uint32{3, 4}})
}

func compare(a, b compoundKey) int {
	flag := func(k compoundKey) int {
		if k.Flag {
			return 1
		}
		return 0
	}
	return cmp.Or(strings.Compare(a.Region, b.Region), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.user, b.user),
		cmp.Compare(flag(a), flag(b)), a.At.Compare(b.At), bytes.Compare(a.ID[:], b.ID[:]),
		cmp.Compare(a.Pair[0], b.Pair[0]), cmp.Compare(a.Pair[1], b.Pair[1]))
}

func TestKeysSortAsTheirEncodings(t *testing.T) {
	text := rapid.StringOf(rapid.SampledFrom([]rune{0, 1, 'a', 'b', 0xff}))
	gen := rapid.Custom(func(t *rapid.T) compoundKey {
		return compoundKey{
			Region: text.Draw(t, "region"),
			Shard:  rapid.Int16Range(-2, 2).Draw(t, "shard"),
			user:   userID(text.Draw(t, "user")),
			Flag:   rapid.Bool().Draw(t, "flag"),
			At:     time.Unix(rapid.Int64Range(-2, 2).Draw(t, "sec"), rapid.Int64Range(0, 2).Draw(t, "nsec")).UTC(),
			ID:     [2]byte{rapid.Byte().Draw(t, "id")},
			Pair:   [2]uint32{rapid.Uint32().Draw(t, "pair")},
		}
	})
	c := mustKey[compoundKey](t)
	rapid.Check(t, func(t *rapid.T) {
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		if rapid.Bool().Draw(t, "alike") {
			b.Region, b.Shard = a.Region, a.Shard
		}
		ea, eb := c.Append(nil, a), c.Append(nil, b)
		require.Equal(t, compare(a, b), bytes.Compare(ea, eb))
		got, err := c.Decode(ea)
		require.NoError(t, err)
		require.Equal(t, a, got)
	})
}

func TestIntegerKeysSortAsTheirEncodings(t *testing.T) {
	ci, cu := mustKey[int32](t), mustKey[uint64](t)
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int32().Draw(t, "a"), rapid.Int32().Draw(t, "b")
		require.Equal(t, cmp.Compare(a, b), bytes.Compare(ci.Append(nil, a), ci.Append(nil, b)))
		u, v := rapid.Uint64().Draw(t, "u"), rapid.Uint64().Draw(t, "v")
		require.Equal(t, cmp.Compare(u, v), bytes.Compare(cu.Append(nil, u), cu.Append(nil, v)))
	})
}

func TestTypesThatAreNoKeysAreRefused(t *testing.T) {
	_, err := codec.ForKey[float64]()
	require.ErrorContains(t, err, "float64 has no canonical encoding")
	_, err = codec.ForKey[struct{ Inner struct{ P *int } }]()
	require.ErrorContains(t, err, "Inner.P: a ptr has no canonical encoding")
	_, err = codec.ForKey[any]()
	require.Error(t, err)
}

func TestEscapedBytesEndThemselves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alphabet := rapid.SliceOf(rapid.SampledFrom([]byte{0, 1, 2, 0xfe, 0xff}))
		a, b := alphabet.Draw(t, "a"), alphabet.Draw(t, "b")
		ea, eb := codec.AppendEscaped(nil, a), codec.AppendEscaped(nil, b)
		require.Equal(t, bytes.Compare(a, b), bytes.Compare(ea, eb))
		got, rest, err := codec.CutEscaped([]byte{}, append(ea, eb...))
		require.NoError(t, err)
		require.Equal(t, a, got)
		require.Equal(t, eb, rest)
	})
}

func FuzzDecodeKey(f *testing.F) {
	f.Add(mustKey[compoundKey](f).Append(nil, compoundKey{Region: "a\x00", At: time.Unix(0, 0)}))
	f.Add([]byte{0, 1})
	f.Add([]byte{0, 0xff, 0, 2})
	f.Fuzz(func(t *testing.T, src []byte) {
		checkFuzzedKey[compoundKey](t, src)
		checkFuzzedKey[string](t, src)
		checkFuzzedKey[int16](t, src)
		checkFuzzedKey[bool](t, src)
		checkFuzzedKey[[3]byte](t, src)
		checkFuzzedKey[struct{ A, B string }](t, src)
	})
}

// checkFuzzedKey checks that no key has two encodings.
func checkFuzzedKey[K comparable](t *testing.T, src []byte) {
	c := mustKey[K](t)
	k, err := c.Decode(src)
	if err != nil {
		return
	}
	require.Equal(t, src, c.Append([]byte{}, k))
}
