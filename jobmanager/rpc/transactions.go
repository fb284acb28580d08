package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager/driver"
	"github.com/weir-stream/weir/jobmanager/fsm"
)

// ListTransactions implements jobv1.JobServiceServer: what the systems of the job's sinks show now.
func (s *Services) ListTransactions(ctx context.Context, req *jobv1.ListTransactionsRequest) (*jobv1.ListTransactionsResponse, error) {
	l, rec, err := s.job(ctx, req.GetJob())
	if err != nil {
		return nil, err
	}
	return listTransactions(ctx, l, rec)
}

func listTransactions(ctx context.Context, l *Leader, rec *raftv1.JobRecord) (*jobv1.ListTransactionsResponse, error) {
	cmd := &workerv1.Transactions{Action: &workerv1.Transactions_Inspect{Inspect: &workerv1.InspectTransactions{}}}
	a, err := l.Jobs.Transactions(ctx, rec, cmd)
	if err != nil {
		return nil, mapped(err)
	}
	resp := &jobv1.ListTransactionsResponse{JobId: rec.GetId(), Name: rec.GetName(), Problems: a.Problems}
	for _, d := range a.Done {
		resp.Transactions = append(resp.Transactions, d.GetTransactions()...)
		for _, h := range d.GetHeld() {
			known := func(o *jobv1.HeldOutput) bool {
				return o.GetPlace() == h.GetPlace() && o.GetTransaction() == h.GetTransaction()
			}
			if !slices.ContainsFunc(resp.Held, known) {
				resp.Held = append(resp.Held, h)
			}
		}
	}
	slices.SortFunc(resp.Transactions, func(a, b *jobv1.Transaction) int {
		return cmp.Or(cmp.Compare(a.GetSink(), b.GetSink()), cmp.Compare(a.GetAttempt(), b.GetAttempt()), cmp.Compare(a.GetSubtask(), b.GetSubtask()), cmp.Compare(a.GetId(), b.GetId()))
	})
	slices.SortFunc(resp.Held, func(a, b *jobv1.HeldOutput) int { return cmp.Compare(a.GetPlace(), b.GetPlace()) })
	return resp, nil
}

// ResolveTransaction implements jobv1.JobServiceServer. Ending a transaction by hand is idempotent, so that it may be repeated.
func (s *Services) ResolveTransaction(ctx context.Context, req *jobv1.ResolveTransactionRequest) (*jobv1.ResolveTransactionResponse, error) {
	l, rec, err := s.live(ctx, req.GetJob(), req.GetRequestId())
	if err != nil {
		return nil, err
	}
	before, err := listTransactions(ctx, l, rec)
	if err != nil {
		return nil, err
	}
	id := req.GetTransaction()
	i := slices.IndexFunc(before.GetTransactions(), func(t *jobv1.Transaction) bool { return t.GetId() == id })
	known := &jobv1.Transaction{Id: id}
	if i >= 0 {
		known = before.GetTransactions()[i]
	}
	loses := GivesUp(req, known, rec.GetGraph())
	a, err := l.Jobs.Transactions(ctx, rec, &workerv1.Transactions{Action: &workerv1.Transactions_Resolve{Resolve: &workerv1.ResolveTransaction{
		Transaction: id, Commit: req.GetCommit(), Force: req.GetForce(),
	}}})
	if err != nil {
		return nil, mapped(err)
	}
	done := decided(a)
	switch done.GetOutcome() {
	case workerv1.ResolveOutcome_RESOLVE_OUTCOME_DONE, workerv1.ResolveOutcome_RESOLVE_OUTCOME_ALREADY:
	case workerv1.ResolveOutcome_RESOLVE_OUTCOME_REFUSED, workerv1.ResolveOutcome_RESOLVE_OUTCOME_CONTRARY:
		return nil, invalid("%s", done.GetError())
	case workerv1.ResolveOutcome_RESOLVE_OUTCOME_UNKNOWN:
		return nil, fmt.Errorf("%w: %s; 'weir txn list %s' tells what became of it", grpcerr.ErrUnknownOutcome, done.GetError(), rec.GetId())
	default:
		if a.Unanswered {
			return nil, fmt.Errorf("%w: %s; 'weir txn list %s' tells what became of it", grpcerr.ErrUnknownOutcome, strings.Join(a.Problems, "; "), rec.GetId())
		}
		if len(a.Problems) > 0 {
			return nil, invalid("the transaction cannot be looked at: %s", strings.Join(a.Problems, "; "))
		}
		return nil, invalid("job %s (%s) has no open or prepared transaction %s; list them with: weir txn list %s", rec.GetName(), rec.GetId(), id, rec.GetId())
	}
	if loses {
		if err := s.recordForced(ctx, l, rec, known); err != nil {
			return nil, err
		}
	}
	known.State = jobv1.TransactionState_TRANSACTION_STATE_ABORTED
	if req.GetCommit() {
		known.State = jobv1.TransactionState_TRANSACTION_STATE_COMMITTED
	}
	s.logger.Warn("transaction ended by hand", "job", rec.GetId(), "transaction", id, "commit", req.GetCommit(), "forced", req.GetForce(),
		"already", done.GetOutcome() == workerv1.ResolveOutcome_RESOLVE_OUTCOME_ALREADY)
	l.Jobs.SettleAgain(rec.GetId())
	return &jobv1.ResolveTransactionResponse{
		JobId: rec.GetId(), Transaction: known, Already: done.GetOutcome() == workerv1.ResolveOutcome_RESOLVE_OUTCOME_ALREADY,
	}, nil
}

// decided returns the answer of the worker whose transaction it is, nil without one.
func decided(a driver.Answers) (found *workerv1.TransactionsDone) {
	for _, d := range a.Done {
		switch d.GetOutcome() {
		case workerv1.ResolveOutcome_RESOLVE_OUTCOME_NOT_MINE:
		case workerv1.ResolveOutcome_RESOLVE_OUTCOME_UNKNOWN: // of an older binary's sink that could not be asked, perhaps
			found = cmp.Or(found, d)
		default:
			return d
		}
	}
	return found
}

// GivesUp reports whether a request accepts the loss of a transaction's output. It takes force, also where somebody else has aborted the
// transaction already: to be told so is not to give up its records.
func GivesUp(req *jobv1.ResolveTransactionRequest, t *jobv1.Transaction, g *jobv1.Graph) bool {
	return !req.GetCommit() && req.GetForce() && t.GetListed() && t.GetState() != jobv1.TransactionState_TRANSACTION_STATE_COMMITTED &&
		!keptOutput(g, t.GetSink())
}

// keptOutput reports whether a sink keeps the records of its prepared transactions: an aborted one is written again by whoever settles it.
func keptOutput(g *jobv1.Graph, sink string) bool {
	for _, v := range g.GetVertices() {
		for _, op := range v.GetOperators() {
			if op.GetUid() == sink {
				return op.GetDurableOutput()
			}
		}
	}
	return false
}

// recordForced records the output that an operator has given up.
func (s *Services) recordForced(ctx context.Context, l *Leader, rec *raftv1.JobRecord, t *jobv1.Transaction) error {
	lost := &jobv1.LostOutput{
		Sink: t.GetSink(), Checkpoint: t.GetCheckpoint(), Transaction: t.GetId(), Parts: t.GetParts(), Reason: "aborted by hand", Accepted: true,
	}
	for _, p := range t.GetParts() {
		if p.GetRecords() < 0 { // unknown, and with it the sum
			lost.Records = -1
			break
		}
		lost.Records += p.GetRecords()
	}
	res, err := l.Log.Propose(ctx, driver.LossCommand(rec.GetId(), []*jobv1.LostOutput{lost}))
	if err = cmp.Or(err, res.Err); err != nil {
		return fmt.Errorf("the transaction is aborted, and the loss not recorded: %w; repeat the command", mapped(err))
	}
	return nil
}

// acceptedLosses checks a submit from a checkpoint of which output is lost: the losses that the new job accepts, and how far its workers
// may go when they find more.
func acceptedLosses(req *jobv1.SubmitJobRequest, parent *raftv1.JobRecord, checkpoint uint64) (lost []*jobv1.LostOutput, policy workerv1.LossPolicy, err error) {
	switch {
	case req.GetAcceptUnknown():
		policy = workerv1.LossPolicy_LOSS_POLICY_ACCEPT_UNKNOWN
	case req.GetAcceptLoss():
		policy = workerv1.LossPolicy_LOSS_POLICY_ACCEPT_LOST
	}
	for _, l := range fsm.Unaccepted(parent, checkpoint) {
		switch {
		case l.GetUnknown() && !req.GetAcceptUnknown():
			err = errors.Join(err, invalid("it cannot be found out whether %s was committed; with --accept-unknown it counts as lost", lossText(l)))
		case !l.GetUnknown() && !req.GetAcceptLoss() && !req.GetAcceptUnknown():
			err = errors.Join(err, invalid("%s is lost; with --accept-loss the job starts without it", lossText(l)))
		}
		accepted := &jobv1.LostOutput{
			Sink: l.GetSink(), Checkpoint: l.GetCheckpoint(), Transaction: l.GetTransaction(), Parts: l.GetParts(), Records: l.GetRecords(),
			Reason: l.GetReason(), Unknown: l.GetUnknown(), Accepted: true,
		}
		lost = append(lost, accepted)
	}
	return lost, policy, err
}

func lossText(l *jobv1.LostOutput) string {
	var parts []string
	for _, p := range l.GetParts() {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s (%d records)", p.GetPlace(), p.GetDetail(), p.GetRecords())))
	}
	return fmt.Sprintf("the output of transaction %s of sink %s, prepared at checkpoint %d (%s)", l.GetTransaction(), l.GetSink(), l.GetCheckpoint(), strings.Join(parts, ", "))
}
