package kafkasink

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

func TestJudge(t *testing.T) {
	for _, test := range []struct {
		situation string
		answer    error
		want      verdict
	}{
		{"prepared, first time", nil, verdictCommitted},
		{"markers are being written", kerr.ConcurrentTransactions, verdictRetry},
		{"aborted before", kerr.InvalidTxnState, verdictLost},
		{"aborted on timeout, v1; or initialised since", kerr.ProducerFenced, verdictAsk},
		{"older epoch, as some brokers say it", kerr.InvalidProducerEpoch, verdictAsk},
		{"id unknown, expired or of another producer", kerr.InvalidProducerIDMapping, verdictAsk},
		{"id not found", kerr.TransactionalIDNotFound, verdictAsk},
		{"coordinator loading", kerr.CoordinatorLoadInProgress, verdictRetry},
		{"coordinator moved", kerr.NotCoordinator, verdictRetry},
		{"coordinator not available", kerr.CoordinatorNotAvailable, verdictRetry},
		{"request timed out in the broker", kerr.RequestTimedOut, verdictRetry},
		{"unknown server error", kerr.UnknownServerError, verdictRetry},
		{"no answer", fmt.Errorf("connection lost: %w", errors.New("EOF")), verdictRetry},
		{"a client's error that wraps a code proves nothing", fmt.Errorf("given up: %w", kerr.InvalidTxnState), verdictRetry},
		{"no right", kerr.TransactionalIDAuthorizationFailed, verdictRefused},
		{"version not spoken", kerr.UnsupportedVersion, verdictRefused},
	} {
		t.Run(test.situation, func(t *testing.T) {
			require.Equal(t, test.want.String(), judge(test.answer).String())
		})
	}
}

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
		{"still open", none(markerNone), viewOpen, verdictRetry},
		{"commit markers under way", none(markerNone), viewCommitting, verdictRetry},
		{"abort markers under way", none(markerNone), viewAborting, verdictRetry},
		{"markers gone through retention", none(markerDeleted), viewOther, verdictAsk},
		{"markers gone in one, none in another partition", none(markerNone, markerDeleted), viewOther, verdictAsk},
		{"open although the place is deleted", none(markerDeleted), viewOpen, verdictRetry},
		{"neither open nor ended", none(markerNone), viewOther, verdictRetry},
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
		{"no marker yet", verdictRetry, nil, verdictRetry},
		{"markers gone through retention", verdictAsk, nil, verdictLost},
		{"the partition's leader is away", 0, kerr.NotLeaderForPartition, verdictRetry},
		{"no right to read", 0, kerr.TopicAuthorizationFailed, verdictLost},
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
