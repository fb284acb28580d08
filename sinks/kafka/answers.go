package kafkasink

import (
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

// judge says what the answer to EndTxn(commit) means for a transaction that was prepared and is not empty: what react says, as a verdict.
func judge(code error) verdict {
	switch react(stepCommit, code) {
	case actionDone:
		return verdictCommitted
	case actionLost:
		return verdictLost
	case actionLook:
		return verdictAsk
	case actionRefused, actionFailJob:
		return verdictRefused
	case actionAgain, actionFailTask:
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
