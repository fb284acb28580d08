package checkpoint_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"google.golang.org/protobuf/testing/protocmp"
)

func task(vertex string, files ...*snapshotv1.FileReference) *snapshotv1.TaskHandle {
	return handle(checkpoint.TaskID{Vertex: vertex}, files...)
}

func named(name string, n uint64) *snapshotv1.FileReference {
	return &snapshotv1.FileReference{Name: name, Size: 100, Checkpoint: n}
}

func TestFilesAreListedOnceInOrder(t *testing.T) {
	b := task("b", named("y", 2), named("x", 1))
	b.Spilled = &snapshotv1.Segment{Name: "s", Size: 5, Checkpoint: 3}
	got := checkpoint.Files([]*snapshotv1.TaskHandle{task("a", named("x", 1)), b})
	want := []*snapshotv1.FileReference{{Name: "s", Size: 5, Checkpoint: 3}, named("x", 1), named("y", 2)}
	require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))
	require.Len(t, b.GetFiles(), 2)
	require.Equal(t, uint64(215), checkpoint.TotalBytes([]*snapshotv1.TaskHandle{task("a", named("x", 1)), b}))
}

func TestOriginsContainTheCheckpointItself(t *testing.T) {
	require.Equal(t, []uint64{7}, checkpoint.Origins(7, nil))
	got := checkpoint.Origins(7, []*snapshotv1.TaskHandle{task("a", named("x", 7), named("y", 2)), task("b", named("z", 2), named("w", 5))})
	require.Equal(t, []uint64{2, 5, 7}, got)
}

func meta(handles ...*snapshotv1.TaskHandle) *snapshotv1.CheckpointMetadata {
	return &snapshotv1.CheckpointMetadata{Tasks: handles}
}

func TestOnlyFilesThatNothingRetainedNeedsAreUnreferenced(t *testing.T) {
	dropped := []*snapshotv1.CheckpointMetadata{
		meta(task("a", named("c/jobs/j/shared", 1), named("c/jobs/j/old", 1))),
		meta(task("a", named("c/jobs/j/old", 1), named("c/jobs/j/older", 1))),
		meta(task("b", named("c/jobs/k/other-job", 1), named("file:///savepoint/x", 1), named("c/jobs/jj/similar", 1))),
	}
	retained := []*snapshotv1.CheckpointMetadata{meta(task("z", named("c/jobs/j/shared", 1)))}
	require.Equal(t, []string{"c/jobs/j/old", "c/jobs/j/older"}, checkpoint.Unreferenced("c/jobs/j/", dropped, retained))
	require.Empty(t, checkpoint.Unreferenced("c/jobs/j/", nil, retained))
}

func TestMetadataDescribesTheCheckpoint(t *testing.T) {
	handles := []*snapshotv1.TaskHandle{task("a"), task("b")}
	got := checkpoint.BuildMetadata(testConfig(), 12, epoch, handles)
	want := &snapshotv1.CheckpointMetadata{
		FormatVersion: 1, ClusterId: "c", JobId: "j", Attempt: 3, Checkpoint: 12, Fingerprint: "f", MaxParallelism: 128,
		TriggeredAtMs: epoch.UnixMilli(), Tasks: handles,
	}
	require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))
}

func TestTaskNames(t *testing.T) {
	require.Equal(t, "totals[3]", checkpoint.TaskID{Vertex: "totals", Subtask: 3}.String())
}
