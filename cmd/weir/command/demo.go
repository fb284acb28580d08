package command

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weir-stream/weir/internal/demo"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/internal/orders"
	"github.com/weir-stream/weir/stream"
)

// errWrongAnswer makes the demo exit with an error when the output differs from the right answer.
var errWrongAnswer = errors.New("the committed output differs from the right answer")

func (a *app) demo() *cobra.Command {
	var (
		o        demo.Options
		kills    []string
		headless bool
		output   string
		keep     string
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Kill parts of a cluster under load and count what is lost",
		Long: `Start three JobManagers and two TaskManagers as real processes on loopback, an embedded broker, and a job that
sums numbered orders per user in windows of one second. Kill processes with SIGKILL meanwhile: the job restarts when
a TaskManager or a worker dies, and runs on when the leading JobManager does. At the end compute
the right answer again and compare it with what a read_committed reader saw: missing, duplicated and wrong results.
The exit code is 0 only when there are none. The run takes --records divided by --rate and a few seconds more: about
half a minute with the defaults.`,
		Example: `  weir demo
  weir demo --headless --kills jm,jm,jm -o json
  weir demo --kills worker,tm
  weir demo --brokers localhost:9092 --records 1000000 --rate 50000`,
		Args: exactly(),
	}
	cmd.Flags().Uint64Var(&o.Records, "records", 250_000, fmt.Sprintf("orders to produce, from %d to %d", demo.MinRecords, demo.MaxRecords))
	cmd.Flags().Uint64Var(&o.Rate, "rate", 10_000, fmt.Sprintf("orders per second, from %d to %d", demo.MinRate, demo.MaxRate))
	cmd.Flags().StringSliceVar(&kills, "kills", []string{"tm", "jm", "tm"}, "processes to kill in turn: tm (a TaskManager with tasks), jm (the leading JobManager), worker (a process that runs tasks), or none")
	cmd.Flags().StringSliceVar(&o.Brokers, "brokers", nil, "host:port of a Kafka to use instead of the embedded broker")
	cmd.Flags().DurationVar(&o.Interval, "checkpoint-interval", time.Second, "time between checkpoints, from 10ms to 1m")
	cmd.Flags().BoolVar(&headless, "headless", false, "print only the result")
	cmd.Flags().StringVar(&keep, "dir", "", "keep data and logs of the cluster in this new directory")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "format of the result: text or json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if output != "text" && output != "json" {
			return &usageError{fmt.Errorf("--output: %q is neither text nor json", output)}
		}
		if o.Kills, err = roles(kills); err == nil {
			err = o.Validate()
		}
		if err != nil {
			return &usageError{err}
		}
		if !headless {
			o.Progress = a.Err
			if fd := int(os.Stderr.Fd()); a.Err == os.Stderr && term.IsTerminal(fd) {
				o.Live = true
				o.Width, _, _ = term.GetSize(fd) // 0 where it is unknown
			}
		}
		if o.Binary, err = os.Executable(); err != nil {
			return err
		}
		remove := keep == ""
		if o.Dir, err = demoDir(keep); err != nil {
			return err
		}
		report, err := demo.Run(cmd.Context(), o)
		if err != nil {
			return a.unfinishedDemo(cmd.Context(), err, o.Dir, remove)
		}
		if err := a.printDemo(report, output); err != nil {
			return err
		}
		if !report.Right() {
			return fmt.Errorf("%w; the logs of the cluster are in %s", errWrongAnswer, o.Dir)
		}
		if remove {
			return os.RemoveAll(o.Dir)
		}
		return nil
	}
	return cmd
}

// unfinishedDemo leaves no directory behind that nobody asked for, unless there are logs in it that tell why the run failed.
func (a *app) unfinishedDemo(ctx context.Context, err error, dir string, remove bool) error {
	interrupted := ctx.Err() != nil
	switch {
	case interrupted && remove:
		if err := os.RemoveAll(dir); err != nil {
			a.note("%s was not removed: %v", dir, err)
		}
		return ctx.Err()
	case interrupted:
		a.note("the logs of the cluster are in %s", dir)
		return ctx.Err()
	case remove && os.Remove(dir) == nil: // it was empty
		return err
	}
	return fmt.Errorf("%w\nthe logs of the cluster are in %s", err, dir)
}

// demoDir makes the directory of a run.
func demoDir(keep string) (string, error) {
	if keep == "" {
		return os.MkdirTemp("", "weir-demo-")
	}
	if err := os.Mkdir(keep, 0o755); err != nil {
		return "", fmt.Errorf("--dir: %w", err)
	}
	return keep, nil
}

// roles reads the value of --kills.
func roles(names []string) ([]localcluster.Role, error) {
	var out []localcluster.Role
	for _, n := range names {
		switch n {
		case "tm":
			out = append(out, localcluster.TaskManager)
		case "jm":
			out = append(out, localcluster.JobManager)
		case "worker":
			out = append(out, localcluster.Worker)
		case "", "none":
		default:
			return nil, fmt.Errorf("--kills: %q is none of tm, jm, worker, none", n)
		}
	}
	return out, nil
}

func (a *app) printDemo(r demo.Report, output string) error {
	if output == "json" {
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.Out, "%s\n", text)
		return err
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "orders produced\t%d\n", r.Produced)
	fmt.Fprintf(w, "results expected\t%d\n", r.ExpectedWindows)
	fmt.Fprintf(w, "missing\t%d\n", r.Missing)
	fmt.Fprintf(w, "duplicated\t%d\n", r.Duplicated)
	fmt.Fprintf(w, "wrong\t%d\n", r.Wrong)
	for _, k := range r.Kills {
		fmt.Fprintf(w, "kill -9 %s\tlongest gap in committed output %.1f s\n", k.ID, float64(k.GapMS)/1000)
	}
	fmt.Fprintf(w, "checkpoints completed\t%d\n", r.Checkpoints)
	fmt.Fprintf(w, "job restarts\t%d\n", r.JobRestarts)
	verdict := "every result exactly once"
	if !r.Right() {
		verdict = "NOT exactly once"
	}
	fmt.Fprintf(w, "\n%s\n", verdict)
	return w.Flush()
}

// demoJob is the demo's job: the weir binary is its own job binary, so that the demo needs no Go toolchain.
func (a *app) demoJob() *cobra.Command {
	return &cobra.Command{
		Use:                demo.JobCommand,
		Short:              "Run the demo's job",
		Hidden:             true,
		DisableFlagParsing: true,
		Run: func(*cobra.Command, []string) {
			stream.Main(func(env *stream.Env) error {
				var t orders.Topics
				f := flag.NewFlagSet(demo.JobCommand, flag.ContinueOnError)
				brokers := f.String("brokers", "", "host:port of the brokers, separated by commas")
				f.StringVar(&t.Orders, "orders", "", "input topic")
				f.StringVar(&t.Totals, "totals", "", "output topic")
				interval := f.Duration("interval", time.Second, "time between checkpoints")
				if err := f.Parse(os.Args[2:]); err != nil {
					return err
				}
				t.Brokers = strings.Split(*brokers, ",")
				env.SetCheckpointInterval(*interval)
				orders.Describe(env, t)
				return nil
			})
		},
	}
}
