package checkpoint_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
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
		h.acked(want - 1)
		require.Equal(t, want, h.trigger())
		none[checkpoint.ReserveIDs](h)
	}
	h.commit(44)
	h.acked(44)
	require.Equal(t, uint64(45), h.trigger())
	require.Equal(t, uint64(56), take[checkpoint.ReserveIDs](h).Limit, "two are left")
	for want := uint64(46); want <= 47; want++ {
		h.commit(want - 1)
		h.acked(want - 1)
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
	h.now = h.now.Add(400 * time.Millisecond)
	h.send(checkpoint.Ack{
		Checkpoint: id, Handle: handle(h.cfg.Tasks[0].ID, file(id, "a")), DeltaBytes: 100,
		Alignment: 300 * time.Millisecond, Sync: 2 * time.Millisecond, Async: 50 * time.Millisecond,
	})
	h.now = h.now.Add(600 * time.Millisecond)
	want := &jobv1.Checkpoint{
		Id: id, Attempt: 3, State: "in progress", TriggeredAtMs: epoch.UnixMilli() + 1000, DurationMs: 1000,
		DeltaBytes: 100, TotalBytes: 105, WaitingFor: []string{"in[1]", "out[0]", "out[1]"},
		AlignmentMs: 300, SyncMs: 2, AsyncMs: 50, SlowestTask: "in[0]", SlowestMs: 400,
	}
	require.Empty(t, cmp.Diff([]*jobv1.Checkpoint{want}, h.statistics(), protocmp.Transform()))
	h.ackAll(id)
	require.Equal(t, []string{"the metadata file"}, h.statistics()[0].GetWaitingFor())
	h.send(checkpoint.MetadataWritten{Checkpoint: id, Metadata: metadata(id)})
	require.Equal(t, []string{"the log"}, h.statistics()[0].GetWaitingFor())
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Committed})
	require.Equal(t, "completed", h.statistics()[1].GetState(), "behind the next one")
	require.Equal(t, uint64(1000), h.statistics()[1].GetDurationMs())
	require.Zero(t, h.statistics()[1].GetAgeMs())
	h.now = h.now.Add(3 * time.Second)
	require.Equal(t, uint64(3000), h.statistics()[1].GetAgeMs())
	require.Nil(t, h.statistics()[0].AgeMs, "it has not ended")
}

func TestStatisticsAreBounded(t *testing.T) {
	h := newHarness(t)
	for range 30 {
		id := h.trigger()
		h.commit(id)
		h.acked(id)
	}
	list := h.statistics()
	require.Len(t, list, 20)
	require.Equal(t, uint64(40), list[0].GetId())
}
