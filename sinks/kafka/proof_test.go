package kafkasink

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
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
		{"neither open nor ended", none(markerNone), viewOther, verdictOpen},
	} {
		t.Run(test.situation, func(t *testing.T) {
			require.Equal(t, test.want.String(), conclude(test.markers, test.view).String())
		})
	}
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
