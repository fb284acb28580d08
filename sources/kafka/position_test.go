package kafkasource

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/sources"
)

func TestPositionFormat(t *testing.T) {
	p := position{id: splitID{kafkaconn.TopicID{1, 2, 15: 0xff}, 12}, topic: "orders", next: 300, epoch: noEpoch}
	sp := p.encode()
	require.Equal(t, "010200000000000000000000000000ff/12", sp.Key)
	require.Equal(t, []byte("\x01\xac\x02orders"), sp.Value)
	got, err := decodePosition(sp)
	require.NoError(t, err)
	require.Equal(t, p, got)
	p.epoch = 200
	sp = p.encode()
	require.Equal(t, []byte("\x02\xac\x02\xc8\x01orders"), sp.Value)
	got, err = decodePosition(sp)
	require.NoError(t, err)
	require.Equal(t, p, got)
	_, err = decodePosition(sources.Position{Key: sp.Key, Value: []byte("\x03\xac\x02orders")})
	require.ErrorContains(t, err, "version 3")
}

func FuzzDecodePosition(f *testing.F) {
	f.Add("010200000000000000000000000000ff/12", []byte("\x01\xac\x02orders"))
	f.Add("010200000000000000000000000000ff/12", []byte("\x02\xac\x02\xc8\x01orders"))
	f.Add("", []byte{})
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		p, err := decodePosition(sources.Position{Key: key, Value: value})
		if err != nil {
			return
		}
		again, err := decodePosition(p.encode())
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}

// TestOwner holds the assignment fixed, since restored positions are found by it, and checks that it spreads each topic evenly.
func TestOwner(t *testing.T) {
	require.Equal(t, []int{2, 0, 1}, []int{
		splitID{kafkaconn.TopicID{1}, 0}.owner(3), splitID{kafkaconn.TopicID{1}, 1}.owner(3), splitID{kafkaconn.TopicID{1}, 2}.owner(3),
	})
	rapid.Check(t, func(t *rapid.T) {
		var id kafkaconn.TopicID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		parallelism, partitions := rapid.IntRange(1, 40).Draw(t, "parallelism"), rapid.IntRange(0, 100).Draw(t, "partitions")
		counts := make([]int, parallelism)
		for p := range partitions {
			counts[splitID{id, int32(p)}.owner(parallelism)]++
		}
		for _, n := range counts {
			require.GreaterOrEqual(t, n, partitions/parallelism)
			require.LessOrEqual(t, n, (partitions+parallelism-1)/parallelism)
		}
	})
}
