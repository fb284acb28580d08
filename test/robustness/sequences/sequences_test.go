package sequences_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/test/robustness/sequences"
)

// results computes what a job of a shape writes for n records, each in one partition.
func results(shape sequences.Shape, n int) ([]sequences.Result, *sequences.Generator) {
	g := sequences.NewGenerator(shape, 7)
	counts := map[string]uint64{}
	var out []sequences.Result
	for range n {
		r := g.Next()
		counts[r.Key]++
		switch {
		case shape != sequences.PassThrough:
			out = append(out, sequences.Result{Record: r, Own: r.Seq + 1, Count: counts[r.Key]})
		case r.Seq%5 != 3:
			out = append(out, sequences.Result{Record: r})
		}
	}
	return out, g
}

func account(shape sequences.Shape, rs []sequences.Result) *sequences.Account {
	a := sequences.NewAccount(shape)
	for i, r := range rs {
		a.Add(r.Partition(), int64(i), r)
	}
	return a
}

var shapes = []sequences.Shape{sequences.PassThrough, sequences.Counted, sequences.Merged}

func TestRightResults(t *testing.T) {
	for _, shape := range shapes {
		rs, g := results(shape, 5000)
		a := account(shape, rs)
		require.Empty(t, a.Problems, shape)
		missing, _ := a.Missing(g.Made())
		require.Zero(t, missing, shape)
		require.EqualValues(t, len(rs), a.Results)

		few := account(shape, rs[:len(rs)-3])
		require.Empty(t, few.Problems, shape)
		missing, example := few.Missing(g.Made())
		require.EqualValues(t, 3, missing, shape)
		require.NotEmpty(t, example)
	}
}

func TestWrongResultsAreFound(t *testing.T) {
	for _, shape := range shapes {
		for name, spoil := range map[string]func(rs []sequences.Result) []sequences.Result{
			"lost":     func(rs []sequences.Result) []sequences.Result { return append(rs[:100:100], rs[101:]...) },
			"repeated": func(rs []sequences.Result) []sequences.Result { return append(rs[:101:101], rs[100:]...) },
			"repeated later": func(rs []sequences.Result) []sequences.Result {
				return append(append(rs[:2000:2000], rs[100]), rs[2000:]...)
			},
			"another one's": func(rs []sequences.Result) []sequences.Result {
				rs[100].Seq++
				return rs
			},
		} {
			rs, _ := results(shape, 5000)
			require.NotEmpty(t, account(shape, spoil(rs)).Problems, "%s: %s", shape, name)
		}
	}
}

func TestOrderWithinAKeyAlone(t *testing.T) {
	for _, shape := range shapes {
		rs, _ := results(shape, 5000)
		for i := 1; i < len(rs); i++ {
			if rs[i].Key != rs[i-1].Key {
				continue
			}
			rs[i], rs[i-1] = rs[i-1], rs[i]
			require.NotEmpty(t, account(shape, rs).Problems, shape)
			rs[i], rs[i-1] = rs[i-1], rs[i]
		}
		for i := 1; i < len(rs); i += 2 {
			if rs[i].Key != rs[i-1].Key {
				rs[i], rs[i-1] = rs[i-1], rs[i]
			}
		}
		require.Empty(t, account(shape, rs).Problems, shape)
	}
}

func TestWrongStateIsFound(t *testing.T) {
	for _, shape := range []sequences.Shape{sequences.Counted, sequences.Merged} {
		rs, _ := results(shape, 100)
		rs[50].Count++
		require.NotEmpty(t, account(shape, rs).Problems)
		rs[50].Count--
		rs[50].Own--
		require.NotEmpty(t, account(shape, rs).Problems)
	}
}

func TestAKeyStaysInItsPartition(t *testing.T) {
	rs, _ := results(sequences.Counted, 1000)
	a := sequences.NewAccount(sequences.Counted)
	for i, r := range rs {
		p := r.Partition()
		if i == len(rs)-1 {
			p = (p + 1) % sequences.Partitions
		}
		a.Add(p, int64(i), r)
	}
	require.Len(t, a.Problems, 1)
}

func TestValues(t *testing.T) {
	rs, g := results(sequences.Merged, 100)
	for _, r := range rs {
		back, err := sequences.DecodeResult(r.Encode())
		require.NoError(t, err)
		require.Equal(t, r, back)
	}
	r := g.Next()
	back, err := sequences.DecodeRecord(r.Encode())
	require.NoError(t, err)
	require.Equal(t, r, back)
	for _, bad := range []string{"", "1 key", "1 key x", "1 key 2 3"} {
		_, err := sequences.DecodeRecord([]byte(bad))
		require.Error(t, err, bad)
		_, err = sequences.DecodeResult([]byte(bad))
		require.Error(t, err, bad)
	}
}
