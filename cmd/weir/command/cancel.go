package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/client"
)

func (a *app) cancel() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel JOB",
		Short: "End a job at once",
		Long: `End a job without a last checkpoint. What its last completed checkpoint covers is committed, the rest is
given up; no transaction stays open. To end a job so that it can go on later use weir stop.`,
		Example: "  weir cancel totals",
		Args:    exactly("JOB"),
	}
	flags := a.clientFlags(cmd)
	cmd.ValidArgsFunction = flags.completeJobs
	id := requestID(cmd)
	wait := waitFlag(cmd, 50*time.Second)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := flags.connect()
		if err != nil {
			return err
		}
		defer c.Close()
		req := &jobv1.CancelJobRequest{RequestId: id(), Job: args[0]}
		resp, err := change(cmd.Context(), c, req, jobv1.JobServiceClient.CancelJob)
		if err != nil {
			return a.sent("cancelling "+args[0], err, req.GetRequestId(), "show "+args[0])
		}
		j, err := a.awaitEnd(cmd.Context(), c, "cancel", resp.GetJobId(), *wait)
		if err != nil {
			return err
		}
		if flags.output == "json" {
			err = writeJSON(a.Out, j)
		} else {
			fmt.Fprintf(a.Out, "%s %s\n", j.GetId(), stateName(j.GetState()))
		}
		return errors.Join(err, unsettled(j))
	}
	return cmd
}

func waitFlag(cmd *cobra.Command, unset time.Duration) *time.Duration {
	return positive(cmd, "wait", unset, "how long to wait for the end of the job")
}

// awaitEnd waits for the end of a job whose cancel or stop, as what says, was accepted.
func (a *app) awaitEnd(ctx context.Context, c *client.Client, what, id string, wait time.Duration) (*jobv1.Job, error) {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	j, err := a.await(limited, c, id, func(j *jobv1.Job) bool { return ended(j.GetState()) })
	accepted := fmt.Sprintf("the %s of job %s was accepted and goes on by itself, 'weir show %s' tells more", what, id, id)
	switch {
	case err == nil:
		return j, nil
	case ctx.Err() != nil:
		// Not wrapped: this is more than an interruption.
		return nil, &unseenError{fmt.Errorf("%s; only the waiting for its end was interrupted", accepted)}
	case errors.Is(err, context.DeadlineExceeded) && j != nil:
		return nil, &unseenError{fmt.Errorf("job %s has not ended after %v (%s%s); %s", id, wait, stateName(j.GetState()), waitingFor(j), accepted)}
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &unseenError{fmt.Errorf("job %s was not seen to end within %v; %s", id, wait, accepted)}
	default:
		return nil, &unseenError{fmt.Errorf("%s; its end cannot be seen: %w", accepted, err)}
	}
}

func waitingFor(j *jobv1.Job) string {
	if w := j.GetWaitingFor(); w != "" {
		return ", waits: " + w
	}
	return ""
}

// unsettled is the error of a job that ended with transactions left open or with output that is lost.
func unsettled(j *jobv1.Job) error {
	if j.GetUnsettled() != "" {
		return fmt.Errorf("job %s ended with unsettled transactions: %s", j.GetId(), j.GetUnsettled())
	}
	transactions, records := 0, int64(0)
	for _, l := range j.GetLost() {
		if !l.GetAccepted() {
			transactions++
			records += max(0, l.GetRecords())
		}
	}
	if transactions == 0 {
		return nil
	}
	return fmt.Errorf("output of job %[1]s is lost: transactions %[2]d, records %[3]d; 'weir show %[1]s' names them, and 'weir submit --from %[1]s@last --accept-loss' goes on without them",
		j.GetId(), transactions, records)
}
