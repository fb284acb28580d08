package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-stream/weir/internal/client"
)

// IO is what a command reads and writes besides files.
type IO struct {
	Out, Err io.Writer
	// Environ has the form of os.Environ.
	Environ []string
}

// Exit codes; exitCodes tells them to users.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	// exitUnknown: a change was sent, and nobody knows whether it took effect.
	exitUnknown = 3
	// exitUnseen: a change took effect and goes on by itself; its end was not seen.
	exitUnseen = 4
)

const exitCodes = `Exit codes:
  0    done
  1    refused or failed; for a change: it did not take effect, or it ended badly, as the message says
  2    mistake in the command line
  3    the change was sent and whether it took effect is unknown; the message names the commands that tell
  4    the change was accepted and goes on by itself; only its end was not seen
  130  ended at once by a second interrupt or SIGTERM; for a change: as 3`

// unseenError tells that a change was accepted and that its end was not seen.
type unseenError struct{ err error }

func (e *unseenError) Error() string { return e.err.Error() }
func (e *unseenError) Unwrap() error { return e.err }

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// Execute runs the command line and returns the exit code.
func Execute(ctx context.Context, args []string, streams IO) int {
	root := build(streams, args)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(streams.Err, "weir: %s\n", worded(err))
	var usage *usageError
	var unknown *client.UnknownOutcomeError
	var unseen *unseenError
	switch {
	case errors.As(err, &usage), strings.HasPrefix(err.Error(), "unknown command"):
		return exitUsage
	case errors.As(err, &unseen): // first, as the look for the end may have failed in any way
		return exitUnseen
	case errors.As(err, &unknown):
		return exitUnknown
	}
	return exitFailed
}

// New returns the command tree.
func New(streams IO) *cobra.Command { return build(streams, nil) }

func build(streams IO, args []string) *cobra.Command {
	app := &app{IO: streams, args: args, poll: 100 * time.Millisecond}
	root := &cobra.Command{
		Use:   "weir",
		Short: "Run exactly-once stream processing jobs",
		Long: `weir runs and controls exactly-once stream processing jobs.

A cluster has one or more JobManagers (weir jobmanager) and TaskManagers (weir taskmanager).
Jobs are Go programs built with the weir SDK; weir submit sends them to a cluster.

Every command finds the leading JobManager by itself, whichever of --jobmanager it reaches. A change carries a request
id: repeated with the same one, also to a later leader, it is done once and gives the outcome of the first time.

` + exitCodes,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          onlyCommands,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w\nSee '%s --help'", err, cmd.CommandPath())}
	})
	root.AddGroup(
		&cobra.Group{ID: "jobs", Title: "Jobs:"},
		&cobra.Group{ID: "cluster", Title: "Cluster:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("jobs", app.submit(), app.list(), app.show(), app.explain(), app.cancel(), app.stop(), app.savepoint(), app.rescale(), app.checkpoints(), app.state(), app.txn(), app.logs())
	add("cluster", app.jobManager(), app.taskManager(), app.members(), app.storage(), app.config())
	root.AddCommand(app.version(), app.demo(), app.demoJob())
	return root
}

// app is what the commands share.
type app struct {
	IO
	args []string      // the command line, to name the one that repeats a request
	poll time.Duration // between two looks at a job
}

// clientFlags are the flags of every command that talks to a cluster.
type clientFlags struct {
	app       *app
	addresses []string
	patience  *time.Duration
	output    string
	security  *securityFlags
}

func (a *app) clientFlags(cmd *cobra.Command) *clientFlags {
	f := &clientFlags{app: a}
	addresses := []string{"127.0.0.1:6123"}
	if v := a.env("WEIR_JOBMANAGER"); v != "" {
		addresses = strings.Split(v, ",")
	}
	cmd.Flags().StringSliceVar(&f.addresses, "jobmanager", addresses, "host:port of JobManagers; also WEIR_JOBMANAGER")
	f.patience = positive(cmd, "patience", 15*time.Second, "how long to look for a leading JobManager")
	f.security = a.securityFlags(cmd)
	cmd.Flags().StringVarP(&f.output, "output", "o", "text", "format of the result: text or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return f
}

// connect returns a client for the flags' cluster.
func (f *clientFlags) connect() (*client.Client, error) {
	if f.output != "text" && f.output != "json" {
		return nil, &usageError{fmt.Errorf("--output: %q is neither text nor json", f.output)}
	}
	for i, address := range f.addresses {
		f.addresses[i] = strings.TrimSpace(address)
		if host, port, err := net.SplitHostPort(f.addresses[i]); err != nil || host == "" || port == "" {
			return nil, &usageError{fmt.Errorf("--jobmanager or WEIR_JOBMANAGER: %q is not host:port, such as 127.0.0.1:6123", f.addresses[i])}
		}
	}
	cfg := client.Config{Addresses: f.addresses, Patience: *f.patience}
	if err := f.security.apply(&cfg); err != nil {
		return nil, err
	}
	return client.New(cfg), nil
}

// env returns a variable of the environment.
func (a *app) env(name string) string {
	for _, e := range a.Environ {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// note writes a message for people.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.Err, format+"\n", args...)
}

// exactly is cobra.ExactArgs that exits as a mistake in the command line and names what is missing.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		expected := "no arguments"
		if len(names) > 0 {
			expected = strings.Join(names, " ")
		}
		got := fmt.Sprintf("%d arguments", len(args))
		if len(args) == 1 {
			got = "1 argument"
		}
		return &usageError{fmt.Errorf("expected %s, got %s\nSee '%s --help'", expected, got, cmd.CommandPath())}
	}
}

// onlyCommands refuses what is no sub-command, and names those that may have been meant.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2 // of letters; cobra's own suggestions set it too
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean '" + cmd.CommandPath() + " " + strings.Join(near, "' or '"+cmd.CommandPath()+" ") + "'?"
	}
	return &usageError{fmt.Errorf("%s\nSee '%s --help'", text, cmd.CommandPath())}
}

// sleep waits between two looks at a job.
func (a *app) sleep(ctx context.Context) error {
	select {
	case <-time.After(a.poll):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
