package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

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

// ResolveTransaction implements jobv1.JobServiceServer. Ending a transaction by hand is idempotent, so that it may be repeated. What it may
// lose is in the log before anybody carries it out: if nobody learns here what came of it, whoever settles the job does.
func (s *Services) ResolveTransaction(ctx context.Context, req *jobv1.ResolveTransactionRequest) (*jobv1.ResolveTransactionResponse, error) {
	l, rec, err := s.live(ctx, req.GetJob(), req.GetRequestId())
	if err != nil {
		return nil, err
	}
	before, err := listTransactions(ctx, l, rec)
	if err != nil {
		return nil, err
	}
	known := &jobv1.Transaction{Id: req.GetTransaction()}
	if i := slices.IndexFunc(before.GetTransactions(), func(t *jobv1.Transaction) bool { return t.GetId() == known.GetId() }); i >= 0 {
		known = before.GetTransactions()[i]
	}
	loss := givenUp(req, rec.GetGraph(), known)
	ordered, err := order(ctx, l, rec, loss, !known.GetCurrent())
	if err != nil {
		return nil, err
	}
	already, err := resolve(ctx, l, rec, req)
	switch {
	case errors.Is(err, grpcerr.ErrUnknownOutcome), err != nil && ctx.Err() != nil:
		l.Jobs.SettleAgain(rec.GetId())
		return nil, err
	case err != nil:
		if ordered {
			s.withdraw(ctx, l, rec, loss)
		}
		return nil, err
	}
	if loss != nil {
		if already {
			loss.Reason = "found aborted when it was to be aborted by hand"
		}
		res, err := l.Log.Propose(ctx, driver.LossCommand(l.Log, rec.GetId(), []*jobv1.LostOutput{loss}))
		if err = cmp.Or(err, res.Err); err != nil {
			l.Jobs.SettleAgain(rec.GetId())
			return nil, fmt.Errorf("the transaction is aborted, and the loss not recorded: %w; repeat the command", mapped(err))
		}
	}
	known.State = jobv1.TransactionState_TRANSACTION_STATE_ABORTED
	if req.GetCommit() {
		known.State = jobv1.TransactionState_TRANSACTION_STATE_COMMITTED
	}
	s.logger.Warn("transaction ended by hand", "job", rec.GetId(), "transaction", known.GetId(), "commit", req.GetCommit(), "forced", req.GetForce(),
		"already", already)
	l.Jobs.SettleAgain(rec.GetId())
	return &jobv1.ResolveTransactionResponse{JobId: rec.GetId(), Transaction: known, Already: already}, nil
}

// resolve has the workers end the transaction. Its error is grpcerr.ErrUnknownOutcome, or that of ctx, when nobody can tell whether they have.
func resolve(ctx context.Context, l *Leader, rec *raftv1.JobRecord, req *jobv1.ResolveTransactionRequest) (already bool, err error) {
	id := req.GetTransaction()
	a, err := l.Jobs.Transactions(ctx, rec, &workerv1.Transactions{Action: &workerv1.Transactions_Resolve{Resolve: &workerv1.ResolveTransaction{
		Transaction: id, Commit: req.GetCommit(), Force: req.GetForce(),
	}}})
	if err != nil {
		return false, mapped(err)
	}
	done := decided(a)
	why := done.GetError()
	switch done.GetOutcome() {
	case workerv1.ResolveOutcome_RESOLVE_OUTCOME_DONE:
		return false, nil
	case workerv1.ResolveOutcome_RESOLVE_OUTCOME_ALREADY:
		return true, nil
	case workerv1.ResolveOutcome_RESOLVE_OUTCOME_REFUSED, workerv1.ResolveOutcome_RESOLVE_OUTCOME_CONTRARY:
		return false, invalid("%s", why)
	case workerv1.ResolveOutcome_RESOLVE_OUTCOME_UNKNOWN:
	default:
		why = strings.Join(a.Problems, "; ")
		switch {
		case a.Unanswered:
		case why != "":
			return false, invalid("the transaction cannot be looked at: %s", why)
		default:
			return false, invalid("job %s (%s) has no open or prepared transaction %s; list them with: weir txn list %s", rec.GetName(), rec.GetId(), id, rec.GetId())
		}
	}
	return false, fmt.Errorf("%w: %s; 'weir txn list %s' tells what became of it", grpcerr.ErrUnknownOutcome, why, rec.GetId())
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

// givenUp is the output that is lost when the request is carried out, nil for none.
func givenUp(req *jobv1.ResolveTransactionRequest, g *jobv1.Graph, t *jobv1.Transaction) *jobv1.LostOutput {
	if !GivesUp(req, t, g) {
		return nil
	}
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
	return lost
}

// order puts into the log that output is about to be given up, if that may happen and all members understand it.
func order(ctx context.Context, l *Leader, rec *raftv1.JobRecord, loss *jobv1.LostOutput, may bool) (ordered bool, err error) {
	if loss == nil || !may {
		return false, nil
	}
	pending := proto.CloneOf(loss)
	pending.Pending, pending.Reason = true, "to be aborted by hand"
	cmd := &raftv1.Command{Command: &raftv1.Command_UpdateLosses{UpdateLosses: &raftv1.UpdateLosses{JobId: rec.GetId(), Lost: []*jobv1.LostOutput{pending}}}}
	if fsm.LevelOf(cmd) > l.Log.Level() {
		return false, nil
	}
	res, err := l.Log.Propose(ctx, cmd)
	return true, mapped(cmp.Or(err, res.Err))
}

// withdraw takes back what has not come to be. If that cannot be recorded it stays pending until the job is settled.
func (s *Services) withdraw(ctx context.Context, l *Leader, rec *raftv1.JobRecord, loss *jobv1.LostOutput) {
	res, err := l.Log.Propose(ctx, &raftv1.Command{Command: &raftv1.Command_UpdateLosses{UpdateLosses: &raftv1.UpdateLosses{
		JobId: rec.GetId(), Withdrawn: []*jobv1.LostOutput{loss},
	}}})
	if err = cmp.Or(err, res.Err); err != nil {
		s.logger.Warn("an abort by hand that did not happen stays in the log as pending", "job", rec.GetId(), "transaction", loss.GetTransaction(), "error", err)
	}
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
			Reason: l.GetReason(), Unknown: l.GetUnknown(), Accepted: true, Transactions: l.GetTransactions(),
		}
		lost = append(lost, accepted)
	}
	return lost, policy, err
}

func lossText(l *jobv1.LostOutput) string {
	if n := l.GetTransactions(); n > 0 {
		return fmt.Sprintf("the output of up to %d more transactions, prepared at checkpoint %d and later, for which there is no room one by one,", n, l.GetCheckpoint())
	}
	var parts []string
	for _, p := range l.GetParts() {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s (%d records)", p.GetPlace(), p.GetDetail(), p.GetRecords())))
	}
	return fmt.Sprintf("the output of transaction %s of sink %s, prepared at checkpoint %d (%s)", l.GetTransaction(), l.GetSink(), l.GetCheckpoint(), strings.Join(parts, ", "))
}
