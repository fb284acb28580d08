package command

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

func (a *app) checkpoints() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "checkpoints JOB",
		Short:   "List a job's checkpoints and savepoints",
		Example: "  weir checkpoints totals",
		Args:    exactly("JOB"),
	}
	flags := a.clientFlags(cmd)
	cmd.ValidArgsFunction = flags.completeJobs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := flags.connect()
		if err != nil {
			return err
		}
		defer c.Close()
		resp, err := ask(cmd.Context(), c, &jobv1.ListCheckpointsRequest{Job: args[0]}, jobv1.JobServiceClient.ListCheckpoints)
		if err != nil {
			return err
		}
		if flags.output == "json" {
			return writeJSON(a.Out, resp)
		}
		rows := [][]string{{"ID", "ATTEMPT", "STATE", "TRIGGERED", "DURATION", "NEW", "TOTAL", "PATH OR REASON"}}
		for _, p := range resp.GetCheckpoints() {
			rows = append(rows, []string{
				fmt.Sprint(p.GetId()), fmt.Sprint(p.GetAttempt()), checkpointState(p), clock(p.GetTriggeredAtMs()),
				short(time.Duration(p.GetDurationMs()) * time.Millisecond), size(p.GetDeltaBytes()), size(p.GetTotalBytes()), checkpointNote(p),
			})
		}
		return writeTable(a.Out, rows)
	}
	return cmd
}

func checkpointState(p *jobv1.Checkpoint) string {
	if p.GetSavepoint() {
		return p.GetState() + " savepoint"
	}
	return p.GetState()
}

func checkpointNote(p *jobv1.Checkpoint) string {
	switch {
	case p.GetFailure() != "":
		return p.GetFailure()
	case len(p.GetWaitingFor()) > 0:
		return "waits for " + strings.Join(p.GetWaitingFor(), ", ")
	default:
		return orDash(p.GetPath())
	}
}
