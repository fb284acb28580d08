package kafkasource

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestPooledSlicesAreNeverMoreThanTwiceTheirBatch(t *testing.T) {
	p := &recordPool{}
	for n := range 5000 {
		s := p.GetRecords(n)
		require.Empty(t, s)
		require.GreaterOrEqual(t, cap(s), n)
		require.LessOrEqual(t, cap(s), max(1, 2*n))
		p.PutRecords(s[:cap(s)])
		p.PutRecords(make([]kgo.Record, n)) // of whatever size: it is not handed out as if it were longer
	}
	const many = 1<<maxPooledBits + 1
	require.Equal(t, many, cap(p.GetRecords(many)))
}
