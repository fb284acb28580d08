package command

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

func (a *app) explain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain JOB",
		Short: "Say what a job waits for, and what to do",
		Long: `Say in sentences what a job waits for now, since when, and what can be done: missing slots, a task that does not
prepare, the slowest task of a checkpoint and why, a system that does not answer, a partition that holds event time back,
a pause after a failure and its cause; or that the job runs normally. What is in its way comes first, marked with '!'.`,
		Example: "  weir explain totals\n  weir explain totals -o json",
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
		resp, err := ask(cmd.Context(), c, &jobv1.ExplainJobRequest{Job: args[0]}, jobv1.JobServiceClient.ExplainJob)
		if err != nil {
			return err
		}
		if flags.output == "json" {
			return writeJSON(a.Out, resp)
		}
		writeExplanation(a.Out, resp)
		return nil
	}
	return cmd
}

// explainWidth is how wide the text is, in characters.
const explainWidth = 110

func writeExplanation(w io.Writer, e *jobv1.ExplainJobResponse) {
	fmt.Fprintf(w, "%s (%s) is %s at %s.\n", e.GetName(), e.GetJobId(), stateName(e.GetState()), time.UnixMilli(e.GetAtMs()).UTC().Format(time.RFC3339))
	for _, f := range e.GetFindings() {
		mark := "-"
		if f.GetBlocking() {
			mark = "!"
		}
		fmt.Fprintln(w)
		for i, line := range strings.Split(f.GetText(), "\n") {
			if i == 0 {
				writeWrapped(w, mark+" ", "  ", line)
			} else {
				writeWrapped(w, "    - ", "      ", line)
			}
		}
		if f.GetAdvice() != "" {
			writeWrapped(w, "  > ", "    ", f.GetAdvice())
		}
	}
}

// writeWrapped writes text with a first and further indentations. A word longer than a line, such as a path, stays whole.
func writeWrapped(w io.Writer, first, rest, text string) {
	line, indent := first, true
	for _, word := range strings.Fields(text) {
		if !indent && len(line)+1+len(word) > explainWidth {
			fmt.Fprintln(w, line)
			line, indent = rest, true
		}
		if !indent {
			line += " "
		}
		line += word
		indent = false
	}
	fmt.Fprintln(w, line)
}
