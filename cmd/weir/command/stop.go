package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

func (a *app) stop() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stop JOB",
		Short: "End a job at a last checkpoint",
		Long: `Take a last checkpoint, commit it, and end the job. The path printed is what weir submit --from takes to go on
from there. When the checkpoint fails the job goes on running and the command fails.`,
		Example: "  weir stop totals\n  weir stop totals --savepoint file:///srv/weir/savepoints",
		Args:    exactly("JOB"),
	}
	flags := a.clientFlags(cmd)
	cmd.ValidArgsFunction = flags.completeJobs
	id := requestID(cmd)
	wait := waitFlag(cmd, 3*time.Minute)
	dir := cmd.Flags().String("savepoint", "", "directory URL for a savepoint; empty keeps the last checkpoint only")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := flags.connect()
		if err != nil {
			return err
		}
		defer c.Close()
		req := &jobv1.StopJobRequest{RequestId: id(), Job: args[0], SavepointDir: *dir}
		limited, cancel := context.WithTimeout(cmd.Context(), *wait)
		defer cancel()
		resp, err := change(limited, c, req, jobv1.JobServiceClient.StopJob)
		if err != nil {
			return a.sent("stopping "+args[0], err, req.GetRequestId(), "show "+args[0])
		}
		j, err := a.awaitEnd(cmd.Context(), c, "stop", resp.GetJobId(), *wait)
		if err != nil {
			return err
		}
		if flags.output == "json" {
			err = writeJSON(a.Out, j)
		} else {
			fmt.Fprintln(a.Out, stoppedAt(j))
		}
		switch j.GetState() {
		case jobv1.JobState_JOB_STATE_STOPPED, jobv1.JobState_JOB_STATE_FINISHED:
			return errors.Join(err, unsettled(j))
		default:
			return errors.Join(err, fmt.Errorf("job %s was not stopped but is %s: %s", j.GetId(), stateName(j.GetState()), orDash(lastFailure(j))))
		}
	}
	return cmd
}

// stoppedAt is where a stopped job can be resumed from.
func stoppedAt(j *jobv1.Job) string {
	if p := j.GetSavepointPath(); p != "" {
		return p
	}
	if c := j.GetLastCheckpoint(); c != nil {
		return fmt.Sprintf("%s@%d", j.GetId(), c.GetId())
	}
	return fmt.Sprintf("%s %s", j.GetId(), stateName(j.GetState()))
}
