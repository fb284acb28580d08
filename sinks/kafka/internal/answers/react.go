package answers

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/operator"
)

// Step is what was asked of a broker or of the client that writes.
type Step uint8

// The steps.
const (
	Init     Step = iota + 1 // InitProducerId of an id of this attempt
	Fence                    // InitProducerId of an id of a former attempt
	Write                    // Produce and AddPartitionsToTxn, by delivery reports, and the flush that waits for them
	Commit                   // EndTxn(commit) of a prepared transaction, by its identity
	Own                      // the client's own commit
	Abort                    // EndTxn(abort) by identity
	Describe                 // DescribeTransactions, DescribeProducers, ListTransactions
	Read                     // ListOffsets and Fetch, for control markers
	Metadata                 // Metadata, DescribeConfigs, ApiVersions
	Produce                  // Produce and AddPartitionsToTxn, of a client that repeats by this table
)

// String names the step.
func (s Step) String() string {
	return [...]string{"none", "init", "fence", "write", "commit", "own commit", "abort", "describe", "read", "metadata", "produce"}[s]
}

// Action is what follows an answer.
type Action uint8

// The actions.
const (
	Done     Action = iota + 1 // as asked for
	None                       // the answer: there is no such thing
	Again                      // nothing is decided: ask again, with back-off
	Look                       // it proves nothing: look at the control markers
	Lost                       // aborted, unless the control markers say otherwise
	Refused                    // no right, login or certificate: give up at once; a later attempt may find it mended
	FailTask                   // the interval is lost and read again: the task fails, never only the checkpoint
	FailJob                    // no attempt will be answered otherwise
)

// String names the action.
func (a Action) String() string {
	return [...]string{"nothing", "done", "none", "again", "look", "lost", "refused", "fail task", "fail job"}[a]
}

// React says what follows a broker's answer to a step: nil for success, an error that wraps the broker's *kerr.Error, or any other when
// no answer came. Only the broker's very answer to a commit or an abort tells of the transaction: what wraps one is a client's failure.
//
// What is not listed: nothing is decided yet where asking again is harmless, and the task fails where something was written, since a
// client's state is not to be trusted after an error that nobody expected.
func React(s Step, answer error) Action {
	if answer == nil {
		return Done
	}
	if s == Own {
		return Look // whatever it says: the transaction is finished by its identity
	}
	if kafkaconn.Refused(answer, kafkaconn.Access{}) != nil {
		return Refused
	}
	var code *kerr.Error
	if s == Commit || s == Abort {
		code, _ = answer.(*kerr.Error) //nolint:errorlint // as said
	} else {
		errors.As(answer, &code)
	}
	switch code {
	case kerr.UnsupportedVersion, kerr.InvalidRequest, kerr.InvalidTransactionTimeout:
		return FailJob
	}
	switch s {
	case Init:
		switch code {
		case kerr.ProducerFenced, kerr.InvalidProducerEpoch:
			return FailTask // a later attempt has fenced this one
		}
	case Write:
		switch code {
		case kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.UnsupportedCompressionType:
			return FailJob // the same record comes again
		}
		return FailTask // clients repeat what can be repeated
	case Commit:
		if code == kerr.InvalidTxnState {
			return Lost // aborted before; with v2 also the answer after an abort on timeout
		}
		return ended(code)
	case Abort:
		if code == kerr.InvalidTxnState {
			return Look
		}
		return ended(code)
	case Describe:
		if code == kerr.TransactionalIDNotFound {
			return None
		}
	case Metadata:
		if code == kerr.UnknownTopicID {
			return None
		}
	case Produce:
		return produced(code, answer)
	case Fence, Own, Read:
	}
	return Again
}

// ended is about what both ends of a transaction are answered when there is nothing to end any more, which proves nothing about how it
// ended. PRODUCER_FENCED: with v1 the answer after an abort on timeout, but with both also the answer after the id was initialised anew,
// which follows a commit as well as an abort. INVALID_PRODUCER_ID_MAPPING: the id is unknown, expired, or belongs to another producer id.
// TRANSACTION_ABORTABLE asks the client to abort what may be committed already.
func ended(code *kerr.Error) Action {
	switch code {
	case kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.TransactionalIDNotFound, kerr.TransactionAbortable:
		return Look
	}
	return Again
}

// produced is about a batch, which goes again with its sequence number where the broker would know a repetition. A broken sequence, a
// fenced producer, a transaction to be aborted and the like mean that the transaction cannot be any more what it should.
func produced(code *kerr.Error, answer error) Action {
	switch code {
	case nil: // no answer, unless it was the client that gave up
		if errors.Is(answer, kgo.ErrClientClosed) || errors.Is(answer, context.Canceled) {
			return FailTask
		}
		return Again
	case kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.BrokerNotAvailable, kerr.ReplicaNotAvailable, kerr.FencedLeaderEpoch,
		kerr.UnknownLeaderEpoch, kerr.OffsetNotAvailable, kerr.ListenerNotFound, kerr.NotController,
		kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable,
		kerr.RequestTimedOut, kerr.NetworkException, kerr.ThrottlingQuotaExceeded,
		kerr.KafkaStorageError, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend,
		kerr.OperationNotAttempted,                                                  // because of another partition, whose own answer says why
		kerr.ConcurrentTransactions,                                                 // the end of the last one is under way
		kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID: // a leader that has not heard of it yet
		return Again
	case kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.UnsupportedCompressionType:
		return FailJob // the same record comes again
	}
	return FailTask
}

// TimeoutRefused tells that an error holds a broker's refusal of the transaction timeout.
func TimeoutRefused(err error) bool { return errors.Is(err, kerr.InvalidTransactionTimeout) }

// Failure is the error by which a step ends for good with an answer: it names the right that is missing, and has the class of failure that
// React's action means. It is nil when the step is done.
func Failure(s Step, answer error, on kafkaconn.Access) error {
	switch React(s, answer) {
	case Done:
		return nil
	case FailJob:
		return operator.Fatal(answer)
	}
	return kafkaconn.OrRefused(answer, on)
}
