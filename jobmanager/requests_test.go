package jobmanager_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
)

// TestRefusalsNameTheThingAndTheWayOut looks at the texts that users see, as they come over the wire.
func TestRefusalsNameTheThingAndTheWayOut(t *testing.T) {
	c, _, id := runningJob(t)
	jobs, ctx := c.jobs(), t.Context()
	sha := c.job(id).GetArtifactSha256()
	submit := func(change func(*jobv1.SubmitJobRequest)) func() error {
		return func() error {
			req := &jobv1.SubmitJobRequest{RequestId: "r", Name: "other", ArtifactSha256: sha}
			change(req)
			_, err := jobs.SubmitJob(ctx, req)
			return err
		}
	}
	for name, tc := range map[string]struct {
		call func() error
		is   error
		says []string
	}{
		"unknown job": {
			func() error { _, err := jobs.GetJob(ctx, &jobv1.GetJobRequest{Job: "nope"}); return err },
			grpcerr.ErrJobNotFound,
			[]string{`"nope"`, "weir list --all"},
		},
		"name that a table cannot hold": {
			submit(func(r *jobv1.SubmitJobRequest) { r.Name = "two\nlines" }), grpcerr.ErrInvalid, []string{`"two\nlines"`, "--name"},
		},
		"name that is too long": {
			submit(func(r *jobv1.SubmitJobRequest) { r.Name = strings.Repeat("n", 129) }), grpcerr.ErrInvalid, []string{"129 bytes", "128"},
		},
		"request id of another job": {
			submit(func(r *jobv1.SubmitJobRequest) { r.RequestId = "submit-totals" }), grpcerr.ErrInvalid, []string{id, "choose a new id"},
		},
		"checkpoints of an unknown job": {
			func() error {
				_, err := jobs.ListCheckpoints(ctx, &jobv1.ListCheckpointsRequest{Job: "nope"})
				return err
			},
			grpcerr.ErrJobNotFound,
			[]string{`"nope"`},
		},
		"cancel without a request id": {
			func() error { _, err := jobs.CancelJob(ctx, &jobv1.CancelJobRequest{Job: id}); return err },
			grpcerr.ErrInvalid,
			[]string{"request id"},
		},
		"stop without a request id": {
			func() error { _, err := jobs.StopJob(ctx, &jobv1.StopJobRequest{Job: id}); return err },
			grpcerr.ErrInvalid,
			[]string{"request id"},
		},
		"savepoint without a request id": {
			func() error {
				_, err := jobs.CreateSavepoint(ctx, &jobv1.CreateSavepointRequest{Job: id})
				return err
			},
			grpcerr.ErrInvalid,
			[]string{"request id"},
		},
		"savepoint to an unknown kind of storage": {
			func() error {
				_, err := jobs.CreateSavepoint(ctx, &jobv1.CreateSavepointRequest{RequestId: "r", Job: id, Dir: "ftp://x/y"})
				return err
			},
			grpcerr.ErrInvalid,
			[]string{"savepoint directory", "ftp", "file"},
		},
		"submit without a request id": {
			submit(func(r *jobv1.SubmitJobRequest) { r.RequestId = "" }),
			grpcerr.ErrInvalid,
			[]string{"request id"},
		},
		"submit without a binary": {
			submit(func(r *jobv1.SubmitJobRequest) { r.ArtifactSha256 = "" }),
			grpcerr.ErrInvalid,
			[]string{"SHA-256", `""`},
		},
		"submit of a binary that was never uploaded": {
			submit(func(r *jobv1.SubmitJobRequest) { r.ArtifactSha256 = "00" + sha[2:] }),
			grpcerr.ErrArtifactNotFound,
			[]string{"upload 00" + sha[2:]},
		},
		"submit under the name of a live job": {
			submit(func(r *jobv1.SubmitJobRequest) { r.Name = "totals" }),
			grpcerr.ErrNameTaken,
			[]string{`"totals"`, id, "choose another name, or end that one"},
		},
		"submit from a job that has not ended": {
			submit(func(r *jobv1.SubmitJobRequest) { r.From = "totals@last" }),
			grpcerr.ErrInvalid,
			[]string{"totals", id, "has not ended", "take a savepoint"},
		},
		"submit from something that is neither": {
			submit(func(r *jobv1.SubmitJobRequest) { r.From = "totals" }),
			grpcerr.ErrInvalid,
			[]string{`"totals"`, "URL of a savepoint", "JOB@CHECKPOINT"},
		},
		"submit from a savepoint that is not there": {
			submit(func(r *jobv1.SubmitJobRequest) { r.From = "file://" + t.TempDir() + "/sp" }),
			grpcerr.ErrInvalid,
			[]string{"no savepoint at"},
		},
	} {
		err := tc.call()
		require.ErrorIs(t, err, tc.is, name)
		for _, s := range tc.says {
			require.ErrorContains(t, err, s, name)
		}
	}
	list, err := jobs.ListJobs(ctx, &jobv1.ListJobsRequest{IncludeEnded: true})
	require.NoError(t, err)
	require.Len(t, list.GetJobs(), 1, "what was refused has changed nothing")
}

func TestANameMeansTheLiveJobAndElseTheNewest(t *testing.T) {
	c := newCluster(t, 1)
	c.fakes.start("tm1", 2, c.addresses)
	c.waitForTaskManagers(1)
	sha := c.upload([]byte("job binary"))
	submit := func(request string) string {
		resp, err := c.jobs().SubmitJob(t.Context(), &jobv1.SubmitJobRequest{RequestId: request, Name: "totals", ArtifactSha256: sha})
		require.NoError(t, err)
		return resp.GetJobId()
	}
	cancel := func(id string) {
		_, err := c.jobs().CancelJob(t.Context(), &jobv1.CancelJobRequest{RequestId: "cancel-" + id, Job: id})
		require.NoError(t, err)
		c.waitFor(id, "it is canceled", inState(jobv1.JobState_JOB_STATE_CANCELED))
	}
	first := submit("r1")
	require.Equal(t, first, c.job("totals").GetId())
	cancel(first)
	second := submit("r2")
	require.Equal(t, second, c.job("totals").GetId(), "the live one")
	cancel(second)
	require.Equal(t, second, c.job("totals").GetId(), "the newest one")
	require.Equal(t, first, c.job(first).GetId(), "an id always means its job")

	_, err := c.jobs().StopJob(t.Context(), &jobv1.StopJobRequest{RequestId: "s", Job: "totals"})
	require.ErrorIs(t, err, grpcerr.ErrJobEnded)
	require.ErrorContains(t, err, "job totals ("+second+") is canceled")
	_, err = c.jobs().SubmitJob(t.Context(), &jobv1.SubmitJobRequest{RequestId: "r3", ArtifactSha256: sha, From: first + "@7"})
	require.ErrorIs(t, err, grpcerr.ErrInvalid)
	require.ErrorContains(t, err, "has not kept checkpoint 7; kept: none")
}
