// Package sinks is the contract of sinks. Each system has a sub-package.
//
// A sink is either a plain [Writer] (at-least-once, none) or a [TwoPhaseCommitSink] (exactly-once), whose transactions become visible
// only when the checkpoint they belong to is complete everywhere.
package sinks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sources"
)

// Sink describes an output. Implementations are plain values: they do no I/O before they are opened.
type Sink[T any] interface {
	// Kind names the system, for example "kafka".
	Kind() string
	// Guarantee returns the guarantee the sink was configured for; graph.GuaranteeDefault leaves it to the job.
	Guarantee() graph.Guarantee
	// Supports reports whether the sink can give a guarantee.
	Supports(g graph.Guarantee) bool
	// Validate checks the settings without I/O, at plan time; it reports all problems.
	Validate(job sources.JobSettings) error
	// Resource identifies what two sinks of one job may not share, for example a transactional prefix; empty for nothing.
	Resource() string
	// TransactionSlots is the largest number of transactional ids of one subtask; 0 without transactions.
	TransactionSlots(job sources.JobSettings) int
	// NewInstance makes the operator instance of one subtask for the resolved guarantee.
	NewInstance(g graph.Guarantee) (operator.Instance, error)
}

// Context is what a sink instance knows of its place.
type Context struct {
	ClusterID, JobID, JobName, UID string
	Attempt                        uint64
	Subtask, Parallelism           int
	Checkpoints                    graph.CheckpointConfig
	Guarantee                      graph.Guarantee
	// SettleOnly tells that the sink is opened to end or to look at transactions, and that nothing will be written.
	SettleOnly bool
	// Listed are the transactions of the restore point whose share this is, also those that are known to be committed.
	Listed []Committable
	Logger *slog.Logger
	Stats  *operator.Stats
	Now    func() time.Time
}

// Writer is a sink without transactions.
type Writer[T any] interface {
	// Open checks the outside world.
	Open(ctx context.Context, sc Context) error
	// Write takes one record. It may buffer.
	Write(ctx context.Context, v T, timestamp int64) error
	// Flush waits until everything written is accepted by the system and returns the first error of any write since the last
	// Flush. At-least-once rests on it: it is called at every barrier.
	Flush(ctx context.Context) error
	Close() error
}

// Committable is a prepared transaction in a form that any process, now or later, can commit.
type Committable struct {
	Version uint32
	Payload []byte
}

// Errors of Commit and RecoverCommit beyond success. Anything else counts as retriable, except errors marked by operator.Fatal and the
// like, which repeating cannot mend.
var (
	// ErrRetriable: the outcome is not decided yet; try again.
	ErrRetriable = errors.New("commit not decided yet")
	// ErrLost: the transaction is proven aborted; its output is lost. Wrap it in a *LostError.
	ErrLost = errors.New("output lost")
	// ErrUnknown: the outcome cannot be found out; an operator must decide.
	ErrUnknown = errors.New("commit outcome unknown")
)

// TwoPhaseCommitSink writes to an external system inside transactions that become visible only when committed.
//
// One goroutine calls Begin, Write, PreCommit and Abort. Commit runs on another goroutine, one call at a time, concurrently with
// them. Txn is whatever the sink needs to write to an open transaction.
type TwoPhaseCommitSink[T, Txn any] interface {
	// Open checks the outside world. It begins nothing and touches no transaction of a former attempt.
	Open(ctx context.Context, sc Context) error
	// Begin starts a transaction; it is called with the first record after a barrier.
	Begin(ctx context.Context) (Txn, error)
	// Write adds a record to the transaction. It may buffer; an asynchronous failure surfaces at the latest in PreCommit.
	Write(ctx context.Context, txn Txn, v T, timestamp int64) error
	// PreCommit flushes: every write is accepted and every asynchronous error looked at. Afterwards Commit must be able to succeed
	// from any process. A transaction that turned out to be empty is ended here; the answer then has a nil Payload and nothing is
	// stored for it.
	PreCommit(ctx context.Context, txn Txn) (Committable, error)
	// Commit makes a prepared transaction visible. It is idempotent.
	Commit(ctx context.Context, c Committable) error
	// Abort ends a transaction that was not prepared.
	Abort(ctx context.Context, txn Txn) error
	// RecoverCommit commits the transactions of the restored checkpoint, before any task of the attempt begins anything.
	RecoverCommit(ctx context.Context, cs []Committable) error
	// RecoverAbort ends what former attempts left open. Begin is called only afterwards.
	RecoverAbort(ctx context.Context, scope operator.Scope) error
	// Close releases everything; it aborts an open transaction and never a prepared one.
	Close() error
}

// Rewriter is implemented by sinks whose output can be durable: what they write is kept with the checkpoints, and is written again when
// the system has given a prepared transaction up.
//
// For the transaction that takes the place of lost ones Begin, Rewrite, PreCommit and Commit may be called before RecoverAbort, so what
// identifies a transaction must be the attempt's own.
type Rewriter[Txn any] interface {
	// Keep is called after Open and before the first Begin, when output is to be kept: from then on everything that Write hands to
	// the system is appended to the journal too, in a form from which Rewrite makes the same bytes, in later versions as well.
	Keep(j Journal)
	// Rewrite writes a kept record to a transaction.
	Rewrite(ctx context.Context, txn Txn, record []byte) error
	// Revoke makes sure that a prepared transaction will never be visible. It returns nil only when that is proven, ErrPublished
	// when the transaction turns out to be committed, and else what Commit returns.
	Revoke(ctx context.Context, c Committable) error
}

// Journal takes the records of the current transaction.
type Journal interface {
	// Append adds a record, which it does not retain.
	Append(record []byte) error
}

// ErrPublished tells that a transaction that was to be revoked is committed.
var ErrPublished = errors.New("transaction is committed already")

// Releaser is implemented by sinks that reuse what identifies a transaction. Release tells that a completed checkpoint no longer
// lists the committed transaction, so that its identity is free. It is called on the goroutine that calls Commit.
type Releaser interface {
	Release(c Committable)
}

// Prover is implemented by sinks whose system can end a transaction by itself. Prove returns an error unless the transaction being
// prepared and every pending one are still open with more than budget left; it is called before a barrier is acknowledged.
type Prover interface {
	Prove(ctx context.Context, pending []Committable, budget time.Duration) error
}

// LostError tells what output was proven lost, or that it cannot be found out whether it was.
type LostError struct {
	Sink        string
	Checkpoint  uint64
	Transaction string
	// Payload is that of the committable, by which the driver finds the checkpoint of a restored one; nil for the one being committed.
	Payload []byte
	// Parts is what the transaction wrote.
	Parts []Part
	// Detail says why it is known, and whatever else there is to tell.
	Detail string
	// Unknown tells that the outcome cannot be found out; the error then is ErrUnknown instead of ErrLost.
	Unknown bool
	// Aborted tells that the whole transaction is proven aborted, so that writing its records again makes no duplicate. It is false
	// for output that is gone in another way, such as with its topic.
	Aborted bool
}

// Error implements error.
func (e *LostError) Error() string {
	var b strings.Builder
	b.WriteString("sink " + e.Sink + ": ")
	if e.Checkpoint > 0 {
		fmt.Fprintf(&b, "checkpoint %d: ", e.Checkpoint)
	}
	if e.Unknown {
		b.WriteString("it cannot be found out whether transaction " + e.Transaction + " was committed: ")
	} else if e.Aborted {
		b.WriteString("transaction " + e.Transaction + " was aborted after it was prepared: ")
	} else {
		b.WriteString("transaction " + e.Transaction + " was prepared and is lost: ")
	}
	if n := e.Records(); n >= 0 {
		fmt.Fprintf(&b, "%d records, ", n)
	}
	for i, p := range e.Parts {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(p.String())
	}
	if e.Detail != "" && len(e.Parts) > 0 {
		b.WriteString("; ")
	}
	b.WriteString(e.Detail)
	return b.String()
}

// Records is how many records the transaction had; -1 when unknown.
func (e *LostError) Records() int64 {
	var n int64
	for _, p := range e.Parts {
		if p.Records < 0 {
			return -1
		}
		n += p.Records
	}
	return n
}

// Is reports whether target is ErrLost, or ErrUnknown when the outcome is unknown.
func (e *LostError) Is(target error) bool {
	if e.Unknown {
		return target == ErrUnknown
	}
	return target == ErrLost
}

// FailureClass makes a lost transaction stop the job.
func (e *LostError) FailureClass() operator.Class { return operator.ClassDataLoss }

// Losses returns every [LostError] in err's tree.
func Losses(err error) []*LostError {
	if lost, ok := err.(*LostError); ok { //nolint:errorlint // the tree is walked here
		return []*LostError{lost}
	}
	switch x := err.(type) { //nolint:errorlint // as said
	case interface{ Unwrap() error }:
		return Losses(x.Unwrap())
	case interface{ Unwrap() []error }:
		var all []*LostError
		for _, e := range x.Unwrap() {
			all = append(all, Losses(e)...)
		}
		return all
	}
	return nil
}
