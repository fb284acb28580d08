package fsm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
)

func durableGraph() *jobv1.Graph {
	g := testGraph()
	g.Vertices[1].Operators[1].DurableOutput = true
	return g
}

// replacement stands for transactions of subtask 1 of sink out.
func replacement(payload string, checkpoints ...uint64) *workerv1.Replacement {
	return &workerv1.Replacement{
		Uid: "out", Replaced: []*workerv1.ReplacedTransactions{{Subtask: 1, Checkpoints: checkpoints}},
		Committable: &snapshotv1.Committable{Checkpoint: checkpoints[0], Payload: []byte(payload)},
	}
}

func replaceAll(attempt, checkpoint uint64, rs ...*workerv1.Replacement) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_ReplaceTransactions{ReplaceTransactions: &raftv1.ReplaceTransactions{
		JobId: "j", Attempt: attempt, Checkpoint: checkpoint, Replacements: rs,
	}}}
}

// restoring is a world in which attempt 2 restores checkpoint 1, whose transactions are not settled.
func restoring(t *testing.T) *world {
	w := newWorld(t)
	job := record("j")
	job.Graph = durableGraph()
	w.must(createRecord(job))
	w.must(newAttempt(1))
	w.must(start(1))
	w.must(reserve(10))
	cp := checkpoint(1, 1)
	cp.Committables = 2
	w.must(complete(cp, goesOn))
	w.must(fail(1, 5, true))
	w.must(newAttempt(2))
	return w
}

func TestReplacementsAreRestoredUntilTheyAreSettled(t *testing.T) {
	w := restoring(t)
	one := replacement("a", 1)
	w.must(replaceAll(2, 1, one))
	w.repeated(replaceAll(2, 1, one))
	w.must(fail(2, 6, true))
	w.rejected(fsm.ErrStaleAttempt, replaceAll(2, 1, replacement("b", 1)))
	w.must(newAttempt(3))
	w.rejected(fsm.ErrStaleAttempt, replaceAll(2, 1, replacement("b", 1)))
	require.Len(t, w.job().GetRestore().GetReplacements(), 1)
	requireEqualProto(t, one, w.job().GetRestore().GetReplacements()[0])

	// The replacement is lost as well, and another sink's output is.
	other := replacement("c", 1)
	other.Uid = "audit"
	w.must(replaceAll(3, 1, replacement("b", 1), other))
	w.must(fail(3, 7, true))
	w.must(newAttempt(4))
	got := w.job().GetRestore().GetReplacements()
	require.Len(t, got, 2)
	require.Equal(t, "b", string(got[0].GetCommittable().GetPayload()))

	w.must(start(4))
	require.Nil(t, w.job().GetReplaced())
	w.rejected(fsm.ErrStarted, replaceAll(4, 1, replacement("d", 1)))
	w.must(fail(4, 8, true))
	w.must(newAttempt(5))
	require.True(t, w.job().GetRestore().GetSettled())
	require.Empty(t, w.job().GetRestore().GetReplacements())
	w.rejected(fsm.ErrInvalid, replaceAll(5, 1, replacement("e", 1)))
}

func TestReplacementsThatMakeNoSense(t *testing.T) {
	w := restoring(t)
	w.rejected(fsm.ErrInvalid, replaceAll(2, 7, replacement("a", 1)))
	w.rejected(fsm.ErrInvalid, replaceAll(2, 1, &workerv1.Replacement{Uid: "out"}))
	w.must(replaceAll(2, 1, replacement("a", 1, 2)))
	w.rejected(fsm.ErrInvalid, replaceAll(2, 1, replacement("b", 2, 3)))
	w.must(replaceAll(2, 1, replacement("b", 1, 2, 3)))
	require.Len(t, w.job().GetReplaced().GetReplacements(), 1)
}

func TestReplacementsInASettlingAttempt(t *testing.T) {
	w := restoring(t)
	w.must(end("r", canceled))
	w.rejected(fsm.ErrJobEnding, replaceAll(2, 1, replacement("a", 1)))
	w.must(settlingAttempt(3))
	w.must(replaceAll(3, 1, replacement("a", 1)))
	w.must(settlingAttempt(4))
	require.Len(t, w.job().GetRestore().GetReplacements(), 1)
	w.must(start(4))
	w.must(result(goesOn, ""))
	require.Nil(t, w.job().GetReplaced())
}

// An attempt that was never started may have written lost output again, and then its ids have to be fenced.
func TestAttemptsThatMayHaveRewrittenAreFenced(t *testing.T) {
	attempts := func(w *world) (ns []uint64) {
		for _, f := range w.job().GetUnfenced() {
			ns = append(ns, f.GetAttempt())
		}
		return ns
	}
	w := restoring(t)
	w.must(newAttempt(3))
	require.Equal(t, []uint64{1, 2}, attempts(w))
	require.Len(t, w.job().GetUnfencedWorkers(), 2)
	w.must(end("r", canceled))
	w.must(settlingAttempt(4))
	w.must(settlingAttempt(5))
	require.Equal(t, []uint64{1, 2, 3, 4}, attempts(w))
	w.must(start(5))
	w.must(settlingAttempt(6))
	require.Equal(t, []uint64{1, 2, 3, 4}, attempts(w), "its restore point was settled before it was started")

	plain := newWorld(t)
	plain.must(create("j"))
	plain.must(newAttempt(1))
	plain.must(newAttempt(2))
	require.Empty(t, attempts(plain))
}

func TestDurableOutputNeedsALevel(t *testing.T) {
	job := record("j")
	require.LessOrEqual(t, fsm.LevelOf(createRecord(job)), uint32(fsm.FirstLevel))
	job.Graph = durableGraph()
	require.EqualValues(t, 19, fsm.LevelOf(createRecord(job)))
}
