package confluent

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"testing"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks/kafka/internal/answers"
)

// own lists librdkafka's own codes that mean something to the sink.
var own = map[error][]kafka.ErrorCode{
	errSilent: {
		kafka.ErrTransport, kafka.ErrAllBrokersDown, kafka.ErrResolve, kafka.ErrTimedOut, kafka.ErrMsgTimedOut, kafka.ErrTimedOutQueue,
		kafka.ErrWaitCoord, kafka.ErrIsrInsuff,
	},
	kafkaconn.ErrLogin:           {kafka.ErrAuthentication},
	kafkaconn.ErrCertificate:     {kafka.ErrSsl},
	kerr.ProducerFenced:          {kafka.ErrFenced},
	kerr.UnknownTopicOrPartition: {kafka.ErrUnknownTopic, kafka.ErrUnknownPartition},
	kerr.UnsupportedVersion:      {kafka.ErrUnsupportedFeature},
}

// silent lists those that tell of the client itself, or belong to consumers and administration.
var silent = []kafka.ErrorCode{
	kafka.ErrBadMsg, kafka.ErrBadCompression, kafka.ErrDestroy, kafka.ErrFail, kafka.ErrCritSysResource, kafka.ErrPartitionEOF, kafka.ErrFs,
	kafka.ErrInvalidArg, kafka.ErrQueueFull, kafka.ErrNodeUpdate, kafka.ErrUnknownGroup, kafka.ErrInProgress, kafka.ErrPrevInProgress,
	kafka.ErrExistingSubscription, kafka.ErrAssignPartitions, kafka.ErrRevokePartitions, kafka.ErrConflict, kafka.ErrState,
	kafka.ErrUnknownProtocol, kafka.ErrNotImplemented, kafka.ErrNoOffset, kafka.ErrOutdated, kafka.ErrIntr, kafka.ErrKeySerialization,
	kafka.ErrValueSerialization, kafka.ErrKeyDeserialization, kafka.ErrValueDeserialization, kafka.ErrPartial, kafka.ErrReadOnly,
	kafka.ErrNoent, kafka.ErrUnderflow, kafka.ErrInvalidType, kafka.ErrRetry, kafka.ErrPurgeQueue, kafka.ErrPurgeInflight, kafka.ErrFatal,
	kafka.ErrInconsistent, kafka.ErrGaplessGuarantee, kafka.ErrMaxPollExceeded, kafka.ErrUnknownBroker, kafka.ErrNotConfigured,
	kafka.ErrApplication, kafka.ErrAssignmentLost, kafka.ErrNoop, kafka.ErrAutoOffsetReset, kafka.ErrLogTruncation,
	kafka.ErrInvalidDifferentRecord, kafka.ErrWaitCache, kafka.ErrDestroyBroker,
}

// nameless matches librdkafka's word for a code that it does not know.
var nameless = regexp.MustCompile(`^Err-+\d+\?$`)

func steps(do func(answers.Step)) {
	for s := answers.Init; s <= answers.Metadata; s++ {
		do(s)
	}
}

// Every code that librdkafka knows is in a list above or is a broker's, and each is told to the sink as what it means.
func TestEveryCodeHasAMeaning(t *testing.T) {
	local, brokers := 0, 0
	for code := kafka.ErrorCode(-1000); code < 1000; code++ {
		if code == 0 || nameless.MatchString(code.String()) {
			continue
		}
		err := known(kafka.NewError(code, "told", false))
		var ke kafka.Error
		require.ErrorAs(t, err, &ke, "librdkafka's own error is kept: %s", code)
		if code >= kafka.ErrUnknown {
			brokers++
			steps(func(s answers.Step) {
				want := answers.React(s, kerr.ErrorForCode(int16(code)))
				if want != answers.Refused && (s == answers.Commit || s == answers.Abort) {
					want = answers.Again // it is not the broker's answer
				}
				require.Equal(t, want.String(), answers.React(s, err).String(), "%s: %s", s, code)
			})
			continue
		}
		local++
		var means error
		for m, codes := range own {
			if slices.Contains(codes, code) {
				means = m
			}
		}
		require.NotEqual(t, means == nil, !slices.Contains(silent, code), "%d (%s) is in one of the lists", code, code)
		require.Equal(t, means == nil, meaning(code) == nil, code)
		if means == nil {
			means = errors.New("the client's own")
		} else {
			require.ErrorIs(t, err, means)
		}
		steps(func(s answers.Step) {
			got := answers.React(s, err)
			require.NotContains(t, []answers.Action{answers.Done, answers.None, answers.Lost}, got, "%s: %s", s, code)
			if s != answers.Commit && s != answers.Abort {
				require.Equal(t, answers.React(s, means).String(), got.String(), "%s: %s", s, code)
			}
		})
		require.Equal(t, meaning(code) == errSilent, operator.ClassOf(answers.Failure(answers.Write, err, kafkaconn.Access{})) == operator.ClassUnavailable, code) //nolint:errorlint // the very one
	}
	require.Equal(t, local, len(silent)+14)
	require.Greater(t, brokers, 100)
}

// What librdkafka says of an error decides whether the call is made again, and nothing else.
func TestFlagsOfErrors(t *testing.T) {
	for _, code := range []kafka.ErrorCode{kafka.ErrTimedOut, kafka.ErrFenced, kafka.ErrFatal, kafka.ErrState, kafka.ErrCoordinatorLoadInProgress, kafka.ErrConcurrentTransactions} {
		for _, retriable := range []bool{false, true} {
			require.Equal(t, retriable || code == kafka.ErrTimedOut, resumable(code, false, retriable, false), code)
			require.False(t, resumable(code, true, retriable, false), "fatal: %s", code)
			require.False(t, resumable(code, false, retriable, true), "to be aborted: %s", code)
		}
	}
	require.False(t, goesOn(nil))
	require.False(t, goesOn(context.DeadlineExceeded), "librdkafka's errors only")
	require.True(t, goesOn(kafka.NewError(kafka.ErrTimedOut, "", false)))
	require.False(t, goesOn(kafka.NewError(kafka.ErrTimedOut, "", true)))
}
