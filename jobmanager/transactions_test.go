package jobmanager_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
)

// transactional starts a job that can tell of its transactions, on one TaskManager: of one that a completed checkpoint lists. Whoever is to
// end it answers with end.
func transactional(t *testing.T, end func() *workerv1.TransactionsDone) (c *cluster, id string) {
	t.Helper()
	c = newCluster(t, 1)
	c.fakes.set(func() {
		c.fakes.graph.TransactionsCommand = true
		c.fakes.transactions = func(cmd *workerv1.Transactions) *workerv1.TransactionsDone {
			if cmd.GetResolve() == nil {
				return &workerv1.TransactionsDone{Transactions: []*jobv1.Transaction{listedTransaction()}}
			}
			return end()
		}
	})
	c.fakes.start("tm1", 2, c.addresses)
	c.waitForTaskManagers(1)
	id = c.submit("totals")
	c.waitFor(id, "a checkpoint is complete", func(j *jobv1.Job) bool { return j.GetCompletedCheckpoints() >= 1 })
	return c, id
}

// listedTransaction wrote to three places, to one of them nobody knows how much.
func listedTransaction() *jobv1.Transaction {
	return &jobv1.Transaction{
		Id: "x", Sink: "out", Attempt: 1, State: jobv1.TransactionState_TRANSACTION_STATE_PREPARED, Checkpoint: 1, Listed: true,
		Parts: []*jobv1.OutputPart{{Place: "a", Records: 4}, {Place: "b", Records: -1}, {Place: "c", Records: 5}},
	}
}

func outcome(o workerv1.ResolveOutcome, why string) func() *workerv1.TransactionsDone {
	return func() *workerv1.TransactionsDone { return &workerv1.TransactionsDone{Outcome: o, Error: why} }
}

func (c *cluster) abort(id string) (*jobv1.ResolveTransactionResponse, error) {
	return c.jobs().ResolveTransaction(c.t.Context(), &jobv1.ResolveTransactionRequest{RequestId: "r", Job: id, Transaction: "x", Force: true})
}

func TestOutcomeOfATransactionThatIsEndedByHand(t *testing.T) {
	for name, test := range map[string]struct {
		end  func() *workerv1.TransactionsDone
		is   error
		says []string
	}{
		"the worker dies over it": {func() *workerv1.TransactionsDone { return nil }, grpcerr.ErrUnknownOutcome, []string{"no answer of the workers on tm1", "weir txn list"}},
		"the sink does not know": {
			outcome(workerv1.ResolveOutcome_RESOLVE_OUTCOME_UNKNOWN, "the broker was silent"),
			grpcerr.ErrUnknownOutcome,
			[]string{"the broker was silent", "weir txn list"},
		},
		"it is refused": {outcome(workerv1.ResolveOutcome_RESOLVE_OUTCOME_REFUSED, "it is at work"), grpcerr.ErrInvalid, []string{"it is at work"}},
		"it is committed": {
			outcome(workerv1.ResolveOutcome_RESOLVE_OUTCOME_CONTRARY, "it is committed"), grpcerr.ErrInvalid, []string{"it is committed"},
		},
		"nobody has it": {outcome(workerv1.ResolveOutcome_RESOLVE_OUTCOME_NOT_MINE, ""), grpcerr.ErrInvalid, []string{"no open or prepared transaction x", "weir txn list"}},
		"the sink cannot be asked": {
			outcome(workerv1.ResolveOutcome_RESOLVE_OUTCOME_NOT_MINE, "no route"), grpcerr.ErrInvalid, []string{"cannot be looked at", "no route"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, id := transactional(t, test.end)
			_, err := c.abort(id)
			require.ErrorIs(t, err, test.is)
			for _, s := range test.says {
				require.ErrorContains(t, err, s)
			}
		})
	}
}

// A number that includes an unknown one is unknown.
func TestOutputThatIsGivenUpByHand(t *testing.T) {
	c, id := transactional(t, outcome(workerv1.ResolveOutcome_RESOLVE_OUTCOME_DONE, ""))
	resp, err := c.abort(id)
	require.NoError(t, err)
	require.Equal(t, jobv1.TransactionState_TRANSACTION_STATE_ABORTED, resp.GetTransaction().GetState())
	lost := c.job(id).GetLost()
	require.Len(t, lost, 1)
	require.True(t, lost[0].GetAccepted())
	require.Equal(t, "x", lost[0].GetTransaction())
	require.EqualValues(t, -1, lost[0].GetRecords())
	require.Len(t, lost[0].GetParts(), 3)
}
