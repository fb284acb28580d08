package command

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

func (a *app) show() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show JOB",
		Short: "Show a job with its tasks and failures",
		Long: `Show everything that is known of a job, given its id or its name. A name means the job that has it and has not ended
or, when there is none, the newest of those that had it.`,
		Example: "  weir show totals\n  weir show 01J9ZQ -o json",
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
		j, err := getJob(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		if flags.output == "json" {
			return writeJSON(a.Out, j)
		}
		return a.writeJob(a.Out, j)
	}
	return cmd
}

// parallelismOf is a job's parallelism and what is going to become of it.
func parallelismOf(j *jobv1.Job) string {
	text := fmt.Sprint(parallelism(j.GetGraph()))
	if j.GetAutoParallelism() {
		text += ", follows the number of slots"
	}
	for _, name := range slices.Sorted(maps.Keys(j.GetOperatorParallelism())) {
		text += fmt.Sprintf(", %s %d", name, j.GetOperatorParallelism()[name])
	}
	if n := j.GetRescalingTo(); n > 0 {
		text += fmt.Sprintf("; being rescaled to %d", n)
	}
	if why := j.GetRescaleFailure(); why != "" {
		text += "; the last rescale failed: " + why
	}
	return text
}

// lastStart tells how long the last start took, one phase after the other.
func lastStart(r *jobv1.Restore) string {
	if r == nil {
		return ""
	}
	var phases []string
	for _, p := range r.GetPhases() {
		phases = append(phases, p.GetName()+" "+short(time.Duration(p.GetDurationUs())*time.Microsecond))
	}
	text := "attempt " + fmt.Sprint(r.GetAttempt())
	if r.GetCheckpoint() > 0 {
		text += fmt.Sprintf(" from checkpoint %d", r.GetCheckpoint())
	}
	until := "to the first record"
	if !r.GetComplete() {
		until = "so far"
	}
	return fmt.Sprintf("%s, %s %s: %s", text, short(time.Duration(r.GetTotalUs())*time.Microsecond), until, strings.Join(phases, ", "))
}

func restarts(n uint64) string {
	if n == 1 {
		return "1 restart"
	}
	return fmt.Sprintf("%d restarts", n)
}

func (a *app) writeJob(w io.Writer, j *jobv1.Job) error {
	rows := [][]string{
		{"Id:", j.GetId()},
		{"Name:", j.GetName()},
		{"State:", stateName(j.GetState())},
		{"Attempt:", fmt.Sprintf("%d (%s)", j.GetAttempt(), restarts(j.GetRestarts()))},
		{"Created:", clock(j.GetCreatedAtMs())},
	}
	optional := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	if j.GetEndedAtMs() != 0 {
		optional("Ended:", clock(j.GetEndedAtMs()))
	}
	optional("Parallelism:", parallelismOf(j))
	optional("Waits:", j.GetWaitingFor())
	if c := j.GetLastCheckpoint(); c != nil {
		text := fmt.Sprintf("%d, completed %s ago in %s, %s to restore (%d completed in all)", c.GetId(), short(time.Duration(c.GetAgeMs())*time.Millisecond),
			short(time.Duration(c.GetDurationMs())*time.Millisecond), size(c.GetTotalBytes()), j.GetCompletedCheckpoints())
		if idle(j) {
			text += "; idle since"
		}
		optional("Checkpoint:", text)
	}
	optional("Savepoint:", j.GetSavepointPath())
	if ms := j.GetLastRecoveryMs(); ms != 0 {
		optional("Last recovery:", short(time.Duration(ms)*time.Millisecond))
	}
	optional("Last start:", lastStart(j.GetRestore()))
	if !ended(j.GetState()) {
		optional("Records/s:", count(j.GetRecordsPerSecond()))
		optional("Lag:", count(float64(j.GetLagRecords())))
	}
	optional("Binary:", j.GetArtifactSha256())
	optional("Arguments:", strings.Join(j.GetArgs(), " "))
	optional("Unsettled:", j.GetUnsettled())
	if err := writeTable(w, rows); err != nil {
		return err
	}
	if tasks := j.GetTasks(); len(tasks) > 0 {
		fmt.Fprintln(w, "\nTasks:")
		table := [][]string{{"TASK", "HOST", "IN", "OUT", "LATE", "SKIPPED", "LAG", "STATE", "WATERMARK"}}
		for _, t := range tasks {
			s := t.GetStatistics()
			watermark := "-"
			switch {
			case s == nil || s.WatermarkMs == nil:
			case s.GetWatermarkMs() == math.MaxInt64:
				watermark = "end of input"
			default:
				watermark = clock(s.GetWatermarkMs())
			}
			table = append(table, []string{
				t.GetName(), t.GetHost(), count(float64(s.GetRecordsIn())), count(float64(s.GetRecordsOut())),
				count(float64(s.GetLateRecords())), count(float64(s.GetSkippedRecords())), count(float64(s.GetLagRecords())),
				size(s.GetStateBytes()), watermark,
			})
		}
		if err := writeTable(w, table); err != nil {
			return err
		}
	}
	writeLosses(w, j)
	if failures := j.GetFailures(); len(failures) > 0 {
		fmt.Fprintln(w, "\nFailures, the last one at the end:")
		for i, f := range failures {
			if i < len(failures)-1 {
				f = proto.CloneOf(f)
				f.OutputTail = "" // of the last one it is enough; 'weir logs --attempt' has the others
			}
			fmt.Fprintf(w, "%s  attempt %d  %s\n", clock(f.GetAtMs()), f.GetAttempt(), strings.ReplaceAll(failureText(f), "\n", "\n  "))
		}
	}
	return nil
}
