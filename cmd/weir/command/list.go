package command

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

func (a *app) list() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List jobs",
		Long: `List jobs with their last completed checkpoint: how long ago it ended, and how long it took. A job that has read and written nothing since
is idle and takes none, so that the age alone is no sign of trouble; 'uncoveredMs' of the JSON is 0 then, else the age of the oldest change
that no completed checkpoint covers.`,
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

// idle reports whether a job has nothing that a further checkpoint would cover.
func idle(j *jobv1.Job) bool {
	return j.GetState() == jobv1.JobState_JOB_STATE_RUNNING && j.UncoveredMs != nil && j.GetUncoveredMs() == 0
}

func (a *app) jobRow(j *jobv1.Job) []string {
	age, took := "-", "-"
	if c := j.GetLastCheckpoint(); c != nil {
		age = short(time.Duration(c.GetAgeMs())*time.Millisecond) + " ago"
		if idle(j) {
			age += ", idle"
		}
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
