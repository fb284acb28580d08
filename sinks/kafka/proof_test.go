package kafkasink

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestConclude(t *testing.T) {
	none := func(ms ...marker) []marker { return ms }
	for _, test := range []struct {
		situation string
		markers   []marker
		view      coordinatorView
		want      verdict
	}{
		{"a commit marker", none(markerCommit), viewOther, verdictCommitted},
		{"an abort marker", none(markerAbort), viewOther, verdictLost},
		{"one partition's marker decides for all", none(markerNone, markerDeleted, markerCommit), viewOther, verdictCommitted},
		{"still open", none(markerNone), viewOpen, verdictOpen},
		{"commit markers under way", none(markerNone), viewCommitting, verdictOpen},
		{"abort markers under way", none(markerNone), viewAborting, verdictOpen},
		{"markers gone through retention", none(markerDeleted), viewOther, verdictGone},
		{"markers gone in one, none in another partition", none(markerNone, markerDeleted), viewOther, verdictGone},
		{"open although the place is deleted", none(markerDeleted), viewOpen, verdictOpen},
		{"the coordinator knows nothing and the partition holds it open", none(markerNone), viewOther, verdictOpen},
		{"compacted or truncated, and being ended", none(markerDeleted), viewAborting, verdictOpen},
	} {
		t.Run(test.situation, func(t *testing.T) {
			require.Equal(t, test.want.String(), conclude(test.markers, test.view).String())
		})
	}
}

// batchOf is the header of a batch of records as it is on the wire.
func batchOf(first, last, producer int64, epoch int16, records int32) []byte {
	b := kmsg.RecordBatch{
		FirstOffset: first, Magic: 2, Attributes: 1 << 4, LastOffsetDelta: int32(last - first), ProducerID: producer, ProducerEpoch: epoch, NumRecords: records,
	}
	return b.AppendTo(nil)
}

// TestJudge: the last column says what becomes of the transaction when no coordinator knows it any more.
func TestJudge(t *testing.T) {
	id, s := Identity{ProducerID: 7, ProducerEpoch: 3}, span{First: 10, Last: 19, Count: 10}
	own := batchOf(15, 19, 7, 3, 5)
	for _, test := range []struct {
		situation string
		shown     fetched
		want      marker
		verdict   verdict
	}{
		{"nothing is shown", fetched{}, markerNone, verdictOpen},
		{"its record is shown", fetched{batch: own}, markerCommit, verdictCommitted},
		{"beside others that are aborted", fetched{own, aborts(8, 12)}, markerCommit, verdictCommitted},
		{"beside a later one of the producer that is aborted", fetched{own, aborts(7, 25)}, markerCommit, verdictCommitted},
		{"it is among the aborted", fetched{own, aborts(7, 10)}, markerAbort, verdictLost},
		{"compaction has left a later record only", fetched{batch: batchOf(20, 20, 7, 3, 1)}, markerDeleted, verdictGone},
		{"compaction has left an empty batch", fetched{batch: batchOf(15, 19, 7, 3, 0)}, markerDeleted, verdictGone},
		{"another producer's record has taken the place", fetched{batch: batchOf(15, 19, 8, 3, 5)}, markerDeleted, verdictGone},
		{"another transaction of the producer has", fetched{batch: batchOf(15, 19, 7, 4, 5)}, markerDeleted, verdictGone},
		{"what is no batch of this format", fetched{batch: own[:20]}, markerDeleted, verdictGone},
	} {
		t.Run(test.situation, func(t *testing.T) {
			got := judge(id, s, test.shown)
			require.Equal(t, test.want, got)
			require.Equal(t, test.verdict.String(), conclude([]marker{got}, viewOther).String())
		})
	}
	m, err := (*cluster)(nil).marker(t.Context(), id, preparedTopic{}, s, bounds{start: 0, end: 19})
	require.NoError(t, err)
	require.Equal(t, markerDeleted, m, "the partition has lost its end")
	require.Equal(t, verdictGone.String(), conclude([]marker{m}, viewOther).String())
}

func aborts(producer, first int64) []kmsg.FetchResponseTopicPartitionAbortedTransaction {
	return []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: producer, FirstOffset: first}}
}

func TestALossIsToldOnlyWhenNothingContradictsIt(t *testing.T) {
	for _, test := range []struct {
		situation string
		proof     verdict
		err       error
		want      verdict
	}{
		{"an abort marker", verdictLost, nil, verdictLost},
		{"a commit marker", verdictCommitted, nil, verdictCommitted},
		{"no marker yet", verdictOpen, nil, verdictOpen},
		{"markers gone through retention", verdictGone, nil, verdictLost},
		{"the partition's leader is away", 0, kerr.NotLeaderForPartition, verdictOpen},
		{"no right to read", 0, kerr.TopicAuthorizationFailed, verdictLost},
		{"no answer", 0, errors.New("connection lost"), verdictOpen},
		{"brokers that cannot tell", 0, kerr.UnsupportedVersion, verdictLost},
	} {
		t.Run(test.situation, func(t *testing.T) {
			require.Equal(t, test.want.String(), confirm(test.proof, test.err).String())
		})
	}
}

func TestMarkerOfATransaction(t *testing.T) {
	id := Identity{ProducerID: 7, ProducerEpoch: 3}
	require.True(t, endsTransaction(id, 7, 3), "EndTxn up to version 4 leaves the epoch")
	require.True(t, endsTransaction(id, 7, 4), "EndTxn 5, timeout and fencing raise it")
	require.False(t, endsTransaction(id, 7, 5))
	require.False(t, endsTransaction(id, 7, 2))
	require.False(t, endsTransaction(id, 8, 3))
	require.Equal(t, markerAbort, controlType([]byte{0, 0, 0, 0}))
	require.Equal(t, markerCommit, controlType([]byte{0, 0, 0, 1}))
	require.Equal(t, markerNone, controlType([]byte{0, 0, 0, 2}))
	require.Equal(t, markerNone, controlType(nil))
}
