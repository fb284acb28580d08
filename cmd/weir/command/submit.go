package command

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/client"
)

// submitWait is how long submit waits for the first attempt to be prepared.
const submitWait = 30 * time.Second

func (a *app) submit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "submit BINARY [flags] [-- ARGS...]",
		Short: "Submit a job",
		Long: `Submit a job binary, a program whose main function calls stream.Main, with the arguments after --.

The command returns with the job's id once the first attempt is prepared: placed, restored, and its brokers checked. When the job fails
instead, the exit code is 1, the message has the cause, and nothing is printed on standard output.
When there are not enough slots it says so at once and returns after 30 s all the same; the job starts as soon as there are.
A job that sets no name is called after the file BINARY.
References like ${env:NAME} and ${file:PATH} in arguments are resolved on the TaskManagers and stored nowhere.`,
		Example: `  weir submit ./job -- --brokers localhost:9092
  weir submit ./job -p 4 --name totals --from file:///srv/weir/savepoints/1 -- '--password=${env:KAFKA_PASSWORD}'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); n == 1 || n < 0 && len(args) == 1 {
				return nil
			}
			return &usageError{errors.New("expected one BINARY; arguments of the job follow after --\nSee 'weir submit --help'")}
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var unknown *pflag.NotExistError
		if errors.As(err, &unknown) {
			err = fmt.Errorf("%w\nArguments of the job follow after --, as in 'weir submit ./job -- --brokers localhost:9092'", err)
		}
		return cmd.Parent().FlagErrorFunc()(cmd, err)
	})
	flags := a.clientFlags(cmd)
	id := requestID(cmd)
	req := &jobv1.SubmitJobRequest{}
	cmd.Flags().VarP(parallelismFlag{&req.Parallelism, &req.AutoParallelism}, "parallelism", "p",
		"default parallelism; 0 leaves it to the job, auto follows the number of slots")
	cmd.Flags().Var(operatorsFlag{&req.OperatorParallelism, false}, "operator", "NAME=N: parallelism of one operator in place of what the job says; may be repeated")
	cmd.Flags().Var(nameFlag{&req.Name}, "name", "name of the job instead of its own: up to 128 printable characters except '@' and '/'")
	cmd.Flags().StringVar(&req.From, "from", "", "savepoint, or JOB@CHECKPOINT of an ended job, to start from")
	cmd.Flags().BoolVar(&req.AllowDroppedState, "allow-dropped-state", false, "start although the job has no operator for some of the savepoint's state")
	cmd.Flags().BoolVar(&req.AcceptLoss, "accept-loss", false, "with --from JOB@CHECKPOINT: start without output that is proven lost, and record it")
	cmd.Flags().BoolVar(&req.AcceptUnknown, "accept-unknown", false, "as --accept-loss, and also without output of which it cannot be found out whether it is lost")
	detach := cmd.Flags().Bool("detach", false, "return as soon as the job is accepted")
	wait := duration(cmd, "wait", submitWait, "how long to wait for the job to be prepared")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		c, err := flags.connect()
		if err != nil {
			return err
		}
		defer c.Close()
		b, err := openBinary(args[0])
		if err != nil {
			return err
		}
		defer b.Close()
		if b.arch != "" && b.arch != runtime.GOARCH {
			a.note("note: the binary is built for %s, this machine is %s; the TaskManagers must be %s too", b.arch, runtime.GOARCH, b.arch)
		}
		if err := c.Upload(ctx, b, b.hash, b.size); err != nil {
			return fmt.Errorf("uploading %s: %w", args[0], err)
		}
		req.RequestId, req.ArtifactSha256, req.Args = id(), b.hash, args[1:]
		req.DefaultName = strings.TrimSuffix(filepath.Base(args[0]), ".exe")
		resp, err := change(ctx, c, req, jobv1.JobServiceClient.SubmitJob)
		if err != nil {
			return a.sent("submitting", err, req.GetRequestId(), "list --all")
		}
		job := &jobv1.Job{Id: resp.GetJobId()}
		var result error
		if !*detach {
			job, result = a.awaitPrepared(ctx, c, resp.GetJobId(), *wait)
		}
		if result != nil && ended(job.GetState()) {
			return result // nothing is left that the id would be of use for; the message has it
		}
		if flags.output == "json" {
			return errors.Join(writeJSON(a.Out, resp), result)
		}
		fmt.Fprintln(a.Out, job.GetId())
		return result
	}
	return cmd
}

// awaitPrepared waits for the first attempt to be prepared. The job is never nil; the error is why it will not be, or has not been
// for a reason other than missing slots.
func (a *app) awaitPrepared(ctx context.Context, c *client.Client, id string, wait time.Duration) (*jobv1.Job, error) {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var seen, said string
	j, err := a.await(limited, c, id, func(j *jobv1.Job) bool {
		w := j.GetWaitingFor()
		if j.GetState() != jobv1.JobState_JOB_STATE_CREATED {
			w = ""
		}
		// At the second look, since every job waits for a moment.
		if w != "" && w == seen && w != said {
			said = w
			a.note("job %s is waiting: %s", id, w)
		}
		seen = w
		return upOrEnded(j)
	})
	if j == nil {
		j = &jobv1.Job{Id: id}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		// Not wrapped: this is more than an interruption.
		return j, &unseenError{fmt.Errorf("job %s was submitted and goes on by itself, 'weir show %s' tells more; only the waiting for it was interrupted", id, id)}
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return j, &unseenError{fmt.Errorf("job %s was submitted, but its state cannot be seen: %w", id, err)}
	case err != nil && j.GetState() == jobv1.JobState_JOB_STATE_SETTLING:
		return j, fmt.Errorf("job %s is ending before it was seen to run, 'weir show %s' tells more: %s", id, id, orDash(lastFailure(j)))
	case err != nil && lastFailure(j) != "":
		return j, fmt.Errorf("job %s does not come up and is tried again ('weir cancel %s' ends that): %s", id, id, lastFailure(j))
	case err != nil && j.GetWaitingFor() != "":
		a.note("job %s is still waiting and starts by itself: %s", id, j.GetWaitingFor())
		return j, nil
	case err != nil:
		a.note("job %s is not prepared yet (%s); 'weir show %s' tells more", id, stateName(j.GetState()), id)
		return j, nil
	case j.GetState() == jobv1.JobState_JOB_STATE_FAILED:
		return j, fmt.Errorf("job %s failed: %s", id, orDash(lastFailure(j)))
	case j.GetState() == jobv1.JobState_JOB_STATE_CANCELED:
		return j, fmt.Errorf("job %s was cancelled before it was seen to run", id)
	}
	return j, nil
}

// upOrEnded reports whether there is nothing more to wait for. What settles is on its way to an end that tells more, and counts as
// prepared even if only its settling attempt was.
func upOrEnded(j *jobv1.Job) bool {
	return ended(j.GetState()) || j.GetPrepared() && j.GetState() != jobv1.JobState_JOB_STATE_SETTLING
}
