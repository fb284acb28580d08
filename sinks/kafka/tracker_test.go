package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weir-stream/weir/operator"
)

func TestTrackerAccountsForEveryRecord(t *testing.T) {
	tr := newTracker("")
	tr.begin()
	for range 4 {
		tr.sending(10)
	}
	tr.delivered(Delivery{Topic: "b", Records: 1, Partition: 2, Offset: 7, Bytes: 10})
	tr.delivered(Delivery{Topic: "a", Records: 1, Partition: 0, Offset: 3, Bytes: 10})
	tr.delivered(Delivery{Topic: "b", Records: 1, Partition: 2, Offset: 8, Bytes: 10})
	_, err := tr.accepted()
	require.Error(t, err, "one has no outcome yet")
	tr.delivered(Delivery{Topic: "b", Records: 1, Partition: 0, Offset: 1, Bytes: 10})
	topics, err := tr.accepted()
	require.NoError(t, err)
	require.Equal(t, []preparedTopic{
		{Name: "a", Spans: []span{{Partition: 0, First: 3, Last: 3, Count: 1}}},
		{Name: "b", Spans: []span{{Partition: 0, First: 1, Last: 1, Count: 1}, {Partition: 2, First: 7, Last: 8, Count: 2}}},
	}, topics)
	tr.begin()
	topics, err = tr.accepted()
	require.NoError(t, err)
	require.Empty(t, topics)
}

func TestTrackerFailsForGoodAfterOneFailure(t *testing.T) {
	tr := newTracker("")
	broken := errors.New("broken")
	tr.sending(1)
	tr.sending(1)
	tr.delivered(Delivery{Topic: "t", Records: 1, Partition: 1, Bytes: 1, Err: broken})
	tr.delivered(Delivery{Topic: "t", Records: 1, Partition: 1, Bytes: 1, Offset: 5})
	_, err := tr.accepted()
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "t/1")
	require.ErrorIs(t, tr.admit(t.Context(), time.Second), broken)
}

func TestTrackerNoticesARecordWithoutOutcome(t *testing.T) {
	tr := newTracker("")
	tr.sent++
	_, err := tr.accepted()
	require.ErrorContains(t, err, "1 records were sent and 0 accepted")
}

func TestTrackerWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTracker("")
		tr.sending(windowBytes)
		begin := time.Now()
		require.ErrorIs(t, tr.admit(t.Context(), 3*time.Second), errNoProgress)
		require.Equal(t, 3*time.Second, time.Since(begin))

		go func() {
			time.Sleep(time.Second)
			tr.delivered(Delivery{Topic: "t", Records: 1, Bytes: windowBytes})
		}()
		require.NoError(t, tr.admit(t.Context(), 3*time.Second))
		require.Equal(t, 4*time.Second, time.Since(begin))

		tr.sending(windowBytes)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, tr.admit(ctx, time.Second), context.Canceled)
	})
}

func TestTrackerAllocatesNothingPerRecord(t *testing.T) {
	tr := newTracker("")
	tr.begin()
	topic := "t"
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		_ = tr.admit(context.Background(), time.Second)
		tr.sending(10)
		tr.delivered(Delivery{Topic: topic, Records: 1, Offset: 1, Bytes: 10})
	}))
}

// Whatever a broker says of a record that it did not take, the transaction is never prepared without it.
func TestNoFailedDeliveryIsAccepted(t *testing.T) {
	failures := []error{errors.New("no answer"), context.DeadlineExceeded}
	for code := int16(-1); code < 200; code++ {
		if err := kerr.ErrorForCode(code); err != nil {
			failures = append(failures, err)
		}
	}
	for _, failure := range failures {
		tr := newTracker("id")
		tr.sending(1)
		tr.sending(1)
		tr.delivered(Delivery{Topic: "t", Records: 1, Bytes: 1})
		tr.delivered(Delivery{Topic: "t", Records: 1, Bytes: 1, Err: fmt.Errorf("client: %w", failure)})
		_, err := tr.accepted()
		require.ErrorIs(t, err, failure)
		var class operator.Class
		switch {
		case errors.Is(failure, kerr.InvalidRecord), errors.Is(failure, kerr.UnsupportedVersion), errors.Is(failure, kerr.InvalidRequest),
			errors.Is(failure, kerr.InvalidTransactionTimeout), errors.Is(failure, kerr.UnsupportedCompressionType),
			errors.Is(failure, kerr.InvalidTimestamp):
			class = operator.ClassFatal
		case errors.Is(failure, kerr.NotEnoughReplicas), errors.Is(failure, kerr.KafkaStorageError), errors.Is(failure, context.DeadlineExceeded):
			class = operator.ClassUnavailable
		default:
			require.True(t, operator.ClassOf(err).Passing(), "%v", err)
			continue
		}
		require.Equal(t, class, operator.ClassOf(err), "%v", err)
	}
}
