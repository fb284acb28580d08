package windowing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/operator/windowing"
)

func listCodec(t require.TestingT) codec.Codec[[]string] {
	c, err := codec.For[string]()
	require.NoError(t, err)
	return windowing.ListCodec(c)
}

func TestListCodec(t *testing.T) {
	c := listCodec(t)
	for _, want := range [][]string{nil, {""}, {"a", "", "ccc"}} {
		data, err := c.Append(nil, want)
		require.NoError(t, err)
		got, err := c.Decode(data)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := c.Decode([]byte{9, 'a'})
	require.ErrorIs(t, err, windowing.ErrList)
}

func FuzzListCodec(f *testing.F) {
	f.Add([]byte{1, 'a', 0})
	f.Add([]byte{0xff, 0xff})
	c := listCodec(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		vs, err := c.Decode(data)
		if err != nil {
			return
		}
		again, err := c.Append(nil, vs)
		require.NoError(t, err)
		back, err := c.Decode(again)
		require.NoError(t, err)
		require.Equal(t, vs, back)
	})
}

func TestReduce(t *testing.T) {
	f := windowing.Reduce[string](func(a, b int) int { return min(a, b) })
	var acc, into windowing.Reduced[int]
	f.Add(&acc, 7)
	f.Add(&acc, 5)
	f.Merge(&into, windowing.Reduced[int]{})
	f.Merge(&into, acc)
	var got []int
	require.NoError(t, f.Emit("k", windowing.Span{}, into, func(v int) error { got = append(got, v); return nil }))
	require.Equal(t, []int{5}, got)

	ic, err := codec.For[int]()
	require.NoError(t, err)
	c := windowing.ReducedCodec(ic)
	data, err := c.Append(nil, acc)
	require.NoError(t, err)
	back, err := c.Decode(data)
	require.NoError(t, err)
	f.Add(&back, 9)
	require.NoError(t, f.Emit("k", windowing.Span{}, back, func(v int) error { got = append(got, v); return nil }))
	require.Equal(t, []int{5, 5}, got, "a restored accumulator knows that it holds a value")
}
