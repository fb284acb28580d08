package kafkasink

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestEncodedSizeIsWhatTheBrokerGets compares the computed size to the batch that a client really sends.
func TestEncodedSizeIsWhatTheBrokerGets(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	require.NoError(t, err)
	defer cluster.Close()
	sent := make(chan int, 1)
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		sent <- len(req.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records)
		return nil, nil, false
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(t, err)
	defer cl.Close()
	for _, r := range []Record{
		{},
		{Key: []byte{}, Value: []byte{}},
		{Key: []byte("k"), Value: []byte(strings.Repeat("v", 63))},
		{Key: []byte("k"), Value: []byte(strings.Repeat("v", 64))},
		{Value: []byte(strings.Repeat("v", 100_000))},
		{Headers: []Header{{Key: "a"}, {Key: "a", Value: []byte{}}, {Key: "b", Value: []byte(strings.Repeat("h", 200))}}},
	} {
		cl.Produce(context.Background(), &kgo.Record{Key: r.Key, Value: r.Value, Headers: r.Headers}, nil)
		require.Equal(t, encodedSize(&r), <-sent)
		require.NoError(t, cl.Flush(t.Context()))
	}
}
