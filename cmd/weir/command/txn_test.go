package command_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
)

// A job of which nothing can be told does not hide those behind it.
func TestListOfTransactionsGoesOnAfterAJobThatCannotBeAsked(t *testing.T) {
	jobs := []*jobv1.Job{runningJob(), runningJob(), runningJob()}
	jobs[0].Id, jobs[1].Id, jobs[2].Id = "j1", "j2", "j3"
	c := newCluster(t, jobs...)
	c.unasked = map[string]error{"j2": grpcerr.ErrJobNotFound}
	code, out, messages := c.run(t, "txn", "list")
	require.Equal(t, 1, code)
	require.Contains(t, out, "totals (j1)")
	require.Contains(t, out, "totals (j3)")
	require.Contains(t, messages, "job j2")
	require.Contains(t, messages, "not found")

	c.unasked = nil
	code, _, messages = c.run(t, "txn", "list")
	require.Zero(t, code, messages)
}

// A leader that does not know what became of a transaction has not refused to end it.
func TestTransactionWhoseOutcomeTheLeaderDoesNotKnow(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := newCluster(t, runningJob())
	c.err = grpcerr.ErrUnknownOutcome
	asked := 0
	c.hang = func(proto.Message) bool {
		if asked++; asked == 2 { // it is repeated, which does no harm
			cancel()
		}
		return false
	}
	code, out, messages := weirIn(ctx, []string{"WEIR_JOBMANAGER=" + c.address}, "txn", "abort", "x", "--job", "totals", "--yes")
	require.Equal(t, 3, code)
	require.Empty(t, out)
	require.Contains(t, messages, "unknown")
	require.Contains(t, messages, "  weir txn list totals\n")

	c = newCluster(t, runningJob())
	c.err = grpcerr.ErrInvalid
	code, _, _ = c.run(t, "txn", "abort", "x", "--job", "totals", "--yes")
	require.Equal(t, 1, code)
}
