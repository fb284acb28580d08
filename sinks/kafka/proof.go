package kafkasink

import "github.com/weir-stream/weir/sinks/kafka/internal/answers"

// verdict is what the partitions prove about a transaction.
type verdict uint8

const (
	verdictCommitted verdict = iota + 1
	verdictOpen              // not decided yet
	verdictLost              // aborted
	verdictGone              // what would prove it is deleted
)

// String names the verdict.
func (v verdict) String() string {
	return [...]string{"none", "committed", "open", "lost", "gone"}[v]
}

// confirm says what an answer that means a loss comes to after a look at the markers: a loss stops the job for good, so it is told
// only when they do not contradict it. Where they cannot be had, because they are deleted or we may not read them, the answer stands.
func confirm(proof verdict, err error) verdict {
	switch {
	case answers.React(answers.Read, err) == answers.Again:
		return verdictOpen
	case err == nil && (proof == verdictCommitted || proof == verdictOpen):
		return proof
	}
	return verdictLost
}

// marker is how a transaction ended in one partition, as its control record says.
type marker uint8

const (
	markerNone    marker = iota // not at all yet
	markerCommit                //
	markerAbort                 //
	markerDeleted               // the place that would tell is no more: retention, compaction, or a partition that lost its end
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
		return verdictOpen
	}
	if deleted {
		return verdictGone
	}
	// The partitions hold it open and the coordinator knows nothing of it: it has just been ended, or it hangs, and then an administrator
	// ends it.
	return verdictOpen
}
