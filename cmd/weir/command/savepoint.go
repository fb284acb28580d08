package command

import (
	"fmt"

	"github.com/spf13/cobra"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

func (a *app) savepoint() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "savepoint JOB",
		Short: "Export a checkpoint of a running job",
		Long: `Copy a completed and committed checkpoint of a running job to a directory of its own, from which any number of
jobs can start at any later time, and print its path.`,
		Example: "  weir savepoint totals\n  weir savepoint totals --dir file:///srv/weir/savepoints",
		Args:    exactly("JOB"),
	}
	flags := a.clientFlags(cmd)
	cmd.ValidArgsFunction = flags.completeJobs
	id := requestID(cmd)
	dir := cmd.Flags().String("dir", "", "directory URL; empty means below the cluster's checkpoint storage")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := flags.connect()
		if err != nil {
			return err
		}
		defer c.Close()
		req := &jobv1.CreateSavepointRequest{RequestId: id(), Job: args[0], Dir: *dir}
		resp, err := change(cmd.Context(), c, req, jobv1.JobServiceClient.CreateSavepoint)
		if err != nil {
			return a.sent("savepoint of "+args[0], err, req.GetRequestId(), "checkpoints "+args[0])
		}
		if flags.output == "json" {
			return writeJSON(a.Out, resp)
		}
		fmt.Fprintln(a.Out, resp.GetPath())
		return nil
	}
	return cmd
}
