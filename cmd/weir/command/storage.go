package command

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

func (a *app) storage() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "storage",
		Short:   "Look after the cluster's checkpoint storage",
		Example: "  weir storage sweep --dry-run",
		Args:    onlyCommands,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.sweep())
	return cmd
}

func (a *app) sweep() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Delete files that no job needs",
		Long: `Delete the files of this cluster's jobs on checkpoint storage that no job needs and none can come to need, and list them with size,
age and reason. Jobs delete what they do not need any more by themselves; this finds what was left when that went wrong for good.
It may run beside everything else. Savepoints, files of other clusters and files of other kinds are never touched, nor is any file that a
checkpoint in the log refers to; where a checkpoint cannot be read, the files of its job are left alone.`,
		Example: "  weir storage sweep --dry-run\n  weir storage sweep --older-than 168h",
		Args:    exactly(),
	}
	flags := a.clientFlags(cmd)
	dry := cmd.Flags().Bool("dry-run", false, "list what would be deleted, and delete nothing")
	age := positive(cmd, "older-than", 24*time.Hour, "only files that have not changed for this long, at least 1m")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags.connect()
		if err != nil {
			return err
		}
		defer c.Close()
		all := &jobv1.SweepStorageResponse{}
		for failed := 0; failed == 0; {
			req := &jobv1.SweepStorageRequest{OlderThanMs: uint64(age.Milliseconds()), DryRun: *dry}
			resp, err := ask(cmd.Context(), c, req, jobv1.JobServiceClient.SweepStorage)
			if err != nil {
				return err
			}
			all.Orphans = append(all.Orphans, resp.GetOrphans()...)
			all.More, all.LeftAlone = resp.GetMore(), resp.GetLeftAlone()
			if failed = failures(resp.GetOrphans()); *dry || !resp.GetMore() {
				break
			}
		}
		if flags.output == "json" {
			err = writeJSON(a.Out, all)
		} else {
			err = a.writeSwept(all, *dry)
		}
		if n := failures(all.GetOrphans()); err == nil && n > 0 {
			return fmt.Errorf("%d of %d files could not be deleted: they are tried again by the next sweep", n, len(all.GetOrphans()))
		}
		return err
	}
	return cmd
}

func failures(orphans []*jobv1.Orphan) (n int) {
	for _, o := range orphans {
		if o.GetError() != "" {
			n++
		}
	}
	return n
}

func (a *app) writeSwept(r *jobv1.SweepStorageResponse, dry bool) error {
	var bytes uint64
	rows := [][]string{{"FILE", "SIZE", "AGE", "REASON"}}
	for _, o := range r.GetOrphans() {
		reason := o.GetReason()
		if o.GetError() != "" {
			reason += "; not deleted: " + o.GetError()
		} else {
			bytes += o.GetSize()
		}
		rows = append(rows, []string{o.GetName(), size(o.GetSize()), short(time.Duration(o.GetAgeMs()) * time.Millisecond), reason})
	}
	if len(rows) > 1 {
		if err := writeTable(a.Out, rows); err != nil {
			return err
		}
	}
	verb := "deleted"
	if dry {
		verb = "to be deleted"
	}
	files := "files"
	n := len(r.GetOrphans()) - failures(r.GetOrphans())
	if n == 1 {
		files = "file"
	}
	fmt.Fprintf(a.Out, "%d %s with %s %s\n", n, files, size(bytes), verb)
	if r.GetMore() {
		a.note("there are more than are listed")
	}
	for _, l := range r.GetLeftAlone() {
		a.note("left alone: %s", l)
	}
	return nil
}
