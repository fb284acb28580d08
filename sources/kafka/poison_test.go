package kafkasource_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/kafkatest"
	kafkasource "github.com/weir-stream/weir/sources/kafka"
)

// TestWhatDecodeKeepsStaysAsItIs: records go back to the client's pool when they are emitted. Whoever keeps one, decode, a dead letter,
// an error, must not see what becomes of it.
func TestWhatDecodeKeepsStaysAsItIs(t *testing.T) {
	b := kafkatest.Shared(t)
	topic, letters := b.Topic(t, 2, nil), b.Topic(t, 1, nil)
	cl, err := b.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer cl.Close()
	const records = 2000
	var want []kafkasource.Record
	var refused []string
	for n := range records {
		r := &kgo.Record{
			Topic: topic, Partition: int32(n % 2), Key: strconv.AppendInt(nil, int64(n), 10), Value: fmt.Appendf(nil, "value of %d", n),
			Headers: []kgo.RecordHeader{{Key: fmt.Sprint("header of ", n), Value: []byte{byte(n)}}}, Timestamp: time.UnixMilli(1_700_000_000_000 + int64(n)),
		}
		if n%10 == 3 {
			r.Key = nil
			refused = append(refused, string(r.Value))
		} else {
			want = append(want, kafkasource.Record{
				Topic: topic, Partition: r.Partition, Offset: int64(n / 2), Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp,
			})
		}
		cl.Produce(t.Context(), r, nil)
	}
	require.NoError(t, cl.Flush(t.Context()))
	j := start[kafkasource.Record](t, kafkasource.New(b.Addr(), topic, func(r kafkasource.Record) (kafkasource.Record, error) {
		if r.Key == nil {
			return r, strconv.ErrSyntax
		}
		return r, nil
	}, kafkasource.DeadLetterTopic(letters)), place{})
	j.untilValues(len(want))
	got := slices.Clone(j.out.values)
	slices.SortFunc(got, func(a, b kafkasource.Record) int { return a.Timestamp.Compare(b.Timestamp) })
	require.Empty(t, cmp.Diff(want, got))

	j.checkpoint(1)
	written := start[string](t, kafkasource.New(b.Addr(), letters, func(r kafkasource.Record) (string, error) {
		if !strings.HasPrefix(r.Headers[0].Key, "header of ") || string(r.Headers[1].Value) != topic {
			return "", fmt.Errorf("headers %v", r.Headers)
		}
		return string(r.Value), nil
	}), place{})
	copied := slices.Clone(written.untilValues(len(refused)))
	slices.Sort(copied)
	slices.Sort(refused)
	require.Equal(t, refused, copied)
}
