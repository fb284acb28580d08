package kafkasink

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weir-stream/weir/internal/kafkaconn"
)

// step is what was asked of a broker.
type step uint8

const (
	stepInit     step = iota + 1 // InitProducerId of an id of this attempt
	stepFence                    // InitProducerId of an id of a former attempt
	stepAdd                      // AddPartitionsToTxn, where the client sends one
	stepProduce                  // Produce, by its delivery report
	stepFlush                    // the client's wait for all reports
	stepCommit                   // EndTxn(commit) of a prepared transaction, by its identity
	stepOwn                      // the client's own commit
	stepAbort                    // EndTxn(abort)
	stepDescribe                 // DescribeTransactions, DescribeProducers, ListTransactions
	stepRead                     // Fetch and ListOffsets, for control markers
	stepMetadata                 // Metadata, DescribeConfigs, ApiVersions
)

// String names the step.
func (s step) String() string {
	return [...]string{"none", "init", "fence", "add partitions", "produce", "flush", "commit", "own commit", "abort", "describe", "read", "metadata"}[s]
}

// action is what follows an answer.
type action uint8

const (
	actionDone     action = iota + 1 // as asked for
	actionAgain                      // nothing is decided: ask again, with back-off
	actionLook                       // it proves nothing: look at the control markers
	actionLost                       // aborted, unless the control markers say otherwise
	actionRefused                    // no right, login or certificate: give up at once; a later attempt may find it mended
	actionFailTask                   // the interval is lost and read again: the task fails, never only the checkpoint
	actionFailJob                    // no attempt will be answered otherwise
)

// String names the action.
func (a action) String() string {
	return [...]string{"none", "done", "again", "look", "lost", "refused", "fail task", "fail job"}[a]
}

// react says what follows a broker's answer to a step: nil for success, an error that wraps the broker's *kerr.Error, or any other when
// no answer came. For the commit by identity the answer itself decides, and what only wraps one is a client's failure.
//
// What is not listed: nothing is decided yet where asking again is harmless, and the task fails where something was written, since a
// client's state is not to be trusted after an error that nobody expected.
func react(s step, answer error) action {
	if answer == nil {
		return actionDone
	}
	var code *kerr.Error
	if s == stepCommit {
		code, _ = answer.(*kerr.Error) //nolint:errorlint // as said
	} else {
		errors.As(answer, &code)
	}
	writing := s == stepAdd || s == stepProduce || s == stepFlush
	switch {
	case code == nil && s != stepCommit && kafkaconn.Refused(answer, kafkaconn.Access{}) != nil:
		return actionRefused // login or certificate
	case code == nil && s == stepInit && errors.Is(answer, ErrTimeoutRefused):
		return actionFailJob
	case code == nil && (writing || s == stepInit && errors.Is(answer, context.Canceled)):
		return actionFailTask
	case code == nil && s == stepOwn:
		return actionLook
	case code == nil:
		return actionAgain
	}
	switch code {
	case kerr.TopicAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.GroupAuthorizationFailed,
		kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState:
		if s == stepOwn {
			return actionLook
		}
		return actionRefused
	case kerr.UnsupportedVersion, kerr.InvalidRequest:
		switch s {
		case stepOwn:
			return actionLook
		case stepRead, stepDescribe, stepMetadata:
			return actionRefused
		}
		return actionFailJob
	case kerr.InvalidTransactionTimeout:
		return actionFailJob
	}
	switch s {
	case stepCommit:
		return afterCommit(code)
	case stepOwn:
		return actionLook // whatever it says: the transaction is finished by its identity
	case stepAbort:
		return afterAbort(code)
	case stepAdd, stepProduce, stepFlush:
		return actionFailTask // clients repeat what can be repeated
	case stepInit:
		if code == kerr.ProducerFenced || code == kerr.InvalidProducerEpoch {
			return actionFailTask // a later attempt has fenced this one
		}
	case stepDescribe:
		if code == kerr.TransactionalIDNotFound {
			return actionDone // the answer: there is none
		}
	case stepRead:
		if code == kerr.OffsetOutOfRange {
			return actionLook // retention has moved on meanwhile: look at the offsets again
		}
	case stepFence, stepMetadata:
	}
	return actionAgain
}

// afterCommit is about EndTxn(commit). INVALID_TXN_STATE: aborted before; with v2 also what a broker answers that aborted it on timeout.
// PRODUCER_FENCED: with v1 the answer after an abort on timeout, but with both also the answer after the id was initialised anew, which
// follows a commit as well as an abort. INVALID_PRODUCER_ID_MAPPING: the id is unknown, expired, or belongs to another producer id.
func afterCommit(code *kerr.Error) action {
	switch code {
	case kerr.InvalidTxnState:
		return actionLost
	case kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.TransactionalIDNotFound:
		return actionLook
	}
	return actionAgain
}

// afterAbort is about EndTxn(abort): what is not there any more proves nothing about how it ended.
func afterAbort(code *kerr.Error) action {
	switch code {
	case kerr.InvalidTxnState, kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.TransactionalIDNotFound:
		return actionLook
	}
	return actionAgain
}
