package sinktest

import (
	"slices"

	"github.com/stretchr/testify/require"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// startOf starts the first attempt of another job or another sink.
func (s *suite) startOf(job, uid string, restored []*snapshotv1.Committable) *Attempt[int] {
	s.t.Helper()
	return Start[int](s.t, s.ctx, s.out.Sink(), Deployment{
		Job: job, UID: uid, Attempt: 1, Parallelism: 1, Guarantee: graph.ExactlyOnce, Checkpoints: Checkpoints(), Restored: restored,
	})
}

// oldSavepoint restores what the job has committed, and let go of, many checkpoints ago.
func (s *suite) oldSavepoint() {
	a := s.start(1, graph.ExactlyOnce, nil)
	a.Write(1)
	savepoint := a.Barrier(1)
	a.Commit(1)
	const later = 8
	for n := 2; n <= later; n++ {
		a.Write(n)
		a.Barrier(uint64(n))
		a.Commit(uint64(n))
	}
	s.startOf(s.job+"-child", "", savepoint)
	s.visible(numbers(1, later)...)
}

func (s *suite) closeEndsCurrent() {
	a := s.start(1, graph.ExactlyOnce, nil)
	a.Write(1)
	a.Barrier(1)
	a.Commit(1)
	a.Write(2)
	a.Close()
	s.visible(1)
}

// rescaled goes from one parallelism to another, with prepared and open transactions in every former subtask.
func (s *suite) rescaled(from, to int) {
	var committables []*snapshotv1.Committable
	var want []int
	for subtask := range from {
		a := s.startAs(1, subtask, from, graph.ExactlyOnce, nil)
		a.Write(10 * (subtask + 1))
		want = append(want, 10*(subtask+1))
		committables = append(committables, a.Barrier(1)...)
		a.Write(10*(subtask+1) + 1)
		a.Barrier(2) // never completes
		a.Write(10*(subtask+1) + 2)
	}
	past := Former(1)
	past.Parallelism = from
	for subtask := range to {
		var share []*snapshotv1.Committable
		for former, c := range committables {
			if former%to == subtask {
				share = append(share, c)
			}
		}
		s.startAs(2, subtask, to, graph.ExactlyOnce, share, past)
	}
	s.visible(want...)
}

func (s *suite) scaledDown() { s.rescaled(3, 2) }
func (s *suite) scaledUp()   { s.rescaled(1, 3) }

// undisturbed has a second writer, named by start, work while the job restores, and checks that it did not notice.
func (s *suite) undisturbed(start func() *Attempt[int]) {
	foreign := start()
	foreign.Write(10)
	foreign.Barrier(1)
	foreign.Write(20)
	first := s.start(1, graph.ExactlyOnce, nil)
	first.Write(1)
	restored := first.Barrier(1)
	second := s.start(2, graph.ExactlyOnce, restored, Former(1))
	second.Write(2)
	second.Barrier(2)
	foreign.Write(21)
	foreign.Barrier(2)
	foreign.Commit(2)
	second.Commit(2)
	s.visible(1, 2, 10, 20, 21)
}

func (s *suite) otherJob() {
	s.undisturbed(func() *Attempt[int] { return s.startOf(s.job+"-other", "", nil) })
}

func (s *suite) otherSink() {
	s.undisturbed(func() *Attempt[int] { return s.startOf(s.job, "out2", nil) })
}

// twins starts two jobs from a savepoint of a third one that goes on meanwhile.
func (s *suite) twins() {
	parent := s.start(1, graph.ExactlyOnce, nil)
	parent.Write(1)
	savepoint := parent.Barrier(1)
	parent.Write(2)
	for i, child := range []string{"-a", "-b"} {
		c := s.startOf(s.job+child, "", savepoint)
		for round := range 2 {
			c.Write(10*(i+1) + round)
			c.Barrier(uint64(2 + round))
		}
		c.Commit(3)
	}
	parent.Commit(1)
	parent.Barrier(2)
	parent.Commit(2)
	s.visible(1, 2, 10, 11, 20, 21)
}

// zombieBetween has a former attempt wake that has nothing open. Where it can begin once more, what it leaves is ended when the runtime
// looks again, as it does until the process is known to be dead.
func (s *suite) zombieBetween() {
	first := s.start(1, graph.ExactlyOnce, nil)
	first.Write(1)
	restored := first.Barrier(1)
	second := s.start(2, graph.ExactlyOnce, restored, Former(1))
	second.Write(2)
	if first.Collector.Collect(3, operator.NoTimestamp) == nil {
		_, _ = first.TryBarrier(2)
	}
	second.Barrier(2)
	require.NoError(s.t, second.Instance.(operator.Committer).RecoverAbort(s.ctx, operator.Scope{
		Parallelism: 1, Attempts: []operator.FormerAttempt{Former(1)}, Again: true,
	}))
	first.Drop()
	second.Commit(2)
	s.visible(1, 2)
}

// byHand does what weir txn does, with sinks that show their transactions. Each of two subtasks has its share: all may be asked to end a
// transaction, and only the one that answers for it may do so.
func (s *suite) byHand() {
	const subtasks = 2
	first := s.startAs(1, 0, subtasks, graph.ExactlyOnce, nil)
	if _, ok := first.Instance.(operator.TransactionInspector); !ok {
		s.t.Skip("the driver shows no transactions")
	}
	first.Write(1)
	restored := first.Barrier(1)
	first.Write(2)
	first.Barrier(2) // listed by no completed checkpoint
	first.Drop()

	former := Former(1)
	former.Parallelism = subtasks
	share := func(subtask int) operator.Scope {
		return operator.Scope{Subtask: subtask, Parallelism: subtasks, Attempts: []operator.FormerAttempt{former}}
	}
	var hands []operator.TransactionInspector
	var writers []*Attempt[int]
	for subtask := range subtasks {
		a, err := Open[int](s.t, s.ctx, s.out.Sink(), Deployment{
			Job: s.job, Attempt: 2, Subtask: subtask, Parallelism: subtasks, Guarantee: graph.ExactlyOnce, Checkpoints: Checkpoints(),
		})
		require.NoError(s.t, err)
		writers, hands = append(writers, a), append(hands, a.Instance.(operator.TransactionInspector))
	}
	hand, other := hands[0], hands[1]
	view, err := hand.InspectTransactions(s.ctx, restored, share(0))
	if err != nil && len(view.Transactions) == 0 {
		s.t.Skipf("the sink shows no transactions: %v", err)
	}
	require.NoError(s.t, err)
	var listed, orphan *jobv1.Transaction
	for _, t := range view.Transactions {
		if t.GetListed() {
			listed = t
		} else if t.GetAttempt() == 1 {
			orphan = t
		}
	}
	require.NotNil(s.t, listed, "the transaction of the restored checkpoint is shown")
	require.Equal(s.t, jobv1.TransactionState_TRANSACTION_STATE_PREPARED, listed.GetState())
	require.NotNil(s.t, orphan, "so is one that no checkpoint lists")
	for _, id := range []string{listed.GetId(), orphan.GetId()} {
		for _, commit := range []bool{false, true} {
			_, err := other.ResolveTransaction(s.ctx, operator.Resolution{ID: id, Commit: commit, Force: true, Scope: share(1)})
			require.ErrorIs(s.t, err, sinks.ErrNotFound, "another subtask does not know which checkpoint lists transaction %s", id)
		}
	}

	_, err = hand.ResolveTransaction(s.ctx, operator.Resolution{ID: orphan.GetId(), Commit: false, Restored: restored, Scope: share(0)})
	require.NoError(s.t, err, "nobody else has ended it")
	for i := range 2 {
		already, err := hand.ResolveTransaction(s.ctx, operator.Resolution{ID: listed.GetId(), Commit: true, Restored: restored, Scope: share(0)})
		require.NoError(s.t, err)
		require.Equal(s.t, i > 0, already, "ending a transaction a second time finds it ended")
	}
	_, err = hand.ResolveTransaction(s.ctx, operator.Resolution{ID: listed.GetId(), Commit: false, Force: true, Restored: restored, Scope: share(0)})
	require.Error(s.t, err, "what is committed cannot be aborted")
	s.visible(1)
	s.byHandOfRunning(hands, writers, share)
}

// byHandOfRunning asks every subtask to end what one of them has prepared; it is committed all the same.
func (s *suite) byHandOfRunning(hands []operator.TransactionInspector, writers []*Attempt[int], share func(int) operator.Scope) {
	const owner = 1
	for subtask, a := range writers {
		c := a.Instance.(operator.Committer)
		require.NoError(s.t, c.RecoverCommit(s.ctx, nil))
		require.NoError(s.t, c.RecoverAbort(s.ctx, share(subtask)))
	}
	writers[owner].Write(3)
	writers[owner].Barrier(3)
	view, err := hands[owner].InspectTransactions(s.ctx, nil, share(owner))
	require.NoError(s.t, err)
	i := slices.IndexFunc(view.Transactions, func(t *jobv1.Transaction) bool {
		return t.GetCurrent() && t.GetState() == jobv1.TransactionState_TRANSACTION_STATE_PREPARED
	})
	require.GreaterOrEqual(s.t, i, 0, "what the running attempt has prepared is shown")
	for subtask, h := range hands {
		want := sinks.ErrNotFound
		if subtask == owner {
			want = operator.ErrSafeguard
		}
		_, err := h.ResolveTransaction(s.ctx, operator.Resolution{ID: view.Transactions[i].GetId(), Commit: false, Scope: share(subtask)})
		require.ErrorIs(s.t, err, want, "subtask %d", subtask)
	}
	writers[owner].Commit(3)
	s.visible(1, 3)
}
