package kafkasink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

func TestReact(t *testing.T) {
	passing := []error{
		kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.NotCoordinator, kerr.ConcurrentTransactions, kerr.RequestTimedOut,
		kerr.NetworkException, kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.NotEnoughReplicas, kerr.UnknownServerError,
		errors.New("connection lost"), context.DeadlineExceeded,
	}
	gone := []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.TransactionalIDNotFound}
	rights := []error{kerr.TransactionalIDAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.TopicAuthorizationFailed, kerr.SaslAuthenticationFailed}
	never := []error{kerr.UnsupportedVersion, kerr.InvalidRequest}
	with := func(first []error, more ...error) []error { return append(append([]error{}, first...), more...) }
	table := map[step]map[action][]error{
		stepInit: {
			actionAgain: with(passing, kerr.InvalidTxnState), actionRefused: rights, actionFailTask: {kerr.ProducerFenced, kerr.InvalidProducerEpoch, context.Canceled},
			actionFailJob: with(never, kerr.InvalidTransactionTimeout, fmt.Errorf("librdkafka: %w", ErrTimeoutRefused)),
		},
		stepFence:    {actionAgain: with(passing, kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidTxnState), actionRefused: rights, actionFailJob: never},
		stepAdd:      {actionFailTask: with(with(passing, gone...), kerr.InvalidTxnState, kerr.UnknownTopicOrPartition), actionRefused: rights, actionFailJob: never},
		stepProduce:  {actionFailTask: with(with(passing, gone...), kerr.InvalidTxnState, kerr.OutOfOrderSequenceNumber, kerr.UnknownTopicOrPartition, kerr.MessageTooLarge), actionRefused: rights, actionFailJob: never},
		stepFlush:    {actionFailTask: with(with(passing, gone...), context.Canceled), actionRefused: rights, actionFailJob: never},
		stepCommit:   {actionAgain: passing, actionLook: gone, actionLost: {kerr.InvalidTxnState}, actionRefused: rights, actionFailJob: never},
		stepOwn:      {actionLook: with(with(with(with(passing, gone...), rights...), never...), kerr.InvalidTxnState)},
		stepAbort:    {actionAgain: passing, actionLook: with(gone, kerr.InvalidTxnState), actionRefused: rights, actionFailJob: never},
		stepDescribe: {actionAgain: passing, actionDone: {kerr.TransactionalIDNotFound}, actionRefused: with(rights, never...)},
		stepRead:     {actionAgain: with(passing, kerr.UnknownTopicOrPartition), actionLook: {kerr.OffsetOutOfRange}, actionRefused: with(rights, never...)},
		stepMetadata: {actionAgain: with(passing, kerr.UnknownTopicOrPartition), actionRefused: with(rights, never...)},
	}
	for s, actions := range table {
		require.Equal(t, actionDone, react(s, nil), s)
		for want, answers := range actions {
			for _, answer := range answers {
				require.Equal(t, want, react(s, answer), "%s answered %v", s, answer)
				if s != stepCommit {
					require.Equal(t, want, react(s, fmt.Errorf("client: %w", answer)), "%s answered %v, wrapped", s, answer)
				}
			}
		}
		if s != stepCommit && s != stepOwn {
			require.Equal(t, actionRefused, react(s, &tls.CertificateVerificationError{Err: errors.New("expired")}), s)
		}
	}
	require.Equal(t, actionAgain, react(stepCommit, fmt.Errorf("client: %w", kerr.InvalidTxnState)), "a client's failure is no answer")
	require.Len(t, table, int(stepMetadata), "every step")
}

// What no table lists never counts as done, and never as lost.
func TestReactToAnswersThatNobodyExpects(t *testing.T) {
	for s := stepInit; s <= stepMetadata; s++ {
		for code := int16(1); code < 140; code++ {
			answer := kerr.ErrorForCode(code)
			a := react(s, answer)
			require.NotZero(t, a)
			if a == actionDone {
				require.Equal(t, stepDescribe, s, answer)
				require.Equal(t, kerr.TransactionalIDNotFound, answer)
			}
			if a == actionLost {
				require.Equal(t, stepCommit, s, answer)
				require.Equal(t, kerr.InvalidTxnState, answer)
			}
		}
	}
}
