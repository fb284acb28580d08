package operator

import (
	"context"
	"errors"
	"sync"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
)

// LossPolicy says which outcomes of restored transactions do not fail an attempt. The values match weir.worker.v1.LossPolicy.
type LossPolicy uint8

const (
	// RefuseLoss demands that every restored transaction be committed.
	RefuseLoss LossPolicy = iota
	// AcceptLost drops those that are proven aborted.
	AcceptLost
	// AcceptUnknown also drops those whose outcome cannot be found out.
	AcceptUnknown
)

// LossReporter is implemented by transactional sinks that can go on without output that is lost.
type LossReporter interface {
	// Lost returns the restored transactions that RecoverCommit has dropped.
	Lost() []*jobv1.LostOutput
}

// TransactionInspector is implemented by transactional sinks whose transactions people can look at and end by hand. Its methods may be
// called from any goroutine after Open. restored are the transactions that the restore point lists.
type TransactionInspector interface {
	// InspectTransactions changes nothing. What could not be found out is in the error; the answer may be there all the same.
	InspectTransactions(ctx context.Context, restored []*snapshotv1.Committable, scope Scope) (*TransactionView, error)
	// ResolveTransaction ends a transaction by hand. See [sinks.Inspector].
	ResolveTransaction(ctx context.Context, r Resolution) (already bool, err error)
}

// TransactionView is what a sink's system shows.
type TransactionView struct {
	Transactions []*jobv1.Transaction
	Held         []*jobv1.HeldOutput
}

// Resolution asks to end a transaction.
type Resolution struct {
	ID     string
	Commit bool
	// Force does it although a safeguard speaks against it.
	Force bool
	// Restored are the transactions that the restore point lists.
	Restored []*snapshotv1.Committable
	// Scope is the instance's share of former attempts.
	Scope Scope
}

// ErrSafeguard is wrapped by the error about a transaction that is not ended by hand because it would lose records or write them twice.
var ErrSafeguard = errors.New("refused")

// Transactions are the ages of a sink's transactions. All methods may be called from any goroutine.
type Transactions struct {
	mu      sync.Mutex
	oldest  time.Time
	timeout time.Duration
}

// Set tells when the oldest transaction that is not ended began, zero for none, and after how long the system ends one.
func (t *Transactions) Set(oldest time.Time, timeout time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.oldest, t.timeout = oldest, timeout
}

// Oldest returns the age of the oldest transaction, 0 without one, and the timeout.
func (t *Transactions) Oldest() (age, timeout time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.oldest.IsZero() {
		return 0, t.timeout
	}
	return time.Since(t.oldest), t.timeout
}
