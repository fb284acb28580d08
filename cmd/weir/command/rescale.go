package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/client"
	"github.com/weir-stream/weir/internal/keygroup"
)

func (a *app) rescale() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rescale JOB [N|auto]",
		Short: "Change the parallelism of a running job",
		Long: `Take a checkpoint, commit it, and go on from it with another parallelism. N is that of all operators that choose none
themselves; --operator is for single ones. What is not named stays as it is. With auto the job follows the number of slots from
now on, as with weir submit -p auto; a number ends that.
The parallelism can be at most the job's maximum parallelism, and there must be enough slots; else nothing is changed.
When the checkpoint fails, or slots are lost meanwhile, the job goes on as it was and the command fails.`,
		Example: "  weir rescale totals 4\n  weir rescale totals --operator count=8\n  weir rescale totals auto",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 2 {
				return nil
			}
			return &usageError{errors.New("expected JOB and N\nSee 'weir rescale --help'")}
		},
	}
	flags := a.clientFlags(cmd)
	cmd.ValidArgsFunction = flags.completeJobs
	id := requestID(cmd)
	wait := positive(cmd, "wait", time.Minute, "how long to wait for the job to run with the new parallelism")
	req := &jobv1.RescaleJobRequest{}
	cmd.Flags().Var(operatorsFlag{&req.OperatorParallelism, true}, "operator", "NAME=N: parallelism of one operator, 0 for what the job says; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 2 && args[1] == auto:
			req.AutoParallelism = true
		case len(args) == 2:
			n, err := strconv.ParseUint(args[1], 10, 32)
			if err != nil || n < 1 || n > keygroup.MaxMaxParallelism {
				return &usageError{fmt.Errorf("parallelism %q: neither auto nor a whole number from 1 to %d", args[1], keygroup.MaxMaxParallelism)}
			}
			req.Parallelism = uint32(n)
		case len(req.GetOperatorParallelism()) == 0:
			return &usageError{errors.New("expected N, --operator or both\nSee 'weir rescale --help'")}
		}
		c, err := flags.connect()
		if err != nil {
			return err
		}
		defer c.Close()
		req.RequestId, req.Job = id(), args[0]
		limited, cancel := context.WithTimeout(cmd.Context(), *wait)
		defer cancel()
		resp, err := change(limited, c, req, jobv1.JobServiceClient.RescaleJob)
		if err != nil {
			return a.sent("rescaling "+args[0], err, req.GetRequestId(), "show "+args[0])
		}
		if resp.GetAttempt() == 0 {
			a.note("job %s has that parallelism already, nothing was changed", resp.GetJobId())
		}
		err = a.awaitRescaled(cmd.Context(), c, resp, *wait)
		if flags.output == "json" {
			return errors.Join(writeJSON(a.Out, resp), err)
		}
		fmt.Fprintf(a.Out, "%s %d\n", resp.GetJobId(), resp.GetTo())
		return err
	}
	return cmd
}

// awaitRescaled waits for a job to run with its new parallelism.
func (a *app) awaitRescaled(ctx context.Context, c *client.Client, resp *jobv1.RescaleJobResponse, wait time.Duration) error {
	id := resp.GetJobId()
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	j, err := a.await(limited, c, id, func(j *jobv1.Job) bool {
		return ended(j.GetState()) || j.GetState() == jobv1.JobState_JOB_STATE_RUNNING && j.GetAttempt() >= resp.GetAttempt() && j.GetRescalingTo() == 0
	})
	switch {
	case err == nil && ended(j.GetState()):
		return fmt.Errorf("job %s is %s: %s", id, stateName(j.GetState()), orDash(lastFailure(j)))
	case err == nil:
		return nil
	case ctx.Err() != nil:
		// Not wrapped: this is more than an interruption.
		return &unseenError{fmt.Errorf("job %s has its new parallelism and comes up by itself, 'weir show %s' tells more; only the waiting for it was interrupted", id, id)}
	case j != nil:
		return &unseenError{fmt.Errorf("job %s has its new parallelism and is not seen to run after %v (%s%s), 'weir explain %s' tells more", id, wait, stateName(j.GetState()), waitingFor(j), id)}
	default:
		return &unseenError{fmt.Errorf("job %s has its new parallelism, but its state cannot be seen: %w", id, err)}
	}
}
