package jobmanager_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
)

// TestRepeatedRequestsHaveTheFirstOutcome repeats each change to a later leader.
func TestRepeatedRequestsHaveTheFirstOutcome(t *testing.T) {
	c := newCluster(t, 3)
	c.fakes.start("tm1", 4, c.addresses)
	c.waitForTaskManagers(1)
	ctx := t.Context()
	first := c.submit("totals")
	c.waitFor(first, "a checkpoint is complete", func(j *jobv1.Job) bool { return j.GetCompletedCheckpoints() >= 1 })
	dir := "file://" + t.TempDir()
	savepoint := &jobv1.CreateSavepointRequest{RequestId: "sp", Job: "totals", Dir: dir}
	taken, err := c.jobs().CreateSavepoint(ctx, savepoint)
	require.NoError(t, err)
	cancel := &jobv1.CancelJobRequest{RequestId: "c1", Job: "totals"}
	canceled, err := c.jobs().CancelJob(ctx, cancel)
	require.NoError(t, err)
	require.Equal(t, first, canceled.GetJobId())
	c.waitFor(first, "it is canceled", inState(jobv1.JobState_JOB_STATE_CANCELED))

	// The name passes to another job, and that one is stopped.
	next := func(request string) string {
		resp, err := c.jobs().SubmitJob(ctx, &jobv1.SubmitJobRequest{
			RequestId: request, Name: "totals", ArtifactSha256: c.job(first).GetArtifactSha256(),
		})
		require.NoError(t, err)
		c.waitFor(resp.GetJobId(), "it runs", inState(jobv1.JobState_JOB_STATE_RUNNING))
		return resp.GetJobId()
	}
	second := next("second")
	stop := &jobv1.StopJobRequest{RequestId: "s1", Job: "totals"}
	stopped, err := c.jobs().StopJob(ctx, stop)
	require.NoError(t, err)
	require.Equal(t, second, stopped.GetJobId())
	c.waitFor(second, "it is stopped", inState(jobv1.JobState_JOB_STATE_STOPPED))
	third := next("third")

	c.leader().stop()
	jobs := c.jobs()
	again, err := jobs.CancelJob(ctx, cancel)
	require.NoError(t, err)
	require.Equal(t, first, again.GetJobId(), "not the job that has the name now")
	stopAgain, err := jobs.StopJob(ctx, stop)
	require.NoError(t, err)
	require.Equal(t, second, stopAgain.GetJobId())
	takenAgain, err := jobs.CreateSavepoint(ctx, savepoint)
	require.NoError(t, err)
	require.Equal(t, taken.GetPath(), takenAgain.GetPath())
	require.Equal(t, third, next("third"))
	c.waitFor(third, "nothing was done to it", inState(jobv1.JobState_JOB_STATE_RUNNING))
}

// TestLeaderWithoutAMajorityAnswersNothing asks a leader that still believes in itself.
func TestLeaderWithoutAMajorityAnswersNothing(t *testing.T) {
	c := newCluster(t, 3)
	leader := c.leader()
	jobs := jobv1.NewJobServiceClient(dial(t, leader.cfg.Listen))
	_, err := jobs.ListJobs(t.Context(), &jobv1.ListJobsRequest{})
	require.NoError(t, err)
	for _, m := range c.members {
		if m != leader {
			m.stop()
		}
	}
	_, err = jobs.ListJobs(t.Context(), &jobv1.ListJobsRequest{})
	require.ErrorIs(t, err, grpcerr.ErrNotLeader)
	_, err = jobs.CancelJob(t.Context(), &jobv1.CancelJobRequest{RequestId: "r", Job: "nobody"})
	require.ErrorIs(t, err, grpcerr.ErrNotLeader, "nor that there is no such job")
}
