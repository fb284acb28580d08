package command

import (
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/weir-stream/weir/jobmanager"
)

func (a *app) recoverMember() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recover ID RAFT-ADDRESS --data-dir DIR",
		Short: "Go on with one JobManager after a majority is lost for good",
		Long: `Make one JobManager the only one of its cluster, so that it can go on after a majority of them has lost its data for
good. It works on the data directory of a JobManager that does not run. What only the lost ones knew is gone: a job may
go back to an older checkpoint, and write again what it had written after it. Of several survivors take the one with
the highest term, and among those the highest position. Afterwards start it, empty the data directories of the
others, start them, and add them one by one.

Without --yes it only shows what the directory holds.`,
		Example: "  weir members recover jm1 10.0.0.1:6124 --data-dir /var/lib/weir/jm\n" +
			"  weir members recover jm1 10.0.0.1:6124 --data-dir /var/lib/weir/jm --yes",
		Args: exactly("ID", "RAFT-ADDRESS"),
	}
	dir := cmd.Flags().String("data-dir", "", "data directory of the JobManager")
	yes := cmd.Flags().Bool("yes", false, "do it")
	_ = cmd.MarkFlagRequired("data-dir")
	_ = cmd.MarkFlagDirname("data-dir")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if _, port, err := net.SplitHostPort(args[1]); err != nil || port == "0" {
			return &usageError{fmt.Errorf("%q is not host:port", args[1])}
		}
		found, err := jobmanager.Recover(*dir, jobmanager.Member{ID: args[0], RaftAddress: args[1]}, *yes)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Out, "cluster %s: log of term %d up to position %d, with %d jobs; members:", found.ClusterID, found.Term, found.Last, found.Jobs)
		for _, m := range found.Members {
			fmt.Fprintf(a.Out, " %s", m)
		}
		fmt.Fprintln(a.Out)
		if *yes {
			fmt.Fprintf(a.Out, "%s is the only member now; start it\n", args[0])
		} else {
			a.note("nothing was changed; --yes makes %s the only member", args[0])
		}
		return nil
	}
	return cmd
}
