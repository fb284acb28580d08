package jobmanager_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager/driver"
)

// unsettledJob is one that was canceled while nobody could settle it, with a transaction that a completed checkpoint lists. Whoever is to
// end it answers with end.
func unsettledJob(t *testing.T, end func() *workerv1.TransactionsDone) (c *cluster, id string) {
	t.Helper()
	c = newCluster(t, 1)
	c.fakes.set(func() {
		c.fakes.unsettled = true
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
	_, err := c.jobs().CancelJob(t.Context(), &jobv1.CancelJobRequest{RequestId: "c", Job: id})
	require.NoError(t, err)
	job := c.waitFor(id, "it is canceled", inState(jobv1.JobState_JOB_STATE_CANCELED))
	require.NotEmpty(t, job.GetUnsettled())
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
		"the worker dies over it": {func() *workerv1.TransactionsDone { return nil }, grpcerr.ErrUnknownOutcome, []string{"out of memory", "weir txn list"}},
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
			var before []*jobv1.LostOutput
			var c *cluster
			var id string
			c, id = unsettledJob(t, func() *workerv1.TransactionsDone {
				before = c.losses(id)
				return test.end()
			})
			_, err := c.abort(id)
			require.ErrorIs(t, err, test.is)
			for _, s := range test.says {
				require.ErrorContains(t, err, s)
			}
			require.Len(t, before, 1, "the order is in the log before anybody carries it out")
			require.True(t, before[0].GetPending())
			require.EqualValues(t, -1, before[0].GetRecords())
			if errors.Is(test.is, grpcerr.ErrInvalid) {
				require.Empty(t, c.job(id).GetLost(), "it has come to nothing")
			} else {
				require.True(t, c.job(id).GetLost()[0].GetPending(), "nobody knows yet")
			}
		})
	}
}

// losses are those in the log of the leader, which is not asked.
func (c *cluster) losses(id string) []*jobv1.LostOutput {
	l, err := c.members[0].server.Leader()
	require.NoError(c.t, err)
	rec, _ := l.Log.View().Job(id)
	return rec.GetLost()
}

// What nobody has seen to be aborted is found out by whoever settles the checkpoint next.
func TestAnAbortWhoseOutcomeIsFoundOutLater(t *testing.T) {
	for name, lost := range map[string][]*jobv1.LostOutput{
		"it was committed": nil,
		"it is lost":       {{Sink: "out", Checkpoint: 1, Transaction: "x", Records: 9, Reason: "nobody has it"}},
	} {
		t.Run(name, func(t *testing.T) {
			var c *cluster
			var id string
			c, id = unsettledJob(t, func() *workerv1.TransactionsDone {
				c.fakes.unsettled, c.fakes.lost = false, lost
				return nil
			})
			_, err := c.abort(id)
			require.ErrorIs(t, err, grpcerr.ErrUnknownOutcome)
			job := c.waitFor(id, "it is settled", func(j *jobv1.Job) bool { return j.GetUnsettled() == "" })
			require.Len(t, job.GetLost(), len(lost))
			for _, l := range job.GetLost() {
				require.False(t, l.GetPending())
				require.True(t, l.GetAccepted())
				require.EqualValues(t, 9, l.GetRecords())
			}
		})
	}
}

// Who does not say that records may be lost has not accepted that they are.
func TestALossThatIsFoundWhenNobodyForcesIt(t *testing.T) {
	c, id := unsettledJob(t, outcome(workerv1.ResolveOutcome_RESOLVE_OUTCOME_ALREADY, ""))
	resp, err := c.jobs().ResolveTransaction(t.Context(), &jobv1.ResolveTransactionRequest{RequestId: "r", Job: id, Transaction: "x"})
	require.NoError(t, err)
	require.True(t, resp.GetAlready())
	require.Empty(t, c.job(id).GetLost(), "the settling tells of it")
}

// A number that includes an unknown one is unknown.
func TestOutputThatIsGivenUpByHand(t *testing.T) {
	c, id := unsettledJob(t, outcome(workerv1.ResolveOutcome_RESOLVE_OUTCOME_DONE, ""))
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

// Losses that are only counted keep a job from starting like any other.
func TestAStartFromLossesForWhichThereIsNoRoom(t *testing.T) {
	c, id := unsettledJob(t, nil)
	l, err := c.members[0].server.Leader()
	require.NoError(t, err)
	res, err := l.Log.Propose(t.Context(), driver.LossCommand(l.Log, id, []*jobv1.LostOutput{{Checkpoint: 1, Transactions: 12, Records: -1}}))
	require.NoError(t, err)
	require.NoError(t, res.Err)
	req := &jobv1.SubmitJobRequest{RequestId: "again", Name: "again", ArtifactSha256: c.job(id).GetArtifactSha256(), From: id + "@last"}
	_, err = c.jobs().SubmitJob(t.Context(), req)
	require.ErrorIs(t, err, grpcerr.ErrInvalid)
	require.ErrorContains(t, err, "up to 12 more transactions")
	require.ErrorContains(t, err, "--accept-loss")
	req.AcceptLoss = true
	resp, err := c.jobs().SubmitJob(t.Context(), req)
	require.NoError(t, err)
	lost := c.job(resp.GetJobId()).GetLost()
	require.Len(t, lost, 1)
	require.True(t, lost[0].GetAccepted())
	require.EqualValues(t, 12, lost[0].GetTransactions())
}
