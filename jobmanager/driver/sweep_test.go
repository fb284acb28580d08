package driver_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/jobmanager/driver"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/raftnode"
)

// swept has the job's second checkpoint complete, which needs a file of the first one, and lays old files around it. Both are retained.
func swept(t *testing.T) (f *fixture, orphans, others []string) {
	f = setup{graph: func(g *jobv1.Graph) { g.Checkpoints.Retained = 2 }}.begin(t)
	orphans = []string{
		"c1/jobs/gone/checkpoints/5/metadata",
		"c1/jobs/gone/state/1/v-0/u/5-0",
		"c1/jobs/j1/state/0/v-0/v/7-0", // of a former attempt
		"c1/jobs/j1/state/1/v-0/v/1-1", // of this one, before its newest checkpoint
	}
	needed := "c1/jobs/j1/state/1/v-0/v/1-0"
	others = []string{
		needed,
		"c1/jobs/j1/state/1/v-0/v/3-0", // being uploaded
		"c1/jobs/gone/notes.txt",
		"c1/jobs/gone/state/1/savepoint-gone-5/state/5-0",
		"c1/savepoints/savepoint-j1-1/metadata",
		"c1/artifacts/needed",
		"c2/jobs/other/state/1/v-0/u/1-0",
	}
	for _, name := range append(orphans[:len(orphans):len(orphans)], others...) {
		f.file(name, time.Now().Add(-2*time.Hour))
	}
	young := "c1/jobs/gone/state/1/v-0/u/6-0"
	f.file(young, time.Now())
	others = append(others, young)
	f.run()
	for n := uint64(1); n <= 2; n++ {
		f.waitFor(fmt.Sprintf("trigger %d", n))
		f.event(1, &workerv1.Event{Event: &workerv1.Event_CheckpointAck{CheckpointAck: &workerv1.CheckpointAck{
			Checkpoint: n, Handle: &snapshotv1.TaskHandle{Vertex: "v", Files: []*snapshotv1.FileReference{{Name: needed, Checkpoint: 1}}},
		}}})
		f.eventually("the checkpoint is complete", func() bool {
			last, ok := fsm.LastCheckpoint(f.record())
			return ok && last.GetId() == n
		})
		f.event(1, &workerv1.Event{Event: &workerv1.Event_Activity{Activity: &workerv1.Activity{SinceCheckpoint: n}}})
	}
	return f, orphans, others
}

// file writes a file on checkpoint storage that was changed last at a time.
func (f *fixture) file(name string, at time.Time) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(f.t, os.WriteFile(path, []byte("four"), 0o600))
	require.NoError(f.t, os.Chtimes(path, at, at))
}

func (f *fixture) requireFiles(names []string, there bool) {
	f.t.Helper()
	for _, n := range names {
		_, err := os.Stat(filepath.Join(f.dir, n))
		require.Equal(f.t, there, err == nil, "%s", n)
	}
}

func names(orphans []driver.Orphan) (out []string) {
	for _, o := range orphans {
		out = append(out, o.Name)
	}
	return out
}

func TestASweepTakesWhatNothingRefersTo(t *testing.T) {
	f, orphans, others := swept(t)
	found, err := f.manager.Sweep(t.Context(), time.Hour, true)
	require.NoError(t, err)
	require.Equal(t, orphans, names(found.Orphans))
	require.False(t, found.More)
	require.Empty(t, found.LeftAlone)
	for _, o := range found.Orphans {
		require.EqualValues(t, 4, o.Size)
		require.InDelta(t, 2*time.Hour, o.Age, float64(time.Minute))
		require.NotEmpty(t, o.Reason)
	}
	f.requireFiles(orphans, true)

	done, err := f.manager.Sweep(t.Context(), time.Hour, false)
	require.NoError(t, err)
	require.Equal(t, orphans, names(done.Orphans))
	for _, o := range done.Orphans {
		require.NoError(t, o.Err)
	}
	f.requireFiles(orphans, false)
	f.requireFiles(others, true)
	again, err := f.manager.Sweep(t.Context(), time.Hour, false)
	require.NoError(t, err)
	require.Empty(t, again.Orphans)
}

func TestASweepLeavesAJobAloneWhoseCheckpointCannotBeRead(t *testing.T) {
	f, orphans, _ := swept(t)
	last, _ := fsm.LastCheckpoint(f.record())
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, last.GetMetadata().GetName()), []byte("damaged"), 0o600))
	done, err := f.manager.Sweep(t.Context(), time.Hour, false)
	require.NoError(t, err)
	require.Equal(t, orphans[:2], names(done.Orphans), "those of another job")
	require.Len(t, done.LeftAlone, 1)
	require.Contains(t, done.LeftAlone[0], "files of job j1: "+last.GetMetadata().GetName())
	f.requireFiles(orphans[2:], true)
}

func TestASweepEndsWithTheLeadership(t *testing.T) {
	f, orphans, _ := swept(t)
	f.set(func() { f.log.barrier = func(context.Context) error { return raftnode.ErrNotLeader } })
	_, err := f.manager.Sweep(t.Context(), time.Hour, false)
	require.ErrorIs(t, err, raftnode.ErrNotLeader)
	// A successor may lead by the time of the first deletion.
	asked := 0
	f.set(func() {
		f.log.barrier = func(context.Context) error {
			if asked++; asked > 1 {
				return raftnode.ErrNotLeader
			}
			return nil
		}
	})
	_, err = f.manager.Sweep(t.Context(), time.Hour, false)
	require.ErrorIs(t, err, raftnode.ErrNotLeader)
	f.requireFiles(orphans, true)
}
