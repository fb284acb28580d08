package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

func (a *app) logs() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "logs JOB",
		Short:   "Print what a job's workers wrote",
		Long:    "Print the kept output of a job's worker processes, one after the other. TaskManagers keep a bounded amount of it.",
		Example: "  weir logs totals --tail 100\n  weir logs totals --attempt 3",
		Args:    exactly("JOB"),
	}
	flags := a.clientFlags(cmd)
	cmd.ValidArgsFunction = flags.completeJobs
	req := &jobv1.ReadLogsRequest{}
	cmd.Flags().Uint64Var(&req.Attempt, "attempt", 0, "attempt of the job; 0 means all that are kept")
	cmd.Flags().Uint32Var(&req.TailLines, "tail", 0, "last lines of each worker; 0 means everything")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := flags.connect()
		if err != nil {
			return err
		}
		defer c.Close()
		req.Job = args[0]
		p := &logPrinter{out: a.Out, json: flags.output == "json"}
		err = c.Ask(cmd.Context(), func(ctx context.Context, conn grpc.ClientConnInterface) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := jobv1.NewJobServiceClient(conn).ReadLogs(ctx, req)
			if err != nil {
				return err
			}
			for {
				m, err := stream.Recv()
				switch {
				case errors.Is(err, io.EOF):
					return nil
				case err != nil && ctx.Err() != nil:
					return ctx.Err()
				case err != nil && p.begun:
					// Not repeated: what was printed cannot be taken back.
					return errors.New("the connection broke in the middle of the logs: " + err.Error())
				case err != nil:
					return err
				}
				if err := p.print(m); err != nil {
					return err
				}
			}
		})
		if err == nil && !p.begun {
			attempt := ""
			if req.GetAttempt() != 0 {
				attempt = fmt.Sprintf("attempt %d of ", req.GetAttempt())
			}
			a.note("nothing is kept of what %sjob %s wrote", attempt, req.GetJob())
		}
		return err
	}
	return cmd
}

// logPrinter writes chunks with a head line wherever the worker changes.
type logPrinter struct {
	out   io.Writer
	json  bool
	begun bool
	last  string
}

func (p *logPrinter) print(m *jobv1.ReadLogsResponse) error {
	p.begun = true
	if p.json {
		raw, err := protojson.Marshal(m)
		if err != nil {
			return err
		}
		_, err = p.out.Write(append(compact(raw), '\n'))
		return err
	}
	if head := fmt.Sprintf("==> attempt %d on %s <==", m.GetAttempt(), m.GetTaskmanagerId()); head != p.last {
		if _, err := fmt.Fprintln(p.out, head); err != nil {
			return err
		}
		p.last = head
	}
	_, err := p.out.Write(m.GetChunk())
	return err
}
