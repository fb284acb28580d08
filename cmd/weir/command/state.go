package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-stream/weir/internal/inspect"
	"github.com/weir-stream/weir/statebackend/blob/storage"
)

func (a *app) state() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Look into a savepoint or checkpoint",
		Long: `Read a savepoint or a checkpoint, from any storage and without a cluster. Nothing is changed.

SAVEPOINT is the address of its directory, such as file:///srv/weir/savepoints/savepoint-01J-7 or s3://bucket/weir/...?region=eu-central-1,
or a path on this machine. A checkpoint is named where it lies: STORAGE/CLUSTER/jobs/JOB/checkpoints/N.

Keys and values are shown as far as their encoding describes itself: numbers, strings, times, and structs, which are MessagePack with
fields by name. Others (protobuf, types that encode themselves) are shown as hexadecimal bytes, with a note.

Rows whose time to live was over when the snapshot was taken are left out: the job does not see them either.`,
		Example: "  weir state ls file:///srv/weir/savepoints/savepoint-01J-7",
		Args:    onlyCommands,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.stateList(), a.stateGet(), a.stateExport())
	return cmd
}

// withSnapshot opens a savepoint or checkpoint for the time of a call.
func withSnapshot(ctx context.Context, address string, fn func(*inspect.Snapshot) error) error {
	s, err := inspect.Open(ctx, address, storage.OpenURL)
	if err != nil {
		return err
	}
	return errors.Join(fn(s), s.Close())
}

func (a *app) stateList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls SAVEPOINT",
		Short: "List operators and their states, with the number of keys and their size",
		Long: `List the operators of a savepoint or checkpoint and their states: the codecs of key and value, the number of keys and rows, and
the encoded size. All of the state is read for that.`,
		Example: "  weir state ls file:///srv/weir/savepoints/savepoint-01J-7",
		Args:    exactly("SAVEPOINT"),
	}
	output := cmd.Flags().StringP("output", "o", "text", "format of the result: text or json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *output != "text" && *output != "json" {
			return &usageError{fmt.Errorf("--output: %q is neither text nor json", *output)}
		}
		return withSnapshot(cmd.Context(), args[0], func(s *inspect.Snapshot) error {
			all, err := s.Summaries(cmd.Context())
			if err != nil {
				return err
			}
			if *output == "json" {
				return a.writeIndented(map[string]any{
					"job": s.Metadata.GetJobId(), "checkpoint": s.Metadata.GetCheckpoint(), "savepoint": s.Metadata.GetSavepoint(),
					"maxParallelism": s.Metadata.GetMaxParallelism(), "states": all,
				})
			}
			kind := "checkpoint"
			if s.Metadata.GetSavepoint() {
				kind = "savepoint"
			}
			fmt.Fprintf(a.Out, "%s %d of job %s, %s, maximum parallelism %d\n\n", kind, s.Metadata.GetCheckpoint(), s.Metadata.GetJobId(),
				clock(s.Metadata.GetTriggeredAtMs()), s.Metadata.GetMaxParallelism())
			rows := [][]string{{"OPERATOR", "STATE", "KIND", "KEY", "VALUE", "TTL", "KEYS", "ROWS", "SIZE"}}
			for _, m := range all {
				keys := "-"
				if m.Keys > 0 {
					keys = fmt.Sprint(m.Keys)
				}
				rows = append(rows, []string{m.Operator, m.State, m.Kind, orDash(m.KeyCodec), orDash(m.Codec), ttl(m), keys, fmt.Sprint(m.Rows), size(m.Bytes)})
			}
			return writeTable(a.Out, rows)
		})
	}
	return cmd
}

// ttl names a state's time to live.
func ttl(m *inspect.Summary) string {
	if m.TTL == 0 {
		return "-"
	}
	d := (time.Duration(m.TTL) * time.Millisecond).String()
	if m.EventTime {
		return d + " event"
	}
	return d
}

func (a *app) writeIndented(v any) error {
	enc := json.NewEncoder(a.Out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// writeEntries writes entries as JSON, one a line, and returns their number.
func (a *app) writeEntries(ctx context.Context, s *inspect.Snapshot, f inspect.Filter) (n int, err error) {
	enc := json.NewEncoder(a.Out)
	enc.SetEscapeHTML(false)
	err = s.Each(ctx, f, func(e *inspect.Entry) error {
		n++
		return enc.Encode(e)
	})
	return n, err
}

func expiredFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("expired", false, `also rows whose time to live was over, with "expired":true, as far as they are still there`)
}

func (a *app) stateGet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get SAVEPOINT OPERATOR STATE KEY",
		Short: "Print what a state has for one key",
		Long: `Print the rows that a state of an operator has for a key, as JSON, one a line. KEY is the text of a string or number, JSON for a
struct or array (its parts in order, such as ["a",7]), or the encoded bytes as 0x and hexadecimal digits. weir state ls lists operators and
states; the state of a window is called after it, window/SIZE/SLIDE/OFFSET in milliseconds.`,
		Example: "  weir state get file:///srv/weir/savepoints/savepoint-01J-7 count totals customer-17\n" +
			"  weir state get file:///srv/weir/savepoints/savepoint-01J-7 sums window/60000/60000/0 ann",
		Args: exactly("SAVEPOINT", "OPERATOR", "STATE", "KEY"),
	}
	expired := expiredFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withSnapshot(cmd.Context(), args[0], func(s *inspect.Snapshot) error {
			n, err := a.writeEntries(cmd.Context(), s, inspect.Filter{Operator: args[1], State: args[2], Key: args[3], HasKey: true, Expired: *expired})
			if err == nil && n == 0 {
				err = fmt.Errorf("state %s of operator %s has nothing for key %q", args[2], args[1], args[3])
			}
			return err
		})
	}
	return cmd
}

func (a *app) stateExport() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "export SAVEPOINT",
		Short:   "Print all of the state as JSON lines",
		Long:    "Print the rows of all states as JSON, one a line, or those of one operator or state. One that is not there is an error.",
		Example: "  weir state export file:///srv/weir/savepoints/savepoint-01J-7 --operator count > state.jsonl",
		Args:    exactly("SAVEPOINT"),
	}
	operator := cmd.Flags().String("operator", "", "of this operator only")
	state := cmd.Flags().String("state", "", "of this state only")
	expired := expiredFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withSnapshot(cmd.Context(), args[0], func(s *inspect.Snapshot) error {
			_, err := a.writeEntries(cmd.Context(), s, inspect.Filter{Operator: *operator, State: *state, Expired: *expired})
			return err
		})
	}
	return cmd
}
