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
		Use:   "checkpoints JOB",
		Short: "List a job's checkpoints and savepoints",
		Long: `List the checkpoints of a job, newest first: those that are retained, the one in progress, and the last ones of this attempt that failed;
then the savepoints taken of it, which Weir never removes.

ALIGNMENT (waiting for the barriers of all inputs), FREEZE and UPLOAD are the longest of any task; SLOWEST TASK acknowledged last, that long
after the trigger. NEW is what was written, TOTAL what a restore reads. 'full' marks a checkpoint for which every task wrote all of its
state instead of what had changed.`,
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
		rows := [][]string{{"ID", "ATTEMPT", "STATE", "TRIGGERED", "DURATION", "ALIGNMENT", "FREEZE", "UPLOAD", "SLOWEST TASK", "NEW", "TOTAL", "PATH OR REASON"}}
		for _, p := range resp.GetCheckpoints() {
			rows = append(rows, []string{
				fmt.Sprint(p.GetId()), fmt.Sprint(p.GetAttempt()), checkpointState(p), clock(p.GetTriggeredAtMs()),
				milliseconds(p.GetDurationMs()), phase(p, p.GetAlignmentMs()), phase(p, p.GetSyncMs()), phase(p, p.GetAsyncMs()), slowest(p),
				size(p.GetDeltaBytes()), size(p.GetTotalBytes()), checkpointNote(p),
			})
		}
		if err := writeTable(a.Out, rows); err != nil || len(resp.GetSavepoints()) == 0 {
			return err
		}
		fmt.Fprintln(a.Out)
		rows = [][]string{{"SAVEPOINT OF", "TAKEN", "PATH OR REASON"}}
		for _, sp := range resp.GetSavepoints() {
			of, note := fmt.Sprint(sp.GetCheckpoint()), sp.GetPath()
			if sp.GetError() != "" {
				of, note = "-", "failed: "+sp.GetError()
			}
			rows = append(rows, []string{of, clock(sp.GetAtMs()), note})
		}
		return writeTable(a.Out, rows)
	}
	return cmd
}

func checkpointState(p *jobv1.Checkpoint) string {
	state := p.GetState()
	if p.GetFull() {
		state += " full"
	}
	if p.GetSavepoint() {
		state += " savepoint"
	}
	return state
}

func milliseconds(n uint64) string { return short(time.Duration(n) * time.Millisecond) }

// phase is a part of a checkpoint's duration. It is not known any more after a change of leader or attempt.
func phase(p *jobv1.Checkpoint, n uint64) string {
	if p.GetSlowestTask() == "" {
		return "-"
	}
	return milliseconds(n)
}

func slowest(p *jobv1.Checkpoint) string {
	if p.GetSlowestTask() == "" {
		return "-"
	}
	return p.GetSlowestTask() + " " + milliseconds(p.GetSlowestMs())
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
