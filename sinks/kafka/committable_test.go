package kafkasink

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/sinks"
)

func example() *prepared {
	return &prepared{
		ID: "weir.c.j.out.1.0.2", Identity: Identity{ProducerID: 4711, ProducerEpoch: 12, EndTxnVersion: EndTxnV2},
		Started: time.UnixMilli(1_700_000_000_123),
		Topics: []preparedTopic{
			{Name: "a", ID: kafkaconn.TopicID{1, 2, 3}, Spans: []span{{Partition: 0, First: 5, Last: 9, Count: 4}, {Partition: 3, First: 0, Last: 0, Count: 1}}},
			{Name: "b", ID: kafkaconn.TopicID{15: 9}, Spans: []span{{Partition: 1, First: 7, Last: 8, Count: 2}}},
		},
	}
}

// v1 is a committable as version 1 wrote it. It must stay readable for ever.
const v1 = "05ce4918f6a1abfef962127765" + "69722e632e6a2e6f75742e312e302e3202016101020300000000000000000000000000020005090403000001016200000000000000000000000000000009010107" + "0802"

func TestCommittableFormat(t *testing.T) {
	require.Equal(t, v1, hex.EncodeToString(example().encode().Payload))
	payload, err := hex.DecodeString(v1)
	require.NoError(t, err)
	got, err := decodeCommittable(sinks.Committable{Version: 1, Payload: payload})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(example(), got))
	require.Equal(t, "a/0 offsets 5 to 9 (4 records), a/3 offsets 0 to 0 (1 records), b/1 offsets 7 to 8 (2 records)", got.String())
}

func TestCommittableOfAnotherVersionIsNamed(t *testing.T) {
	_, err := decodeCommittable(sinks.Committable{Version: 2})
	require.ErrorContains(t, err, "version 2")
}

func TestCommittableRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &prepared{
			ID: rapid.String().Draw(t, "id"),
			Identity: Identity{
				ProducerID: rapid.Int64().Draw(t, "producer"), ProducerEpoch: rapid.Int16().Draw(t, "epoch"),
				EndTxnVersion: rapid.SampledFrom([]int16{EndTxnV1, EndTxnV2}).Draw(t, "version"),
			},
			Started: time.UnixMilli(rapid.Int64Range(0, 1<<50).Draw(t, "started")),
		}
		for range rapid.IntRange(0, 3).Draw(t, "topics") {
			topic := preparedTopic{Name: rapid.String().Draw(t, "topic")}
			for range rapid.IntRange(0, 3).Draw(t, "spans") {
				topic.Spans = append(topic.Spans, span{
					Partition: rapid.Int32Range(0, 1<<31-1).Draw(t, "partition"), First: rapid.Int64Range(0, 1<<62).Draw(t, "first"),
					Last: rapid.Int64Range(0, 1<<62).Draw(t, "last"), Count: rapid.Int64Range(0, 1<<62).Draw(t, "count"),
				})
			}
			p.Topics = append(p.Topics, topic)
		}
		got, err := decodeCommittable(p.encode())
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(p, got))
	})
}

func FuzzDecodeCommittable(f *testing.F) {
	f.Add(example().encode().Payload)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, payload []byte) {
		p, err := decodeCommittable(sinks.Committable{Version: committableVersion, Payload: payload})
		if err != nil {
			require.ErrorIs(t, err, errMalformed)
			return
		}
		again, err := decodeCommittable(p.encode())
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(p, again))
	})
}
