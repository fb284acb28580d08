package jobmanager_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager/driver"
	"github.com/weir-stream/weir/statebackend/blob"
)

// runningJob starts a cluster of one JobManager and two TaskManagers with a job that has completed checkpoints.
func runningJob(t *testing.T) (*cluster, []*fakeTM, string) {
	t.Helper()
	c := newCluster(t, 1)
	tms := []*fakeTM{c.fakes.start("tm1", 1, c.addresses), c.fakes.start("tm2", 1, c.addresses)}
	c.waitForTaskManagers(2)
	id := c.submit("totals")
	c.waitFor(id, "two checkpoints are complete", func(j *jobv1.Job) bool { return j.GetCompletedCheckpoints() >= 2 })
	return c, tms, id
}

func (c *cluster) files(prefix string) []string {
	var names []string
	for a, err := range c.bucket.List(context.Background(), prefix) {
		require.NoError(c.t, err)
		names = append(names, a.Name)
	}
	return names
}

func TestDeploysAndCheckpoints(t *testing.T) {
	c, _, id := runningJob(t)
	job := c.job(id)
	require.Equal(t, jobv1.JobState_JOB_STATE_RUNNING, job.GetState())
	require.True(t, job.GetPrepared())
	require.EqualValues(t, 1, job.GetAttempt())
	require.Len(t, job.GetTasks(), 4)
	require.Equal(t, id, c.job("totals").GetId(), "a live job is found by its name")

	// Each TaskManager has one slot, so each runs one subtask of both vertices.
	c.fakes.set(func() {
		require.Len(t, c.fakes.prepares, 2)
		for _, p := range c.fakes.prepares {
			require.Len(t, p.GetTasks(), 2)
		}
	})
	require.Len(t, c.fakes.lastStart().GetWorkers(), 2)
	require.Len(t, c.fakes.lastStart().GetWorkers()[0].GetSlots(), 1, "one for the two tasks")

	list, err := c.jobs().ListCheckpoints(t.Context(), &jobv1.ListCheckpointsRequest{Job: id})
	require.NoError(t, err)
	require.NotEmpty(t, list.GetCheckpoints())
	jobs, err := c.jobs().ListJobs(t.Context(), &jobv1.ListJobsRequest{})
	require.NoError(t, err)
	require.Len(t, jobs.GetJobs(), 1)
	require.EqualValues(t, 2, jobs.GetTotalSlots())
	require.EqualValues(t, 0, jobs.GetFreeSlots())
	require.NotNil(t, jobs.GetJobs()[0].UncoveredMs)
	eventually(t, "a checkpoint covers what was there before", func() bool {
		before := c.job(id)
		now := c.job(id)
		return now.GetUncoveredMs() < before.GetUncoveredMs()
	})

	// What the workers were told is in the log, and its metadata is on storage.
	var last *jobv1.Checkpoint
	var md *snapshotv1.CheckpointMetadata
	eventually(t, "the last checkpoint is read before retention lets it go", func() bool {
		last = c.job(id).GetLastCheckpoint()
		var err error
		md, _, err = driver.ReadMetadata(t.Context(), c.bucket, blob.OpenURL, last.GetPath())
		return err == nil
	})
	require.Equal(t, last.GetId(), md.GetCheckpoint())
	require.Len(t, md.GetTasks(), 4)

	// Retention deletes what no kept checkpoint needs: 2 kept, at most one in progress and one about to be deleted.
	eventually(t, "old checkpoints are deleted", func() bool {
		return c.job(id).GetCompletedCheckpoints() > 8 && len(c.files(md.GetClusterId()+"/jobs/"+id+"/state/")) <= 4*4
	})
}

func TestCancelSettlesAndCleansUp(t *testing.T) {
	c, _, id := runningJob(t)
	_, err := c.jobs().CancelJob(t.Context(), &jobv1.CancelJobRequest{RequestId: "c1", Job: id})
	require.NoError(t, err)
	job := c.waitFor(id, "the job is canceled", inState(jobv1.JobState_JOB_STATE_CANCELED))
	require.Empty(t, job.GetUnsettled())

	// A settling attempt has fenced the ids of attempt 1.
	settling := c.fakes.lastPrepare()
	require.True(t, settling.GetSettleOnly())
	require.EqualValues(t, 2, settling.GetAttempt())
	require.NotZero(t, settling.GetRestore().GetCheckpoint())
	for _, task := range settling.GetTasks() {
		require.Equal(t, "out", task.GetVertex(), "only transactional sinks are prepared")
	}
	fence := c.fakes.lastStart().GetFence()
	require.Len(t, fence, 1)
	require.EqualValues(t, 1, fence[0].GetAttempt())
	require.EqualValues(t, 2, fence[0].GetSinks()[0].GetParallelism())

	eventually(t, "all files are deleted", func() bool { return len(c.files(settling.GetClusterId()+"/jobs/"+id+"/")) == 0 })
	_, err = c.jobs().CancelJob(t.Context(), &jobv1.CancelJobRequest{RequestId: "c2", Job: id})
	require.NoError(t, err, "canceling again is no error")
	_, err = c.jobs().StopJob(t.Context(), &jobv1.StopJobRequest{RequestId: "s1", Job: id})
	require.ErrorIs(t, err, grpcerr.ErrJobEnded)
}

func TestStopKeepsTheLastCheckpoint(t *testing.T) {
	c, _, id := runningJob(t)
	_, err := c.jobs().StopJob(t.Context(), &jobv1.StopJobRequest{RequestId: "s1", Job: "totals"})
	require.NoError(t, err)
	job := c.waitFor(id, "the job is stopped", inState(jobv1.JobState_JOB_STATE_STOPPED))
	require.EqualValues(t, 1, job.GetAttempt(), "workers that closed cleanly need no settling attempt")
	require.NotNil(t, job.GetLastCheckpoint())
	_, _, err = driver.ReadMetadata(t.Context(), c.bucket, blob.OpenURL, job.GetLastCheckpoint().GetPath())
	require.NoError(t, err)

	// A new job can start from it.
	resp, err := c.jobs().SubmitJob(t.Context(), &jobv1.SubmitJobRequest{
		RequestId: "again", Name: "totals", ArtifactSha256: job.GetArtifactSha256(), From: id + "@last",
	})
	require.NoError(t, err)
	c.waitFor(resp.GetJobId(), "the new job runs", inState(jobv1.JobState_JOB_STATE_RUNNING))
	restore := c.fakes.lastPrepare().GetRestore()
	require.Equal(t, job.GetLastCheckpoint().GetId(), restore.GetCheckpoint())
	require.True(t, restore.GetSettled())
}

func TestSavepointsAreSelfContained(t *testing.T) {
	c, _, id := runningJob(t)
	dir := "file://" + t.TempDir()
	sp, err := c.jobs().CreateSavepoint(t.Context(), &jobv1.CreateSavepointRequest{RequestId: "sp1", Job: id, Dir: dir})
	require.NoError(t, err)
	again, err := c.jobs().CreateSavepoint(t.Context(), &jobv1.CreateSavepointRequest{RequestId: "sp1", Job: id, Dir: dir})
	require.NoError(t, err)
	require.Equal(t, sp.GetPath(), again.GetPath())
	checkSavepoint(t, c, sp.GetPath())

	_, err = c.jobs().StopJob(t.Context(), &jobv1.StopJobRequest{RequestId: "s1", Job: id, SavepointDir: dir})
	require.NoError(t, err)
	job := c.waitFor(id, "the job is stopped", inState(jobv1.JobState_JOB_STATE_STOPPED))
	require.Contains(t, job.GetSavepointPath(), dir)
	md := checkSavepoint(t, c, job.GetSavepointPath())
	require.Equal(t, job.GetLastCheckpoint().GetId(), md, "output ends exactly at the savepoint")

	resp, err := c.jobs().SubmitJob(t.Context(), &jobv1.SubmitJobRequest{
		RequestId: "from", Name: "next", ArtifactSha256: job.GetArtifactSha256(), From: job.GetSavepointPath(),
	})
	require.NoError(t, err)
	c.waitFor(resp.GetJobId(), "the new job runs", inState(jobv1.JobState_JOB_STATE_RUNNING))
	require.True(t, c.fakes.lastPrepare().GetRestore().GetSavepoint())
}

func TestDamagedRestorePointIsRefused(t *testing.T) {
	c, _, id := runningJob(t)
	_, err := c.jobs().StopJob(t.Context(), &jobv1.StopJobRequest{RequestId: "s1", Job: id, SavepointDir: "file://" + t.TempDir()})
	require.NoError(t, err)
	job := c.waitFor(id, "the job is stopped", inState(jobv1.JobState_JOB_STATE_STOPPED))
	submit := func(from string) error {
		_, err := c.jobs().SubmitJob(t.Context(), &jobv1.SubmitJobRequest{
			RequestId: "from " + from, Name: "next", ArtifactSha256: job.GetArtifactSha256(), From: from,
		})
		return err
	}
	file := strings.TrimPrefix(job.GetSavepointPath(), "file://") + "/metadata"
	good, err := os.ReadFile(file)
	require.NoError(t, err)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		require.NoError(t, os.WriteFile(file, bad, 0o600))
		err := submit(job.GetSavepointPath())
		require.ErrorIs(t, err, grpcerr.ErrInvalid)
		require.ErrorContains(t, err, "/metadata is damaged")
		require.Equal(t, 1, strings.Count(err.Error(), job.GetSavepointPath()), err.Error())
	}

	// A whole file is not enough for JOB@CHECKPOINT: it must be the one that the log recorded.
	md, _, err := driver.ReadMetadata(t.Context(), c.bucket, blob.OpenURL, job.GetLastCheckpoint().GetPath())
	require.NoError(t, err)
	md.Attempt++
	other, err := checkpointfile.Encode(md)
	require.NoError(t, err)
	require.NoError(t, c.bucket.Delete(t.Context(), job.GetLastCheckpoint().GetPath()))
	require.ErrorContains(t, submit(id+"@last"), "is gone from checkpoint storage")
	require.NoError(t, c.bucket.Put(t.Context(), job.GetLastCheckpoint().GetPath(), bytes.NewReader(other)))
	require.ErrorContains(t, submit(id+"@"), "is damaged")
}

func TestFailedSavepointLeavesTheJobRunning(t *testing.T) {
	c, _, id := runningJob(t)
	_, err := c.jobs().StopJob(t.Context(), &jobv1.StopJobRequest{RequestId: "s1", Job: id, SavepointDir: "file:///proc/nowhere"})
	require.Error(t, err)
	before := c.job(id).GetCompletedCheckpoints()
	c.waitFor(id, "checkpoints go on", func(j *jobv1.Job) bool {
		return j.GetState() == jobv1.JobState_JOB_STATE_RUNNING && j.GetCompletedCheckpoints() > before+2
	})
}

func TestFinishesWhenTheInputEnds(t *testing.T) {
	c := newCluster(t, 1)
	c.fakes.ended = true
	c.fakes.start("tm1", 2, c.addresses)
	c.waitForTaskManagers(1)
	id := c.submit("bounded")
	job := c.waitFor(id, "the job is finished", inState(jobv1.JobState_JOB_STATE_FINISHED))
	require.EqualValues(t, 1, job.GetAttempt())
}

func TestRestartsFromTheLastCheckpoint(t *testing.T) {
	c, tms, id := runningJob(t)
	c.fakes.set(func() { c.fakes.silent = true })
	last := c.job(id).GetLastCheckpoint().GetId()
	tms[0].fail(id, 1, workerv1.FailureClass_FAILURE_CLASS_RESTART, "disk on fire")
	c.fakes.set(func() { c.fakes.silent = false })
	job := c.waitFor(id, "attempt 2 runs", func(j *jobv1.Job) bool {
		return j.GetAttempt() == 2 && j.GetState() == jobv1.JobState_JOB_STATE_RUNNING
	})
	require.EqualValues(t, 1, job.GetRestarts())
	require.Len(t, job.GetFailures(), 1)
	require.Contains(t, job.GetFailures()[0].GetMessage(), "disk on fire")
	require.Equal(t, "src[0]", job.GetFailures()[0].GetTask())
	restore := c.fakes.lastPrepare().GetRestore()
	require.GreaterOrEqual(t, restore.GetCheckpoint(), last)
	require.NotEmpty(t, c.fakes.lastStart().GetFence())
}

func TestFatalFailureFailsTheJob(t *testing.T) {
	c, tms, id := runningJob(t)
	tms[0].fail(id, 1, workerv1.FailureClass_FAILURE_CLASS_FATAL, "schema mismatch")
	job := c.waitFor(id, "the job has failed", inState(jobv1.JobState_JOB_STATE_FAILED))
	require.Contains(t, job.GetFailures()[0].GetMessage(), "schema mismatch")
	require.NotNil(t, job.GetLastCheckpoint(), "a failed job keeps its last checkpoint")
}

func TestLostTaskManagerIsReplaced(t *testing.T) {
	c, tms, id := runningJob(t)
	tms[0].kill()
	c.waitFor(id, "the job says what it lacks", func(j *jobv1.Job) bool {
		return j.GetState() == jobv1.JobState_JOB_STATE_RESTARTING && j.GetWaitingFor() != ""
	})
	c.fakes.start("tm3", 4, c.addresses)
	job := c.waitFor(id, "attempt 2 runs", func(j *jobv1.Job) bool {
		return j.GetAttempt() == 2 && j.GetState() == jobv1.JobState_JOB_STATE_RUNNING
	})
	require.Contains(t, job.GetFailures()[0].GetMessage(), "tm1")
}

func TestTaskManagerThatShutsDownCostsNoRestart(t *testing.T) {
	c, tms, id := runningJob(t)
	c.fakes.start("tm3", 1, c.addresses)
	c.waitForTaskManagers(3)
	tms[0].goodbye(id, 1)
	job := c.waitFor(id, "attempt 2 runs", func(j *jobv1.Job) bool {
		return j.GetAttempt() == 2 && j.GetState() == jobv1.JobState_JOB_STATE_RUNNING
	})
	for _, task := range job.GetTasks() {
		require.NotEqual(t, "tm1", task.GetTaskmanagerId(), "nothing is placed on a TaskManager that shuts down")
	}
	require.Contains(t, job.GetFailures()[0].GetMessage(), "shuts down")
	rec, ok := c.leader().server.View().Job(id)
	require.True(t, ok)
	require.Len(t, rec.GetRestartHistory(), 1)
	require.False(t, rec.GetRestartHistory()[0].GetCounted())
}

func TestProcessDeathExplainsWhatOthersSaw(t *testing.T) {
	c, tms, id := runningJob(t)
	tms[1].fail(id, 1, workerv1.FailureClass_FAILURE_CLASS_RESTART, "connection reset by peer")
	tms[0].exit(id, 1, 137, false, "out of memory")
	job := c.waitFor(id, "attempt 2 runs", func(j *jobv1.Job) bool { return j.GetAttempt() == 2 && j.GetPrepared() })
	require.NotEmpty(t, job.GetFailures())
}

// What breaks first in the others is the connection to the worker that fails, and the word of that may come before its own.
func TestACauseReplacesItsConsequences(t *testing.T) {
	c, tms, id := runningJob(t)
	tms[0].failsWhenStopped(&workerv1.TaskFailed{
		Vertex: "out", Class: workerv1.FailureClass_FAILURE_CLASS_UNAVAILABLE, Message: "connection refused",
	})
	tms[1].report(id, 1, &workerv1.TaskFailed{
		Vertex: "src", Class: workerv1.FailureClass_FAILURE_CLASS_RESTART, Message: "the connection broke", Consequence: true,
	})
	job := c.waitFor(id, "attempt 2 runs", func(j *jobv1.Job) bool {
		return j.GetAttempt() == 2 && j.GetState() == jobv1.JobState_JOB_STATE_RUNNING
	})
	require.Equal(t, "connection refused", job.GetFailures()[0].GetMessage())
	require.Equal(t, "out[0]", job.GetFailures()[0].GetTask())
	require.True(t, job.GetFailures()[0].GetUncounted())
	rec, ok := c.leader().server.View().Job(id)
	require.True(t, ok)
	require.False(t, rec.GetRestartHistory()[0].GetCounted(), "that nobody answers uses up none of the budget")
}

func TestBrokenSessionIsResumed(t *testing.T) {
	c, tms, id := runningJob(t)
	tms[0].drop()
	before := c.job(id).GetCompletedCheckpoints()
	job := c.waitFor(id, "checkpoints go on", func(j *jobv1.Job) bool { return j.GetCompletedCheckpoints() > before+2 })
	require.EqualValues(t, 1, job.GetAttempt())
}

func TestRestartedLeaderResumesTheJob(t *testing.T) {
	c, tms, id := runningJob(t)
	before := c.job(id)
	c.members[0].stop()
	c.members[0].start()
	job := c.waitFor(id, "checkpoints go on", func(j *jobv1.Job) bool { return j.GetCompletedCheckpoints() > before.GetCompletedCheckpoints()+2 })
	require.Greater(t, job.GetLastCheckpoint().GetId(), before.GetLastCheckpoint().GetId(), "ids grow across leaders")
	require.EqualValues(t, 1, job.GetAttempt(), "the tasks run on")

	for _, tm := range tms {
		tm.kill()
	}
	c.members[0].stop()
	c.members[0].start()
	for _, tm := range tms {
		c.fakes.start(tm.id, tm.slots, c.addresses)
	}
	again := c.waitFor(id, "the job runs again", func(j *jobv1.Job) bool {
		return j.GetAttempt() == 2 && j.GetState() == jobv1.JobState_JOB_STATE_RUNNING && j.GetCompletedCheckpoints() > job.GetCompletedCheckpoints()
	})
	require.Greater(t, again.GetLastCheckpoint().GetId(), job.GetLastCheckpoint().GetId())
	require.GreaterOrEqual(t, c.fakes.lastPrepare().GetRestore().GetCheckpoint(), job.GetLastCheckpoint().GetId())
}

func TestRefusesBeforeAnythingChanges(t *testing.T) {
	c := newCluster(t, 1)
	jobs := c.jobs()
	_, err := jobs.GetJob(t.Context(), &jobv1.GetJobRequest{Job: "nope"})
	require.ErrorIs(t, err, grpcerr.ErrJobNotFound)
	_, err = jobs.SubmitJob(t.Context(), &jobv1.SubmitJobRequest{RequestId: "r", ArtifactSha256: "xyz"})
	require.ErrorIs(t, err, grpcerr.ErrInvalid)
	sha := c.upload([]byte("x1"))
	_, err = jobs.SubmitJob(t.Context(), &jobv1.SubmitJobRequest{RequestId: "r", ArtifactSha256: sha})
	require.ErrorIs(t, err, grpcerr.ErrNoTaskManager)

	stream, err := jobs.UploadArtifact(t.Context())
	require.NoError(t, err)
	wrong := "ab" + sha[2:]
	require.NoError(t, stream.Send(&jobv1.UploadArtifactRequest{Sha256: wrong, Size: 2, Chunk: []byte("x1")}))
	_, err = stream.CloseAndRecv()
	require.ErrorIs(t, grpcerr.Decode(err), grpcerr.ErrArtifactCorrupt)
	require.Equal(t, codes.DataLoss, status.Code(err))
	_, err = jobs.SubmitJob(t.Context(), &jobv1.SubmitJobRequest{RequestId: "r", ArtifactSha256: wrong})
	require.ErrorIs(t, err, grpcerr.ErrArtifactNotFound)
}

func TestAJobWithoutANameIsCalledAfterItsFile(t *testing.T) {
	c := newCluster(t, 1)
	c.fakes.graph.Name = ""
	c.fakes.start("tm1", 2, c.addresses)
	c.waitForTaskManagers(1)
	req := &jobv1.SubmitJobRequest{RequestId: "r", ArtifactSha256: c.upload([]byte("job binary"))}
	_, err := c.jobs().SubmitJob(t.Context(), req)
	require.ErrorIs(t, err, grpcerr.ErrInvalid)
	req.DefaultName = "wordcount"
	resp, err := c.jobs().SubmitJob(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, "wordcount", c.job(resp.GetJobId()).GetName())
}

func TestTaskManagerWithoutTheStorageIsRefused(t *testing.T) {
	c := newCluster(t, 1)
	tm := c.fakes.start("tm1", 1, c.addresses)
	tm.mu.Lock()
	tm.probe = "something else"
	tm.mu.Unlock()
	tm.drop()
	eventually(t, "the TaskManager is refused with the reason", func() bool {
		tm.mu.Lock()
		defer tm.mu.Unlock()
		return tm.refusal != nil && status.Code(tm.refusal) == codes.PermissionDenied
	})
	tm.mu.Lock()
	defer tm.mu.Unlock()
	require.Contains(t, tm.refusal.Error(), "shared directory")
}

func TestReadsLogsOfAllTaskManagers(t *testing.T) {
	c, _, id := runningJob(t)
	stream, err := c.jobs().ReadLogs(t.Context(), &jobv1.ReadLogsRequest{Job: id})
	require.NoError(t, err)
	got := make(map[string]string)
	for range 2 {
		m, err := stream.Recv()
		require.NoError(t, err)
		got[m.GetTaskmanagerId()] += string(m.GetChunk())
	}
	require.Equal(t, map[string]string{"tm1": "hello from tm1\n", "tm2": "hello from tm2\n"}, got)
}

// checkSavepoint checks that a savepoint names only its own files and no committables, and returns its checkpoint.
func checkSavepoint(t *testing.T, c *cluster, path string) uint64 {
	t.Helper()
	md, _, err := driver.ReadMetadata(t.Context(), c.bucket, blob.OpenURL, path+"/metadata")
	require.NoError(t, err)
	require.True(t, md.GetSavepoint())
	for _, h := range md.GetTasks() {
		require.Zero(t, h.GetCommittables())
		require.NotContains(t, string(h.GetSnapshot()), "txn")
		for _, f := range h.GetFiles() {
			require.True(t, strings.HasPrefix(f.GetName(), "files/"), "%s is not relative to the savepoint's folder", f.GetName())
			require.Contains(t, string(h.GetSnapshot()), f.GetName())
			b, err := blob.OpenURL(t.Context(), path)
			require.NoError(t, err)
			a, err := b.Stat(t.Context(), f.GetName())
			require.NoError(t, err)
			require.EqualValues(t, f.GetSize(), a.Size)
			require.NoError(t, b.Close())
		}
	}
	return md.GetCheckpoint()
}
