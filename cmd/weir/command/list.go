package command

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

func (a *app) list() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List jobs",
		Example: "  weir list\n  weir list --all -o json",
		Args:    exactly(),
	}
	flags := a.clientFlags(cmd)
	all := cmd.Flags().Bool("all", false, "also jobs that have ended")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags.connect()
		if err != nil {
			return err
		}
		defer c.Close()
		resp, err := ask(cmd.Context(), c, &jobv1.ListJobsRequest{IncludeEnded: *all}, jobv1.JobServiceClient.ListJobs)
		if err != nil {
			return err
		}
		if flags.output == "json" {
			return writeJSON(a.Out, resp)
		}
		rows := [][]string{{"ID", "NAME", "STATE", "PARALLELISM", "RESTARTS", "CHECKPOINT", "DURATION", "RECORDS/S", "LAG"}}
		for _, j := range resp.GetJobs() {
			rows = append(rows, a.jobRow(j))
		}
		if err := writeTable(a.Out, rows); err != nil {
			return err
		}
		for _, j := range resp.GetJobs() {
			if w := j.GetWaitingFor(); w != "" && !ended(j.GetState()) {
				a.note("%s waits: %s", j.GetId(), w)
			}
		}
		a.note("%d of %d slots are free", resp.GetFreeSlots(), resp.GetTotalSlots())
		return nil
	}
	return cmd
}

// listedParallelism is a job's parallelism in a table.
func listedParallelism(j *jobv1.Job) string {
	text := fmt.Sprint(parallelism(j.GetGraph()))
	if n := j.GetRescalingTo(); n > 0 {
		text += fmt.Sprintf(" → %d", n)
	}
	if j.GetAutoParallelism() {
		text += " (auto)"
	}
	return text
}

func (a *app) jobRow(j *jobv1.Job) []string {
	age, took := "-", "-"
	if c := j.GetLastCheckpoint(); c != nil {
		age = short(time.Duration(c.GetAgeMs())*time.Millisecond) + " ago"
		took = short(time.Duration(c.GetDurationMs()) * time.Millisecond)
	}
	rate, lag := "-", "-"
	if !ended(j.GetState()) {
		rate, lag = count(j.GetRecordsPerSecond()), count(float64(j.GetLagRecords()))
	}
	return []string{
		j.GetId(), j.GetName(), stateName(j.GetState()), listedParallelism(j), fmt.Sprint(j.GetRestarts()),
		age, took, rate, lag,
	}
}
