package jobmanager_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

func TestDamagedStateIsNotExported(t *testing.T) {
	c, _, id := runningJob(t)
	c.fakes.set(func() { c.fakes.damage = true })
	before := c.job(id).GetCompletedCheckpoints()
	c.waitFor(id, "checkpoints with damaged files", func(j *jobv1.Job) bool { return j.GetCompletedCheckpoints() > before+1 })
	_, err := c.jobs().CreateSavepoint(t.Context(), &jobv1.CreateSavepointRequest{RequestId: "sp", Job: id, Dir: "file://" + t.TempDir()})
	require.ErrorContains(t, err, "is damaged")
	require.Equal(t, jobv1.JobState_JOB_STATE_RUNNING, c.job(id).GetState())
}
