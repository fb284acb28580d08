package kafkasource_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	kafkasource "github.com/weir-stream/weir/sources/kafka"
)

// leaderless is a broker that answers the first questions for offsets with "no leader yet".
func leaderless(t *testing.T, times int32) (brokers []string, asked *atomic.Int32) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	asked = &atomic.Int32{}
	c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if asked.Add(1) > times {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, t := range req.(*kmsg.ListOffsetsRequest).Topics {
			rt := kmsg.NewListOffsetsResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewListOffsetsResponseTopicPartition()
				rp.Partition, rp.ErrorCode, rp.Offset = p.Partition, kerr.LeaderNotAvailable.Code, -1
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	return c.ListenAddrs(), asked
}

func TestAPartitionWhoseLeaderIsBeingChosenIsWaitedFor(t *testing.T) {
	brokers, asked := leaderless(t, 3)
	j, err := open(t, kafkasource.New(brokers[0], "t", decodeNumber), place{})
	require.NoError(t, err)
	j.stop()
	require.Greater(t, asked.Load(), int32(3))
}

func TestAPartitionWithoutALeaderIsNamedInTime(t *testing.T) {
	brokers, _ := leaderless(t, 1<<30)
	begin := time.Now()
	_, err := open(t, kafkasource.New(brokers[0], "t", decodeNumber, kafkasource.Deadline(time.Second)), place{})
	require.ErrorIs(t, err, kerr.LeaderNotAvailable)
	require.ErrorContains(t, err, "t/0")
	require.Less(t, time.Since(begin), 20*time.Second)
}
