package codec_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/codec"
)

type field[T any] struct{ V T }

type inner struct {
	A int64
	B string
}

type embedding struct {
	inner
	C uint8
}

type tree struct {
	Value    int32
	Children []tree
	Parent   *tree
}

// change encodes a value in a field of one type and reads it with another one.
func change[From, To any](t *testing.T, v From) (place string, got To, err error) {
	t.Helper()
	from, to := must[field[From]](t), must[field[To]](t)
	place, _, _ = codec.SchemaConflict(codec.Schema(from), codec.Schema(to))
	data, err := from.Append(nil, field[From]{v})
	require.NoError(t, err)
	g, err := to.Decode(data)
	return place, g.V, err
}

// refused checks that the schemas differ and that the value, which fits only the former type, is no value of the new one either.
func refused[From, To any](t *testing.T, v From) {
	t.Helper()
	place, got, err := change[From, To](t, v)
	require.Equal(t, "value.V", place, "the schema tells %T from %T", v, got)
	require.Error(t, err, "%v decoded as %v", v, got)
}

// told checks that the schemas differ; values may happen to fit.
func told[From, To any](t *testing.T, v From) {
	t.Helper()
	place, _, _ := change[From, To](t, v)
	require.NotEmpty(t, place)
}

func TestAChangedFieldIsRefused(t *testing.T) {
	refused[int64, int32](t, math.MaxInt32+1)
	refused[int64, int32](t, math.MinInt32-1)
	refused[int64, int16](t, 300*300)
	refused[int64, int8](t, 300)
	refused[int64, int8](t, -129)
	refused[int32, int16](t, 1<<15)
	refused[int16, int8](t, 128)
	refused[int64, uint64](t, -1)
	refused[int8, uint8](t, -1)
	refused[uint64, int64](t, math.MaxUint64)
	refused[uint64, uint32](t, 1<<32)
	refused[uint32, uint16](t, 1<<16)
	refused[uint16, uint8](t, 256)
	refused[uint8, int8](t, 200)
	refused[int64, float64](t, 5)
	refused[float64, int64](t, 5)
	refused[float64, float32](t, 1e300)
	refused[string, []byte](t, "text")
	refused[[]byte, string](t, []byte("bytes"))
	refused[bool, int64](t, true)
	refused[int64, bool](t, 1)
	refused[string, int64](t, "5")
	refused[inner, []int64](t, inner{A: 1})
	told[int8, int64](t, 1)
	told[int64, *int64](t, 1)
	told[float32, float64](t, 1)
	told[[3]int64, [4]int64](t, [3]int64{1, 2, 3})
	told[time.Time, int64](t, time.Unix(1, 0))
	told[[]int64, map[string]int64](t, nil)
}

func TestAChangeInsideIsNamed(t *testing.T) {
	at := func(was, is any) string {
		place, _, _ := codec.SchemaConflict(codec.Schema(was), codec.Schema(is))
		return place
	}
	require.Equal(t, "value.V[].V", at(must[field[[]field[int64]]](t), must[field[[]field[int8]]](t)))
	require.Equal(t, "value[]", at(must[map[string]int64](t), must[map[string]int8](t)))
	require.Equal(t, "value[key]", at(must[map[int64]string](t), must[map[int8]string](t)))
	require.Equal(t, "value.V*.A", at(must[field[*inner]](t), must[field[*struct{ A int8 }]](t)))
	require.Equal(t, "value.A", at(must[embedding](t), must[struct{ A int8 }](t)), "the fields of an embedded struct are its own")
	require.Empty(t, at(must[embedding](t), must[struct{ B string }](t)))
}

func TestFieldsThatComeAndGoAreNoConflict(t *testing.T) {
	old, latest := codec.Schema(must[order](t)), codec.Schema(must[orderV2](t))
	for _, pair := range [][2]string{{old, latest}, {latest, old}, {old, old}, {"", old}, {old, ""}} {
		place, _, _ := codec.SchemaConflict(pair[0], pair[1])
		require.Empty(t, place)
	}
	union := codec.UnionSchemas(latest, old)
	require.Equal(t, union, codec.UnionSchemas(union, old))
	place, was, is := codec.SchemaConflict(union, codec.Schema(must[struct{ Tags string }](t)))
	require.Equal(t, []string{"value.Tags", "[]", "string"}, []string{place, was, is}, "a removed field comes back as another one")
}

// The text is stored with the state, so it can never change for a type.
func TestVectorsOfSchemas(t *testing.T) {
	require.Equal(t, strings.Join([]string{
		"value struct", "value.ID int64", "value.User string", "value.Tags []", "value.Tags[] string", "value.Extra map",
		"value.Extra[key] string", "value.Extra[] any", "value.Amount *", "value.Amount* uint64", "value.At time", "value.Raw []byte", "",
	}, "\n"), codec.Schema(must[order](t)))
	require.Equal(t, strings.Join([]string{
		"value struct", "value.Value int32", "value.Children []", "value.Children[] =value", "value.Parent *", "value.Parent* =value", "",
	}, "\n"), codec.Schema(must[tree](t)))
	require.Equal(t, codec.Schema(must[field[int64]](t)), codec.Schema(must[field[int]](t)), "int has 64 bits")
	require.Empty(t, codec.Schema(must[int64](t)), "the codec's name says it")
}

func TestRecursiveValuesRoundTrip(t *testing.T) {
	c := must[tree](t)
	want := tree{Value: 1, Children: []tree{{Value: 2, Children: []tree{{Value: -3}}}}, Parent: &tree{Value: math.MinInt32}}
	data, err := c.Append(nil, want)
	require.NoError(t, err)
	got, err := c.Decode(data)
	require.NoError(t, err)
	require.Equal(t, want, got)
	e := must[embedding](t)
	data, err = e.Append(nil, embedding{inner: inner{A: math.MinInt64, B: "x"}, C: 255})
	require.NoError(t, err)
	back, err := e.Decode(data)
	require.NoError(t, err)
	require.Equal(t, embedding{inner: inner{A: math.MinInt64, B: "x"}, C: 255}, back)
}
