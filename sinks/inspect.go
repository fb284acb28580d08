package sinks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-stream/weir/operator"
)

// Inspector is implemented by transactional sinks whose transactions an operator may look at and end by hand, with weir txn.
//
// Its methods are called after Open, on a goroutine of their own, beside all others. RecoverAbort of such a sink may be repeated in the
// same way while the sink runs, with Scope.Again set.
type Inspector interface {
	// Inspect tells what the system shows. It changes nothing. pending are the transactions that the driver knows to be prepared, or
	// committed not long ago; scope names former attempts that may have left some.
	Inspect(ctx context.Context, pending []Committable, scope operator.Scope) (Inspection, error)
	// Resolve commits or aborts one transaction that Inspect has just shown as pending or as one of the others, whichever process wrote
	// it. c is its committable; without a Payload there is none. It is idempotent: already tells that the transaction had ended that way before. An error wraps ErrLost when it was to be committed
	// and is aborted, ErrCommitted when it was to be aborted and is committed, ErrNotFound when it is none of this sink, and ErrUnknown
	// or ErrRetriable when nobody can tell, or not yet.
	Resolve(ctx context.Context, id string, c Committable, commit bool) (already bool, err error)
}

// Errors of Resolve beyond those of Commit.
var (
	// ErrCommitted: the transaction is committed, so that it cannot be aborted.
	ErrCommitted = errors.New("transaction is committed")
	// ErrNotFound: the sink has no such transaction.
	ErrNotFound = errors.New("no such transaction")
	// ErrNotAsked: the system could not be asked whose the transaction is, and nothing was changed.
	ErrNotAsked = errors.New("the system cannot be asked")
)

// Inspection is what a sink's system shows.
type Inspection struct {
	// Pending describes the transactions that were passed to Inspect, in the same order.
	Pending []Transaction
	// Others are all other transactions that are open, of this instance and of former attempts.
	Others []Transaction
	// Ended are those of the same share that are committed or aborted, as far as the system still tells. They are not shown; whoever ends
	// one of them by hand a second time is told that it has ended.
	Ended []Transaction
	// Held are the places whose readers do not see everything that is written.
	Held []Held
}

// Transaction is one transaction as its system shows it.
type Transaction struct {
	// ID is what users call it; no two transactions that are open have the same.
	ID      string
	Attempt uint64
	Subtask int
	State   TransactionState
	Parts   []Part
	// Age is since it began, Left until the system ends it by itself; negative when unknown.
	Age, Left time.Duration
}

// TransactionState is what became of a transaction.
type TransactionState uint8

// The states of a transaction.
const (
	TransactionOpen TransactionState = iota + 1
	// TransactionPrepared: flushed at a barrier, and not ended.
	TransactionPrepared
	TransactionCommitted
	TransactionAborted
	// TransactionUnknown: it cannot be found out.
	TransactionUnknown
)

// Part is what a transaction wrote to one place.
type Part struct {
	// Place is for people, such as "orders/3" or the name of a table.
	Place string
	// Records is negative when unknown.
	Records int64
	// Detail says where in the place; it may be empty.
	Detail string
}

// String describes the part for people.
func (p Part) String() string {
	s := p.Place
	if p.Detail != "" {
		s += " " + p.Detail
	}
	if p.Records >= 0 {
		s += fmt.Sprintf(" (%d records)", p.Records)
	}
	return s
}

// Held is a place whose readers do not see everything that is written, because a transaction is open.
type Held struct {
	Place string
	// Visible is the first offset that readers do not see, End the one after the last.
	Visible, End int64
	// Transaction is the oldest open one; empty when its id is not known.
	Transaction string
	// Owner says in words whose it is. Own tells that it is this job's, Current that the running attempt is at work with it.
	Owner        string
	Own, Current bool
	// Age and Left are as in Transaction.
	Age, Left time.Duration
	// Ends says in a sentence what ends it.
	Ends string
}
