package command

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

func (a *app) txn() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "txn",
		Short: "Show the transactions of a job's sinks, and end one by hand",
		Long: `Show what the systems that jobs write to say about the jobs' transactions, and end one by hand where Weir cannot.
A job ends its transactions by itself: by the commit after a completed checkpoint, by a restart, and when it ends.`,
		Example: "  weir txn list totals",
		Args:    onlyCommands,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.txnList(), a.txnEnd(true), a.txnEnd(false))
	return cmd
}

func (a *app) txnList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [JOB]",
		Short: "List open and prepared transactions, and what is in front of readers",
		Long: `List the transactions of a job, or of all jobs that run or ended with unsettled ones: their state, checkpoint, partitions and age, and how
long their system leaves them open. Then the places whose readers do not see everything that is written, whose transaction that is, and what
ends it. A transaction marked '*' is listed by a completed checkpoint and must be committed.

Committed ones are shown while Weir still has them in hand only: those of a running job until it has taken note of the commit, those that the last
checkpoint of an ended job lists for as long as it is kept. So 'no transactions' of a running job means that it has committed what it has.

A running job's own workers look; for a job that has ended a worker is started that looks and changes nothing.`,
		Example: "  weir txn list\n  weir txn list totals -o json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) <= 1 {
				return nil
			}
			return &usageError{fmt.Errorf("expected at most one JOB, got %d arguments\nSee '%s --help'", len(args), cmd.CommandPath())}
		},
	}
	flags := a.clientFlags(cmd)
	cmd.ValidArgsFunction = flags.completeJobs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := flags.connect()
		if err != nil {
			return err
		}
		defer c.Close()
		if len(args) == 0 {
			jobs, err := ask(cmd.Context(), c, &jobv1.ListJobsRequest{IncludeEnded: true}, jobv1.JobServiceClient.ListJobs)
			if err != nil {
				return err
			}
			for _, j := range jobs.GetJobs() {
				if !ended(j.GetState()) || j.GetUnsettled() != "" {
					args = append(args, j.GetId())
				}
			}
		}
		var failed error
		for i, job := range args {
			resp, err := ask(cmd.Context(), c, &jobv1.ListTransactionsRequest{Job: job}, jobv1.JobServiceClient.ListTransactions)
			if err != nil {
				if cmd.Context().Err() != nil {
					return err
				}
				failed = errors.Join(failed, fmt.Errorf("job %s: %w", job, err))
				continue
			}
			if flags.output == "json" {
				err = writeJSON(a.Out, resp)
			} else {
				if i > 0 {
					fmt.Fprintln(a.Out)
				}
				err = writeTransactions(a.Out, resp)
			}
			if err != nil {
				return err
			}
		}
		return failed
	}
	return cmd
}

func writeTransactions(w io.Writer, l *jobv1.ListTransactionsResponse) error {
	fmt.Fprintf(w, "%s (%s)\n", l.GetName(), l.GetJobId())
	if len(l.GetTransactions()) > 0 {
		rows := [][]string{{"TRANSACTION", "SINK", "SUBTASK", "ATTEMPT", "STATE", "CHECKPOINT", "AGE", "LEFT", "RECORDS"}}
		for _, t := range l.GetTransactions() {
			checkpoint := "-"
			if t.GetCheckpoint() > 0 {
				checkpoint = fmt.Sprint(t.GetCheckpoint())
			}
			if t.GetListed() {
				checkpoint += "*"
			}
			rows = append(rows, []string{
				t.GetId(), t.GetSink(), fmt.Sprint(t.GetSubtask()), fmt.Sprint(t.GetAttempt()), transactionState(t.GetState()), checkpoint,
				known(t.GetAgeMs()), known(t.GetLeftMs()), orDash(partsText(t.GetParts())),
			})
		}
		if err := writeTable(w, rows); err != nil {
			return err
		}
	} else if len(l.GetProblems()) == 0 {
		fmt.Fprintln(w, "no transactions")
	}
	for _, h := range l.GetHeld() {
		writeWrapped(w, "- ", "  ", fmt.Sprintf("Readers of %s see it up to offset %d of %d: the oldest open transaction is of %s, for %s. What ends it: %s.",
			h.GetPlace(), h.GetVisible(), h.GetEnd(), h.GetOwner(), known(h.GetAgeMs()), h.GetEnds()))
	}
	for _, p := range l.GetProblems() {
		writeWrapped(w, "! ", "  ", p)
	}
	return nil
}

func transactionState(s jobv1.TransactionState) string {
	return strings.TrimPrefix(s.String(), "TRANSACTION_STATE_")
}

// known writes a duration in milliseconds that is negative when it is not known.
func known(ms int64) string {
	if ms < 0 {
		return "-"
	}
	return short(time.Duration(ms) * time.Millisecond)
}

func partsText(parts []*jobv1.OutputPart) string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.GetPlace()
		if p.GetRecords() >= 0 {
			texts[i] += fmt.Sprintf(" (%d)", p.GetRecords())
		}
	}
	return strings.Join(texts, ", ")
}

// Words by which an operator says that the consequence of a forced command is meant.
const (
	loseRecords      = "lose-records"
	duplicateRecords = "duplicate-records"
)

func (a *app) txnEnd(commit bool) *cobra.Command {
	what, consequence := "abort", loseRecords
	long := `Abort a transaction that no process will end: one of a former attempt, or of a job that has ended. One that a completed checkpoint lists is
refused, because nobody reads its records again: with --force lose-records it is aborted, and recorded as an accepted loss. A sink with
durable output has kept the records: they are written again when the job is settled, and nothing is lost.`
	if commit {
		what, consequence = "commit", duplicateRecords
		long = `Commit a prepared transaction of a job that has ended, or of a former attempt. One that no completed checkpoint lists is refused, because its
records are read again, or were: with --force duplicate-records it is committed all the same.`
	}
	cmd := &cobra.Command{
		Use:   what + " TRANSACTION --job JOB",
		Short: strings.ToUpper(what[:1]) + what[1:] + " a transaction by hand",
		Long: long + `

Transactions of the running attempt are refused: the job ends them. Without --yes it only shows the transaction. Repeating it is safe.`,
		Example: "  weir txn " + what + " weir.01j9.01k2.out.3.0.1 --job totals --yes",
		Args:    exactly("TRANSACTION"),
	}
	flags := a.clientFlags(cmd)
	id := requestID(cmd)
	job := cmd.Flags().String("job", "", "job that the transaction is of")
	force := cmd.Flags().String("force", "", "do it against the safeguard; the value says that its consequence is meant: "+consequence)
	yes := cmd.Flags().Bool("yes", false, "do it")
	_ = cmd.MarkFlagRequired("job")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *force != "" && *force != consequence {
			return &usageError{fmt.Errorf("--force: %q is not %s, which is what may come of it", *force, consequence)}
		}
		c, err := flags.connect()
		if err != nil {
			return err
		}
		defer c.Close()
		if !*yes {
			l, err := ask(cmd.Context(), c, &jobv1.ListTransactionsRequest{Job: *job}, jobv1.JobServiceClient.ListTransactions)
			if err != nil {
				return err
			}
			shown := &jobv1.ListTransactionsResponse{JobId: l.GetJobId(), Name: l.GetName(), Problems: l.GetProblems()}
			for _, t := range l.GetTransactions() {
				if t.GetId() == args[0] {
					shown.Transactions = append(shown.Transactions, t)
				}
			}
			if err := writeTransactions(a.Out, shown); err != nil {
				return err
			}
			return errors.New("nothing was changed; --yes does it")
		}
		req := &jobv1.ResolveTransactionRequest{RequestId: id(), Job: *job, Transaction: args[0], Commit: commit, Force: *force != ""}
		resp, err := change(cmd.Context(), c, req, jobv1.JobServiceClient.ResolveTransaction)
		if err != nil {
			return a.sent("ending transaction "+args[0], err, req.GetRequestId(), "txn list "+*job)
		}
		if flags.output == "json" {
			return writeJSON(a.Out, resp)
		}
		before := ""
		if resp.GetAlready() {
			before = " before"
		}
		fmt.Fprintf(a.Out, "%s %s%s\n", resp.GetTransaction().GetId(), transactionState(resp.GetTransaction().GetState()), before)
		return nil
	}
	return cmd
}

// writeLosses writes output that completed checkpoints list and that was not committed.
func writeLosses(w io.Writer, j *jobv1.Job) {
	if len(j.GetLost()) == 0 {
		return
	}
	fmt.Fprintln(w, "\nOutput that completed checkpoints list and that was not committed:")
	for _, l := range j.GetLost() {
		if n := l.GetTransactions(); n > 0 {
			fmt.Fprintf(w, "checkpoint %d and later: up to %d more transactions, for which there is no room one by one\n", l.GetCheckpoint(), n)
			continue
		}
		how := "lost"
		if l.GetUnknown() {
			how = "lost or not, which cannot be found out"
		}
		switch {
		case l.GetPending():
			how = "lost or not, which is found out when the job is settled (accepted)"
		case l.GetAccepted():
			how += " (accepted)"
		}
		records := "an unknown number of records"
		if l.GetRecords() >= 0 {
			records = fmt.Sprintf("%d records", l.GetRecords())
		}
		fmt.Fprintf(w, "checkpoint %d  sink %s  transaction %s  %s: %s, %s; %s\n", l.GetCheckpoint(), l.GetSink(), l.GetTransaction(), records,
			partsText(l.GetParts()), how, orDash(l.GetReason()))
	}
}
