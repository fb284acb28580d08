// Package sinktest is the suite that every transactional sink must pass. It drives the operator instance that a task drives, against
// the real system, and looks at the outcome from outside.
package sinktest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// Output is one empty output to write integers to.
type Output struct {
	// Sink makes a sink for the output, as each process of a job does. Its transactions must outlive the checkpoint settings of
	// [Checkpoints].
	Sink func() sinks.Sink[int]
	// Read returns the visible integers, in the order in which one subtask wrote them.
	Read func(ctx context.Context) ([]int, error)
	// Settled waits until no transaction is open on the output.
	Settled func(ctx context.Context) error
	// Unordered tells that the system keeps no order, so that none is asked for.
	Unordered bool
}

// Checkpoints are the settings that the suite runs with.
func Checkpoints() graph.CheckpointConfig {
	return graph.CheckpointConfig{
		Enabled: true, Interval: time.Second, Timeout: 5 * time.Second, ToleratedFailures: 1, Retained: 3, RecoveryBudget: 5 * time.Second,
	}
}

// limit bounds each test.
const limit = time.Minute

// Run runs the suite. newOutput makes an output for one test; tests run in parallel.
//
// Each test is a rule that the sink must keep, and fails with the name of the rule. The sink is driven as the runtime does it, through its
// operator instance; an instance that is left alone in the middle of something stands for a process that has crashed or is frozen.
func Run(t *testing.T, newOutput func(t *testing.T) Output) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.check(t, newOutput(t), limit)
		})
	}
}

// rule is something that every transactional sink keeps.
type rule struct {
	name string
	test func(*suite)
}

var rules = []rule{
	{"visible only after the commit", (*suite).visibleAfterCommit},
	{"a notice may be late, repeated or find nothing", (*suite).repeatedNotices},
	{"an empty interval stores nothing", (*suite).emptyInterval},
	{"a completed checkpoint commits every earlier one", (*suite).cumulative},
	{"many checkpoints keep the order", (*suite).manyCheckpoints},
	{"another process commits a restored transaction", (*suite).resumed},
	{"a committed transaction may be restored again", (*suite).committedBeforeCrash},
	{"two restores from one checkpoint", (*suite).restoredTwice},
	{"a savepoint may list what was committed long ago", (*suite).oldSavepoint},
	{"what was not prepared is never visible", (*suite).unprepared},
	{"what was prepared later than the restore is ended", (*suite).preparedAfterRestore},
	{"close ends the current transaction only", (*suite).closeKeepsPrepared},
	{"an orderly close leaves nothing open", (*suite).closeEndsCurrent},
	{"a writer of a former attempt cannot disturb", (*suite).zombie},
	{"nor can one that wakes between two transactions", (*suite).zombieBetween},
	{"fewer subtasks end what former ones left", (*suite).scaledDown},
	{"more subtasks end what former ones left", (*suite).scaledUp},
	{"other jobs are left alone", (*suite).otherJob},
	{"other sinks of the job are left alone", (*suite).otherSink},
	{"two jobs may start from one savepoint", (*suite).twins},
	{"transactions can be looked at and ended by hand", (*suite).byHand},
	{"without transactions a flush makes records visible", (*suite).atLeastOnce},
}

func (r rule) check(t testing.TB, out Output, limit time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	r.test(&suite{t: t, ctx: ctx, out: out, job: "job-" + time.Now().Format("150405.000000000")})
}

type suite struct {
	t   testing.TB
	ctx context.Context
	out Output
	job string
}

// start opens an instance and recovers from the committables of a checkpoint, as a deployment does. Instances are closed at the end of
// the test: one that is not closed earlier stands for a crashed or frozen process.
func (s *suite) start(n uint64, guarantee graph.Guarantee, restored []*snapshotv1.Committable, former ...operator.FormerAttempt) *Attempt[int] {
	return s.startAs(n, 0, 1, guarantee, restored, former...)
}

func (s *suite) startAs(n uint64, subtask, parallelism int, guarantee graph.Guarantee, restored []*snapshotv1.Committable, former ...operator.FormerAttempt) *Attempt[int] {
	s.t.Helper()
	return Start[int](s.t, s.ctx, s.out.Sink(), Deployment{
		Job: s.job, Attempt: n, Subtask: subtask, Parallelism: parallelism, Guarantee: guarantee, Checkpoints: Checkpoints(),
		Restored: restored, Former: former,
	})
}

// visible checks what can be read once no transaction is open.
func (s *suite) visible(want ...int) {
	s.t.Helper()
	require.NoError(s.t, s.out.Settled(s.ctx))
	s.visibleNow(want...)
}

// visibleNow checks what can be read while transactions may be open. A commit is decided a little before its records can be read.
func (s *suite) visibleNow(want ...int) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		got, err := s.out.Read(s.ctx)
		require.NoError(s.t, err)
		slices.Sort(got)
		if len(got) >= len(want) {
			require.Equal(s.t, append([]int{}, want...), append([]int{}, got...))
			return
		}
		select {
		case <-s.ctx.Done():
			require.Equal(s.t, want, got)
		case <-tick.C:
		}
	}
}

func numbers(first, last int) []int {
	var out []int
	for n := first; n <= last; n++ {
		out = append(out, n)
	}
	return out
}

func (s *suite) visibleAfterCommit() {
	a := s.start(1, graph.ExactlyOnce, nil)
	a.Write(1, 2)
	require.Len(s.t, a.Barrier(1), 1)
	s.visibleNow()
	a.Commit(1)
	s.visible(1, 2)
}

func (s *suite) repeatedNotices() {
	a := s.start(1, graph.ExactlyOnce, nil)
	a.Commit(0)
	a.Write(1)
	a.Barrier(1)
	a.Commit(1)
	a.Commit(1)
	a.Write(2)
	a.Barrier(2)
	a.Commit(1)
	s.visibleNow(1)
	a.Commit(2)
	a.Commit(1)
	a.Commit(2)
	s.visible(1, 2)
}

func (s *suite) emptyInterval() {
	a := s.start(1, graph.ExactlyOnce, nil)
	require.Empty(s.t, a.Barrier(1))
	a.Commit(1)
	a.Write(1)
	require.Len(s.t, a.Barrier(2), 1)
	require.Len(s.t, a.Barrier(3), 1, "a transaction stays in the snapshots until its commit is confirmed")
	a.Commit(3)
	require.Empty(s.t, a.Barrier(4))
	a.Commit(4)
	s.visible(1)
}

func (s *suite) cumulative() {
	a := s.start(1, graph.ExactlyOnce, nil)
	for n := 1; n <= 3; n++ {
		a.Write(n)
		require.Len(s.t, a.Barrier(uint64(n)), n)
	}
	a.Write(4)
	a.Commit(3)
	s.visibleNow(1, 2, 3)
	a.Barrier(4)
	a.Commit(4)
	s.visible(1, 2, 3, 4)
}

func (s *suite) manyCheckpoints() {
	a := s.start(1, graph.ExactlyOnce, nil)
	const rounds = 12
	for n := 1; n <= rounds; n++ {
		a.Write(numbers(10*n, 10*n+9)...)
		a.Barrier(uint64(n))
		a.Commit(uint64(n))
	}
	require.NoError(s.t, s.out.Settled(s.ctx))
	got, err := s.out.Read(s.ctx)
	require.NoError(s.t, err)
	if s.out.Unordered {
		slices.Sort(got)
	}
	require.Equal(s.t, numbers(10, 10*rounds+9), got, "records of one subtask keep their order, over transactions too")
}

func (s *suite) resumed() {
	first := s.start(1, graph.ExactlyOnce, nil)
	first.Write(1, 2, 3)
	committables := first.Barrier(1)
	s.start(2, graph.ExactlyOnce, committables, Former(1))
	s.visible(1, 2, 3)
}

func (s *suite) committedBeforeCrash() {
	first := s.start(1, graph.ExactlyOnce, nil)
	first.Write(1)
	committables := first.Barrier(1)
	first.Commit(1)
	first.Write(2) // open at the crash
	second := s.start(2, graph.ExactlyOnce, committables, Former(1))
	second.Write(2)
	second.Barrier(2)
	second.Commit(2)
	s.visible(1, 2)
}

func (s *suite) restoredTwice() {
	first := s.start(1, graph.ExactlyOnce, nil)
	first.Write(1)
	committables := first.Barrier(1)
	second := s.start(2, graph.ExactlyOnce, committables, Former(1))
	second.Write(2)
	second.Barrier(2) // never completes
	third := s.start(3, graph.ExactlyOnce, committables, Former(1), Former(2))
	third.Write(2)
	third.Barrier(3)
	third.Commit(3)
	s.visible(1, 2)
}

func (s *suite) unprepared() {
	first := s.start(1, graph.ExactlyOnce, nil)
	first.Write(1)
	s.start(2, graph.ExactlyOnce, nil, Former(1))
	s.visible()
}

func (s *suite) preparedAfterRestore() {
	first := s.start(1, graph.ExactlyOnce, nil)
	first.Write(1)
	restored := first.Barrier(1)
	first.Write(2)
	first.Barrier(2) // its acknowledgement is lost
	second := s.start(2, graph.ExactlyOnce, restored, Former(1))
	s.visible(1)
	second.Write(2)
	second.Barrier(3)
	second.Commit(3)
	s.visible(1, 2)
}

func (s *suite) closeKeepsPrepared() {
	first := s.start(1, graph.ExactlyOnce, nil)
	first.Write(1)
	committables := first.Barrier(1)
	first.Write(2)
	first.Close()
	s.visibleNow()
	s.start(2, graph.ExactlyOnce, committables, Former(1))
	s.visible(1)
}

func (s *suite) zombie() {
	first := s.start(1, graph.ExactlyOnce, nil)
	first.Write(1)
	committables := first.Barrier(1)
	first.Write(2)
	second := s.start(2, graph.ExactlyOnce, committables, Former(1))
	second.Write(2)
	second.Barrier(2)
	second.Write(4)
	// The former attempt wakes: it may write, prepare and commit as it likes. Errors are welcome, effects are not.
	_ = first.Collector.Collect(3, operator.NoTimestamp)
	if finish, err := first.Instance.Snapshot(s.ctx, operator.Barrier{Checkpoint: 2}); err == nil && finish != nil {
		_, _ = finish(s.ctx)
	}
	done := make(chan error, 1)
	first.Notify(2, done)
	first.Drop()
	s.t.Logf("the former attempt's commit: %v", <-done)
	second.Barrier(3)
	second.Commit(3)
	s.visible(1, 2, 4)
}

func (s *suite) atLeastOnce() {
	if !s.out.Sink().Supports(graph.AtLeastOnce) {
		s.t.Skip("the sink gives exactly-once only")
	}
	a := s.start(1, graph.AtLeastOnce, nil)
	a.Write(1, 2)
	a.Barrier(1)
	s.visible(1, 2)
	a.Write(3)
	require.NoError(s.t, a.Instance.EndInput())
	s.visible(1, 2, 3)
	a.Close()
}
