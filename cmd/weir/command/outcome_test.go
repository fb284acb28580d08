package command_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

// hangAt makes the requests of one type stay without an answer, and calls then at each.
func hangAt[T proto.Message](c *cluster, then func()) {
	c.hang = func(m proto.Message) bool {
		_, hit := m.(T)
		if hit && then != nil {
			then()
		}
		return hit
	}
}

func TestChangeWithoutAnAnswer(t *testing.T) {
	for _, test := range []struct {
		args []string
		look string
		hang func(*cluster, func())
	}{
		{[]string{"submit", jobBinary(t), "--request-id", "r9"}, "  weir list --all\n", hangAt[*jobv1.SubmitJobRequest]},
		{[]string{"stop", "totals", "--request-id", "r9"}, "  weir show totals\n", hangAt[*jobv1.StopJobRequest]},
		{[]string{"cancel", "totals", "--request-id", "r9"}, "  weir show totals\n", hangAt[*jobv1.CancelJobRequest]},
		{[]string{"savepoint", "totals", "--request-id", "r9"}, "  weir checkpoints totals\n", hangAt[*jobv1.CreateSavepointRequest]},
		{[]string{"txn", "abort", "x", "--job", "totals", "--yes", "--request-id", "r9"}, "  weir txn list totals\n", hangAt[*jobv1.ResolveTransactionRequest]},
		{[]string{"txn", "commit", "x", "--job", "totals", "--yes", "--request-id", "r9"}, "  weir txn list totals\n", hangAt[*jobv1.ResolveTransactionRequest]},
		{[]string{"members", "remove", "jm4"}, "  weir members\n", hangAt[*clusterv1.RemoveMemberRequest]},
	} {
		t.Run(strings.Join(test.args[:2], " "), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := newCluster(t, runningJob())
			test.hang(c, cancel)
			code, out, messages := weirIn(ctx, []string{"WEIR_JOBMANAGER=" + c.address}, test.args...)
			require.Equal(t, 3, code)
			require.Empty(t, out)
			require.Contains(t, messages, "whether it took effect is unknown: interrupted before the answer")
			require.Contains(t, messages, test.look)
			if test.args[0] != "members" {
				require.Contains(t, messages, "--request-id r9")
			}
			require.NotContains(t, messages, "rpc error")
		})
	}
	t.Run("with flags for the connection", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := newCluster(t, runningJob())
		hangAt[*jobv1.CancelJobRequest](c, cancel)
		file := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(file, []byte("a-token-of-some-length\n"), 0o600))
		code, _, messages := weirIn(ctx, nil, "cancel", "totals", "--jobmanager="+c.address, "--token-file", file, "--insecure")
		require.Equal(t, 3, code)
		require.Contains(t, messages, "  weir show totals --jobmanager="+c.address+" --token-file "+file+" --insecure\n")
	})
	t.Run("stop in its time", func(t *testing.T) {
		c := newCluster(t, runningJob())
		hangAt[*jobv1.StopJobRequest](c, nil)
		code, _, messages := c.run(t, "stop", "totals", "--wait", "150ms", "--request-id", "r9")
		require.Equal(t, 3, code)
		require.Contains(t, messages, "unknown: no answer within the time given")
		require.Contains(t, messages, "--request-id r9")
	})
}

func TestAnsweredChangeWhoseEndIsNotSeen(t *testing.T) {
	for _, args := range [][]string{{"stop", "totals"}, {"cancel", "totals"}} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := newCluster(t, runningJob())
		hangAt[*jobv1.GetJobRequest](c, cancel)
		code, out, messages := weirIn(ctx, []string{"WEIR_JOBMANAGER=" + c.address}, args...)
		require.Equal(t, 4, code)
		require.Empty(t, out)
		require.Contains(t, messages, "the "+args[0]+" of job job1 was accepted and goes on by itself, 'weir show job1' tells more")
		require.Contains(t, messages, "interrupted")

		c = newCluster(t, runningJob())
		hangAt[*jobv1.GetJobRequest](c, nil)
		code, _, messages = c.run(t, append(args, "--wait", "150ms")...)
		require.Equal(t, 4, code)
		require.Contains(t, messages, "was not seen to end within 150ms; the "+args[0]+" of job job1 was accepted")
	}
	t.Run("submit, interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := newCluster(t, runningJob())
		hangAt[*jobv1.GetJobRequest](c, cancel)
		code, out, messages := weirIn(ctx, []string{"WEIR_JOBMANAGER=" + c.address}, "submit", jobBinary(t))
		require.Equal(t, 4, code)
		require.Equal(t, "job1\n", out)
		require.Contains(t, messages, "job job1 was submitted and goes on by itself")
	})
	t.Run("submit, out of time in the look itself", func(t *testing.T) {
		waiting := endedJob(jobv1.JobState_JOB_STATE_CREATED)
		waiting.WaitingFor = "needs 4 slots, 1 free on 1 TaskManager"
		c := newCluster(t, waiting)
		looks := 0
		c.hang = func(m proto.Message) bool {
			if _, ok := m.(*jobv1.GetJobRequest); ok {
				looks++
			}
			return looks > 1
		}
		code, out, messages := c.run(t, "submit", jobBinary(t), "--wait", "400ms")
		require.Zero(t, code, messages)
		require.Equal(t, "job1\n", out)
		require.Contains(t, messages, "is still waiting and starts by itself: needs 4 slots")
	})
}

func TestInterruptedLookChangesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := newCluster(t)
	hangAt[*jobv1.ListJobsRequest](c, cancel)
	code, _, messages := weirIn(ctx, []string{"WEIR_JOBMANAGER=" + c.address}, "list")
	require.Equal(t, 1, code)
	require.Equal(t, "weir: interrupted\n", messages)
}

func TestTheCommandThatRepeatsARequestIsNamed(t *testing.T) {
	job := jobBinary(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := newCluster(t)
	hangAt[*jobv1.SubmitJobRequest](c, cancel)
	code, _, messages := weirIn(ctx, nil, "submit", "--jobmanager", c.address, job, "--name", "it's", "--", "--topic", "a b")
	require.Equal(t, 3, code)
	id := find[*jobv1.SubmitJobRequest](t, c).GetRequestId()
	require.NotEmpty(t, id)
	require.Contains(t, messages, "  weir list --all --jobmanager "+c.address+"\n")
	require.Contains(t, messages, "  weir submit --jobmanager "+c.address+" "+job+" --name 'it'\\''s' --request-id "+id+" -- --topic 'a b'\n")
}

// TestChangesGoOnWithTheNextLeader lets the leader die while it is at each kind of change: the next one gets the same request.
func TestChangesGoOnWithTheNextLeader(t *testing.T) {
	job := jobBinary(t)
	for _, test := range []struct {
		args    []string
		hang    func(*cluster, func())
		request func(*testing.T, *cluster) string
	}{
		{[]string{"submit", job, "--detach"}, hangAt[*jobv1.SubmitJobRequest], idOf[*jobv1.SubmitJobRequest]},
		{[]string{"stop", "totals"}, hangAt[*jobv1.StopJobRequest], idOf[*jobv1.StopJobRequest]},
		{[]string{"cancel", "totals"}, hangAt[*jobv1.CancelJobRequest], idOf[*jobv1.CancelJobRequest]},
		{[]string{"savepoint", "totals"}, hangAt[*jobv1.CreateSavepointRequest], idOf[*jobv1.CreateSavepointRequest]},
	} {
		t.Run(strings.Join(test.args[:2], " "), func(t *testing.T) {
			dying, next := newCluster(t, runningJob()), newCluster(t, endedJob(jobv1.JobState_JOB_STATE_STOPPED))
			test.hang(dying, func() { go dying.server.Stop() })
			code, _, messages := weirIn(t.Context(), []string{"WEIR_JOBMANAGER=" + dying.address + "," + next.address}, test.args...)
			require.Zero(t, code, messages)
			require.NotEmpty(t, test.request(t, dying))
			require.Equal(t, test.request(t, dying), test.request(t, next), "one request id for both")
		})
	}
}

func idOf[T interface {
	proto.Message
	GetRequestId() string
}](t *testing.T, c *cluster) string {
	return find[T](t, c).GetRequestId()
}
