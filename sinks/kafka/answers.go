package kafkasink

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weir-stream/weir/internal/kafkaconn"
)

// verdict is what an answer proves about a transaction.
type verdict uint8

const (
	verdictCommitted verdict = iota + 1
	verdictRetry             // not decided yet
	verdictLost              // aborted
	verdictAsk               // it proves nothing: look at the control markers
	verdictRefused           // the broker will never take the request
)

// String names the verdict.
func (v verdict) String() string {
	return [...]string{"none", "committed", "retry", "lost", "ask", "refused"}[v]
}

// judge says what the answer to EndTxn(commit) means for a transaction that was prepared and is not empty. code is nil for success,
// a broker's error, or any other error when no answer came.
//
// INVALID_TXN_STATE: aborted before; with v2 also what a broker answers that aborted it on timeout. PRODUCER_FENCED: with v1 the
// answer after an abort on timeout, but with both also the answer after the id was initialised anew, which follows a commit as well
// as an abort. INVALID_PRODUCER_ID_MAPPING: the id is unknown, expired, or belongs to another producer id.
func judge(code error) verdict {
	ke, answered := code.(*kerr.Error) //nolint:errorlint // an answer's code is never wrapped; a wrapped one is a client's failure
	switch {
	case code == nil:
		return verdictCommitted
	case !answered:
		return verdictRetry
	}
	switch ke {
	case kerr.InvalidTxnState:
		return verdictLost
	case kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.TransactionalIDNotFound:
		return verdictAsk
	case kerr.TransactionalIDAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.UnsupportedVersion, kerr.InvalidRequest:
		return verdictRefused
	}
	return verdictRetry
}

// confirm says what an answer that means a loss comes to after a look at the markers: a loss stops the job for good, so it is told
// only when they do not contradict it. Where they cannot be had, because they are deleted or we may not read them, the answer stands.
func confirm(proof verdict, err error) verdict {
	switch {
	case err != nil && kafkaconn.Refused(err, kafkaconn.Access{}) == nil:
		return verdictRetry
	case err == nil && (proof == verdictCommitted || proof == verdictRetry):
		return proof
	}
	return verdictLost
}

// marker is the first control record after a transaction's last record in one partition.
type marker uint8

const (
	markerNone    marker = iota // nothing up to the end of the partition
	markerCommit                //
	markerAbort                 //
	markerDeleted               // retention has deleted the place where it was or would be
)

// coordinatorView is what the coordinator says about the transactional id.
type coordinatorView uint8

const (
	viewOther      coordinatorView = iota // another transaction, or none
	viewOpen                              // this transaction is open
	viewCommitting                        // this transaction is being committed; markers follow
	viewAborting                          // this transaction is being aborted; markers follow
)

// conclude says what the markers of all partitions, together with the coordinator's view taken before them, prove. A transaction ends
// the same way everywhere, so one marker decides.
func conclude(markers []marker, view coordinatorView) verdict {
	deleted := false
	for _, m := range markers {
		switch m {
		case markerCommit:
			return verdictCommitted
		case markerAbort:
			return verdictLost
		case markerDeleted:
			deleted = true
		case markerNone:
		}
	}
	if view != viewOther {
		return verdictRetry
	}
	if deleted {
		return verdictAsk
	}
	// Neither open nor ended anywhere: markers are written before the coordinator takes up anything else, so they are about to be
	// seen.
	return verdictRetry
}
