package checkpoint_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"google.golang.org/protobuf/testing/protocmp"
)

func TestOneCheckpointFromTriggerToSettled(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.Activity{Since: 10})
	h.expect()
	h.pass(time.Second)
	h.expect(checkpoint.Trigger{Checkpoint: 11})

	h.now = h.now.Add(40 * time.Millisecond)
	h.ackAll(11, file(11, "a"), file(9, "b"))
	written := take[checkpoint.WriteMetadata](h)
	require.Equal(t, "c/jobs/j/checkpoints/11/metadata", written.Name)
	require.Equal(t, uint64(11), written.Metadata.GetCheckpoint())
	require.Len(t, written.Metadata.GetTasks(), 4)
	h.expect()

	h.send(checkpoint.MetadataWritten{Checkpoint: 11, Metadata: metadata(11)})
	proposed := take[checkpoint.Propose](h)
	require.Equal(t, jobv1.JobState_JOB_STATE_UNSPECIFIED, proposed.Target)
	require.Empty(t, cmp.Diff(&raftv1.CompletedCheckpoint{
		Id: 11, Attempt: 3, Metadata: metadata(11), Origins: []uint64{9, 11},
		TriggeredAtMs: epoch.UnixMilli() + 1000, DurationMs: 40, DeltaBytes: 28, TotalBytes: 220, Committables: 4,
	}, proposed.Completed, protocmp.Transform()))
	h.expect()

	h.send(checkpoint.Decided{Checkpoint: 11, Outcome: checkpoint.Committed})
	h.expect(checkpoint.Notify{Checkpoint: 11, Workers: []string{"w1", "w2"}})
	h.acked(11)
	h.pass(time.Minute)
	h.expect(checkpoint.Settle{Checkpoint: 11})
}

func TestIdleJobIsLeftAlone(t *testing.T) {
	h := newHarness(t)
	_, ok := h.c.Deadline()
	require.False(t, ok)
	h.pass(time.Hour)
	h.expect()
}

func TestActivityBeforeTheCompletedSnapshotIsNoReason(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.Activity{Since: 10})
	h.pass(time.Second)
	h.ignore()
	h.send(checkpoint.Activity{Since: 10}) // late, and covered by checkpoint 11
	h.commit(11)
	h.acked(11)
	h.pass(time.Hour)
	none[checkpoint.Trigger](h)
	h.send(checkpoint.Activity{Since: 11})
	require.Equal(t, uint64(12), take[checkpoint.Trigger](h).Checkpoint)
}

func TestActivityWhileACheckpointRunsLeadsToAnother(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.Activity{Since: 10})
	h.pass(time.Second)
	h.ignore()
	h.send(checkpoint.Activity{Since: 11})
	h.commit(11)
	h.acked(11)
	h.pass(time.Second)
	require.Equal(t, uint64(12), take[checkpoint.Trigger](h).Checkpoint)
}

func TestActivityOfAnAbortedCheckpointCounts(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.Activity{Since: 10})
	h.pass(time.Second)
	h.send(checkpoint.Decline{Checkpoint: 11, Reason: "disk full"})
	h.ignore()
	h.pass(time.Second)
	require.Equal(t, uint64(12), take[checkpoint.Trigger](h).Checkpoint, "what 11 was to hold is not yet safe")
}

func TestIntervalRunsFromTriggerToTrigger(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.pass(900 * time.Millisecond)
	h.commit(id)
	h.acked(id)
	h.pass(99 * time.Millisecond)
	none[checkpoint.Trigger](h)
	h.pass(time.Millisecond)
	take[checkpoint.Trigger](h)
}

func TestActivityAfterIdlenessIsCheckpointedAtOnce(t *testing.T) {
	h := newHarness(t)
	h.pass(time.Hour)
	h.send(checkpoint.Activity{Since: 0})
	take[checkpoint.Trigger](h)
}

func TestMinimumPauseAfterALongCheckpoint(t *testing.T) {
	h := newHarness(t, func(c *checkpoint.Config) { c.MinPause = 500 * time.Millisecond })
	id := h.trigger()
	h.pass(3 * time.Second)
	h.commit(id)
	h.acked(id)
	h.pass(499 * time.Millisecond)
	none[checkpoint.Trigger](h)
	h.pass(time.Millisecond)
	take[checkpoint.Trigger](h)
}

func TestOneCheckpointInFlight(t *testing.T) {
	h := newHarness(t)
	h.trigger()
	h.pass(30 * time.Second)
	none[checkpoint.Trigger](h)
}

func TestFirstCheckpointOfANewJobIsTakenAtOnce(t *testing.T) {
	h := newHarness(t, initial)
	h.expect(checkpoint.Trigger{Checkpoint: 1})
	h.send(checkpoint.Decline{Checkpoint: 1, Reason: "x"})
	h.pass(time.Second)
	require.Equal(t, uint64(2), take[checkpoint.Trigger](h).Checkpoint, "and again when it failed")
	h.commit(2)
	h.acked(2)
	h.ignore()
	h.pass(time.Second)
	h.expect()
}

func TestCheckpointsAreFullUntilOneIsCompleted(t *testing.T) {
	h := newHarness(t, func(c *checkpoint.Config) { c.Initial, c.Full = true, true })
	h.expect(checkpoint.Trigger{Checkpoint: 11, Full: true})
	h.send(checkpoint.Decline{Checkpoint: 11, Reason: "x"})
	h.pass(time.Second)
	require.True(t, take[checkpoint.Trigger](h).Full)
	h.commit(12)
	h.acked(12)
	h.send(checkpoint.Activity{Since: 12})
	h.pass(time.Second)
	require.False(t, take[checkpoint.Trigger](h).Full)
}

func TestNoRegularCheckpointWhenTurnedOff(t *testing.T) {
	h := newHarness(t, initial, func(c *checkpoint.Config) { c.Periodic = false })
	h.send(checkpoint.Activity{Since: 0})
	h.pass(time.Hour)
	h.expect()
	h.send(checkpoint.RequestSavepoint{RequestID: "p"})
	h.expect(checkpoint.Trigger{Checkpoint: 1})
}

func TestTimeoutNamesTheSlowTasks(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.send(checkpoint.Ack{Checkpoint: id, Handle: handle(checkpoint.TaskID{Vertex: "in"})})
	h.pass(time.Minute - time.Millisecond)
	h.expect()
	h.pass(time.Millisecond)
	h.expect(checkpoint.Abort{Checkpoint: id}, checkpoint.Trigger{Checkpoint: id + 1})
	require.Equal(t, "timed out after 1m0s waiting for 3 of 4 tasks: in[1], out[0], out[1]", h.statistics()[1].GetFailure())
}

func TestSlowTasksAreNotAllListed(t *testing.T) {
	h := newHarness(t, func(c *checkpoint.Config) {
		c.Tasks = nil
		for i := range uint32(8) {
			c.Tasks = append(c.Tasks, checkpoint.Task{ID: checkpoint.TaskID{Vertex: "v", Subtask: i}, Source: true, Worker: "w1"})
		}
	})
	h.trigger()
	h.pass(time.Minute)
	require.Contains(t, h.statistics()[1].GetFailure(), "waiting for 8 of 8 tasks: v[0], v[1], v[2], v[3], v[4] and 3 more")
}

func TestTimeoutCoversTheMetadata(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.ackAll(id)
	h.pass(time.Minute)
	take[checkpoint.Abort](h)
	h.send(checkpoint.MetadataWritten{Checkpoint: id, Metadata: metadata(id)})
	none[checkpoint.Propose](h)
}

func TestProposedCheckpointHasNoTimeout(t *testing.T) {
	h := newHarness(t)
	h.propose(h.trigger())
	h.pass(time.Hour)
	h.expect()
}

func TestUnknownOutcomeNeitherNotifiesNorDiscards(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.propose(id, file(id, "a"))
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Unknown, Reason: "leadership lost"})
	h.pass(time.Hour)
	h.send(checkpoint.Interrupted{Reason: "x"})
	h.expect()
	require.Equal(t, []string{"the log to tell whether the checkpoint is completed"}, h.statistics()[0].GetWaitingFor())
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Committed})
	require.Equal(t, id, take[checkpoint.Notify](h).Checkpoint)
	none[checkpoint.Discard](h)
}

func TestRejectedCheckpointIsNeverNotified(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.propose(id)
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Rejected, Reason: "missing origin"})
	h.expect(checkpoint.Abort{Checkpoint: id})
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Committed})
	h.expect()
	require.Contains(t, h.statistics()[0].GetFailure(), "missing origin")
}

func TestLateAndForeignAcksAreIgnored(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.send(checkpoint.Decline{Checkpoint: id, Reason: "x"})
	h.ignore()
	h.ackAll(id)
	h.expect()
	next := h.trigger()
	h.ackAll(id)
	h.ackAll(next + 1)
	h.send(checkpoint.Ack{Checkpoint: next, Handle: handle(checkpoint.TaskID{Vertex: "other"})})
	for range 4 {
		h.send(checkpoint.Ack{Checkpoint: next, Handle: handle(checkpoint.TaskID{Vertex: "in"})})
	}
	h.send(checkpoint.Ack{Checkpoint: next})
	h.expect()
	require.Len(t, h.statistics()[0].GetWaitingFor(), 3)
}

func TestLateDeclineIsIgnored(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.ackAll(id)
	h.ignore()
	h.send(checkpoint.Decline{Checkpoint: id, Reason: "x"}, checkpoint.Decline{Checkpoint: id - 1, Reason: "x"})
	h.send(checkpoint.MetadataFailed{Checkpoint: id - 1, Reason: "x"})
	h.expect()
}

func TestAnswersToNothingAreIgnored(t *testing.T) {
	h := newHarness(t)
	h.send(
		checkpoint.Decided{Checkpoint: 11, Outcome: checkpoint.Committed}, checkpoint.MetadataWritten{Checkpoint: 11},
		checkpoint.MetadataFailed{Checkpoint: 11}, checkpoint.Decline{Checkpoint: 11}, checkpoint.StopCancelled{},
		checkpoint.Interrupted{}, checkpoint.CommitAcked{Worker: "w1", Checkpoint: 99}, checkpoint.InputEnded{Worker: "nobody"},
	)
	h.expect()
}

func TestToleratedFailuresThenTheAttemptFails(t *testing.T) {
	h := newHarness(t)
	for range 3 {
		h.send(checkpoint.Decline{Checkpoint: h.trigger(), Task: checkpoint.TaskID{Vertex: "out", Subtask: 1}, Reason: "disk full"})
		none[checkpoint.FailAttempt](h)
	}
	h.ignore()
	id := h.trigger()
	h.send(checkpoint.Decline{Checkpoint: id, Task: checkpoint.TaskID{Vertex: "out", Subtask: 1}, Reason: "disk full"})
	h.expect(checkpoint.Abort{Checkpoint: id}, checkpoint.FailAttempt{Storage: true, Reason: "4 checkpoints failed in a row, 3 are " +
		"tolerated; the last one was checkpoint 14: out[1] could not store its snapshot: disk full"})
	_, ok := h.c.Deadline()
	require.False(t, ok)
	h.send(checkpoint.Activity{Since: 100})
	h.expect()
}

func TestFailuresMustBeConsecutive(t *testing.T) {
	h := newHarness(t)
	for range 3 {
		for range 3 {
			h.send(checkpoint.MetadataFailed{Checkpoint: h.trigger(), Reason: "not asked for"})
			h.send(checkpoint.Decline{Checkpoint: h.statistics()[0].GetId(), Reason: "disk full"})
		}
		id := h.trigger()
		h.commit(id)
		h.acked(id)
	}
	none[checkpoint.FailAttempt](h)
}

func TestFailureIsStorageOnlyWhenAllWere(t *testing.T) {
	h := newHarness(t, func(c *checkpoint.Config) { c.ToleratedFailures = 1 })
	id := h.trigger()
	h.pass(time.Minute)
	h.ignore()
	h.ackAll(id + 1)
	h.send(checkpoint.MetadataFailed{Checkpoint: id + 1, Reason: "disk full"})
	f := take[checkpoint.FailAttempt](h)
	require.False(t, f.Storage)
	require.Contains(t, f.Reason, "metadata could not be written: disk full")
}

func TestNoFailureTolerated(t *testing.T) {
	h := newHarness(t, func(c *checkpoint.Config) { c.ToleratedFailures = 0 })
	h.send(checkpoint.Decline{Checkpoint: h.trigger(), Task: checkpoint.TaskID{Vertex: "in"}, Reason: "x"})
	require.Equal(t, "checkpoint 11: in[0] could not store its snapshot: x", take[checkpoint.FailAttempt](h).Reason)
}

func TestInterruptionsAreNotCounted(t *testing.T) {
	h := newHarness(t)
	for range 10 {
		id := h.trigger()
		h.send(checkpoint.Interrupted{Reason: "session broke"})
		require.Equal(t, id, take[checkpoint.Abort](h).Checkpoint)
	}
	none[checkpoint.FailAttempt](h)
	require.Equal(t, "session broke", h.statistics()[0].GetFailure())
}

func TestNoticeIsRepeatedUntilAcknowledged(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.Activity{})
	h.pass(time.Second)
	h.commit(11)
	h.ignore()
	h.pass(2 * time.Second)
	h.expect(checkpoint.Notify{Checkpoint: 11, Workers: []string{"w1", "w2"}}, checkpoint.Notify{Checkpoint: 11, Workers: []string{"w1", "w2"}})
	h.send(checkpoint.CommitAcked{Worker: "w1", Checkpoint: 11})
	h.pass(time.Second)
	h.expect(checkpoint.Notify{Checkpoint: 11, Workers: []string{"w2"}})
	h.send(checkpoint.CommitAcked{Worker: "w2", Checkpoint: 11})
	h.pass(5 * time.Second)
	h.expect()
}

func TestCommitOfWhatIsNotCompletedIsNotBelieved(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.acked(id)
	h.commit(id)
	require.Equal(t, []string{"w1", "w2"}, take[checkpoint.Notify](h).Workers)
}

func TestCommitsAreCumulative(t *testing.T) {
	h := newHarness(t)
	first := h.trigger()
	h.commit(first)
	second := h.trigger()
	h.ignore()
	h.commit(second)
	h.expect(checkpoint.Notify{Checkpoint: second, Workers: []string{"w1", "w2"}})
	h.acked(second)
	h.pass(20 * time.Second)
	require.Equal(t, second, take[checkpoint.Settle](h).Checkpoint)
}

func TestSettlingIsBatched(t *testing.T) {
	h := newHarness(t)
	settled := 0
	for range 60 {
		id := h.trigger()
		h.commit(id)
		h.acked(id)
		for _, e := range h.effects {
			if _, ok := e.(checkpoint.Settle); ok {
				settled++
			}
		}
		h.ignore()
	}
	require.InDelta(t, 6, settled, 1, "within 60 s")
}

func TestNothingToSettleWithoutTransactions(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	for _, task := range h.cfg.Tasks {
		a := handle(task.ID)
		a.Committables = 0
		h.send(checkpoint.Ack{Checkpoint: id, Handle: a})
	}
	h.send(checkpoint.MetadataWritten{Checkpoint: id, Metadata: metadata(id)})
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Committed})
	h.acked(id)
	h.ignore()
	h.send(checkpoint.RequestStop{RequestID: "s"})
	h.pass(time.Minute)
	none[checkpoint.Settle](h)
}

func TestIDsAreReservedInTime(t *testing.T) {
	h := newHarness(t, func(c *checkpoint.Config) { c.FirstID, c.Limit, c.Reserve = 11, 11, 8 })
	h.expect(checkpoint.ReserveIDs{Limit: 19})
	h.send(checkpoint.Activity{})
	h.pass(time.Minute)
	h.expect()
	h.send(checkpoint.IDsReserved{First: 40, Limit: 48})
	h.expect(checkpoint.Trigger{Checkpoint: 40})
	for want := uint64(41); want <= 44; want++ {
		h.commit(want - 1)
		require.Equal(t, want, h.trigger())
		none[checkpoint.ReserveIDs](h)
	}
	h.commit(44)
	require.Equal(t, uint64(45), h.trigger())
	require.Equal(t, uint64(56), take[checkpoint.ReserveIDs](h).Limit, "two are left")
	for want := uint64(46); want <= 47; want++ {
		h.commit(want - 1)
		require.Equal(t, want, h.trigger())
	}
	h.commit(47)
	h.acked(47)
	h.pass(time.Hour)
	none[checkpoint.Trigger](h)
	none[checkpoint.ReserveIDs](h)
}

func TestFirstIDIsBeyondTheRestoredOne(t *testing.T) {
	h := newHarness(t, func(c *checkpoint.Config) { c.FirstID = 5 })
	require.Equal(t, uint64(11), h.trigger())
}

func TestStatisticsOfARunningCheckpoint(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.send(checkpoint.Ack{Checkpoint: id, Handle: handle(h.cfg.Tasks[0].ID, file(id, "a")), DeltaBytes: 100})
	h.now = h.now.Add(time.Second)
	want := &jobv1.Checkpoint{
		Id: id, Attempt: 3, State: "in progress", TriggeredAtMs: epoch.UnixMilli() + 1000, DurationMs: 1000,
		DeltaBytes: 100, TotalBytes: 105, WaitingFor: []string{"in[1]", "out[0]", "out[1]"},
	}
	require.Empty(t, cmp.Diff([]*jobv1.Checkpoint{want}, h.statistics(), protocmp.Transform()))
	h.ackAll(id)
	require.Equal(t, []string{"the metadata file"}, h.statistics()[0].GetWaitingFor())
	h.send(checkpoint.MetadataWritten{Checkpoint: id, Metadata: metadata(id)})
	require.Equal(t, []string{"the log"}, h.statistics()[0].GetWaitingFor())
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Committed})
	require.Equal(t, "completed", h.statistics()[1].GetState(), "behind the next one")
	require.Equal(t, uint64(1000), h.statistics()[1].GetDurationMs())
}

func TestStatisticsAreBounded(t *testing.T) {
	h := newHarness(t)
	for range 30 {
		h.commit(h.trigger())
	}
	list := h.statistics()
	require.Len(t, list, 20)
	require.Equal(t, uint64(40), list[0].GetId())
}

func TestUnusedFilesOfFailedCheckpointsAreDiscarded(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.send(checkpoint.Ack{Checkpoint: id, Handle: handle(h.cfg.Tasks[0].ID, file(id, "mine"), file(9, "older"))})
	h.send(checkpoint.Decline{Checkpoint: id, Reason: "x"})
	h.send(checkpoint.Ack{Checkpoint: id, Handle: handle(h.cfg.Tasks[1].ID, file(id, "late"))})
	none[checkpoint.Discard](h)
	next := h.trigger()
	h.commit(next, file(next, "a"))
	require.Equal(t, []string{"mine-11", "late-11"}, take[checkpoint.Discard](h).Files)
	h.send(checkpoint.Ack{Checkpoint: id, Handle: handle(h.cfg.Tasks[2].ID, file(id, "very late"))})
	require.Equal(t, []string{"very late-11"}, take[checkpoint.Discard](h).Files)
	h.ackAll(next, file(next, "a"))
	none[checkpoint.Discard](h)
}

func TestUnusedMetadataIsDiscarded(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.propose(id)
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Rejected, Reason: "x"})
	next := h.trigger()
	h.commit(next)
	require.Equal(t, []string{metadata(id).GetName()}, take[checkpoint.Discard](h).Files)
}

func TestCheckpointMustNotNeedUnprotectedFiles(t *testing.T) {
	h := newHarness(t, func(c *checkpoint.Config) { c.Retained = 1 })
	first := h.trigger()
	h.commit(first, file(first, "a"))
	second := h.trigger()
	h.commit(second, file(first, "a"), file(second, "b"))
	third := h.trigger()
	h.commit(third, file(second, "b"), file(10, "restored"))
	fourth := h.trigger()
	h.ignore()
	h.ackAll(fourth, file(first, "a"))
	none[checkpoint.WriteMetadata](h)
	take[checkpoint.Abort](h)
	require.Contains(t, h.statistics()[0].GetFailure(), "it needs a-11, which no retained checkpoint protects")
	h.commit(h.trigger(), file(second, "b"))
}

func TestSpilledSnapshotIsAFile(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	for i, task := range h.cfg.Tasks {
		a := handle(task.ID)
		if i == 0 {
			a.Snapshot, a.Spilled = nil, &snapshotv1.Segment{Name: "spilled", Size: 1000, Checkpoint: id}
		}
		h.send(checkpoint.Ack{Checkpoint: id, Handle: a})
	}
	h.send(checkpoint.MetadataWritten{Checkpoint: id, Metadata: metadata(id)})
	require.Equal(t, uint64(1015), take[checkpoint.Propose](h).Completed.GetTotalBytes())
}
