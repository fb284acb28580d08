package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-stream/weir/internal/config"
	"github.com/weir-stream/weir/jobmanager"
	"github.com/weir-stream/weir/jobmanager/raftnode"
	"github.com/weir-stream/weir/taskmanager"
)

// role is a kind of node: how its configuration is made and checked, and how it runs.
type role[C any] struct {
	name   string
	prefix string // of environment variables
	basis  func() C
	check  func(C) error
	files  func(C) error // checks the files that it names
	run    func(context.Context, C, *slog.Logger) error
	// limit is how long the node may take to stop, whatever it depends on does.
	limit func(C) time.Duration
}

var jobManagerRole = role[jobmanager.Config]{"jobmanager", "WEIR_JM", jobmanager.Default, jobmanager.Config.Validate, jobmanager.Config.CheckFiles, jobmanager.Run, jobManagerLimit}

var taskManagerRole = role[taskmanager.Config]{"taskmanager", "WEIR_TM", taskmanager.Default, taskmanager.Config.Validate, taskmanager.Config.CheckFiles, taskmanager.Run, taskManagerLimit}

// stopSlack is what stopping may take beyond what the settings say: closing files, cutting connections.
const stopSlack = 8 * time.Second

func jobManagerLimit(c jobmanager.Config) time.Duration { return c.ShutdownTimeout + stopSlack }

func taskManagerLimit(c taskmanager.Config) time.Duration { return c.CancelDeadline + stopSlack }

// runWithin runs the node until it ends, or until it has not stopped within its limit after ctx ended: a disk or a mount that hangs
// must not keep the process. What it still does ends with the process, which is why the caller must exit.
func (r role[C]) runWithin(ctx context.Context, cfg C, logger *slog.Logger) error {
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx, cfg, logger) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	limit := r.limit(cfg)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return fmt.Errorf("the %s did not stop within %s and is ended at once: its disk or its checkpoint storage may hang; nothing that was acknowledged is lost", r.name, limit)
	}
}

// flags defines the flags of the role's settings on cmd. The returned function builds the configuration: defaults, then the file, the
// environment, and the flags.
func (r role[C]) flags(a *app, cmd *cobra.Command) func() (C, error) {
	defaults := r.basis()
	file := cmd.Flags().String("config", a.env(r.prefix+"_CONFIG"), "YAML file of the settings; also "+r.prefix+"_CONFIG")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	apply := config.Flags(cmd.Flags(), &defaults)
	return func() (C, error) {
		cfg := r.basis()
		var fileErr error
		if *file != "" {
			fileErr = config.File(*file, &cfg)
		}
		err := errors.Join(fileErr, config.Env(r.prefix, a.Environ, &cfg, r.prefix+"_CONFIG"), apply(&cfg), r.check(cfg))
		if err == nil {
			err = r.files(cfg)
		}
		if err != nil {
			return cfg, fmt.Errorf("the configuration of the %s has problems:\n%w", r.name, err)
		}
		return cfg, nil
	}
}

// command returns the command that runs the role.
func (r role[C]) command(a *app, cmd *cobra.Command) *cobra.Command {
	build := r.flags(a, cmd)
	log := a.logFlags(cmd)
	cmd.Args = exactly()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		logger, err := log()
		if err != nil {
			return err
		}
		cfg, err := build()
		if err != nil {
			return err
		}
		if err := r.runWithin(cmd.Context(), cfg, logger); err != nil {
			if errors.Is(err, raftnode.ErrHangs) { // and so may standard error, which still waits for the reason
				time.AfterFunc(time.Second, func() { os.Exit(exitFailed) })
			}
			return err
		}
		logger.Info("stopped", "role", r.name)
		return nil
	}
	return cmd
}

func (a *app) jobManager() *cobra.Command {
	return jobManagerRole.command(a, &cobra.Command{
		Use:   "jobmanager",
		Short: "Run a JobManager",
		Long: `Run a JobManager: one of the 1, 3 or 5 processes that keep the jobs of a cluster and decide about them.

Settings come from the file, from variables named after them (WEIR_JM_DATA_DIR), and from flags, each overriding the
one before. The first SIGTERM or interrupt stops it in order, the second one at once.`,
		Example: `  weir jobmanager --data-dir /var/lib/weir/jm --storage-url file:///srv/weir
  weir jobmanager --config jm.yaml --log-format json`,
	})
}

func (a *app) taskManager() *cobra.Command {
	return taskManagerRole.command(a, &cobra.Command{
		Use:   "taskmanager",
		Short: "Run a TaskManager",
		Long: `Run a TaskManager: a process that runs the workers of a cluster's jobs on this machine.

Settings come from the file, from variables named after them (WEIR_TM_DATA_DIR), and from flags, each overriding the
one before. The first SIGTERM or interrupt stops it and its workers in order, the second one at once.`,
		Example: `  weir taskmanager --data-dir /var/lib/weir/tm --storage-url file:///srv/weir
  weir taskmanager --config tm.yaml --slots 8`,
	})
}

// logFlags defines how a node logs.
func (a *app) logFlags(cmd *cobra.Command) func() (*slog.Logger, error) {
	level := cmd.Flags().String("log-level", "info", "least level logged: debug, info, warn or error")
	format := cmd.Flags().String("log-format", "text", "format of the log on standard error: text or json")
	_ = cmd.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return func() (*slog.Logger, error) {
		var l slog.Level
		if err := l.UnmarshalText([]byte(*level)); err != nil {
			return nil, &usageError{fmt.Errorf("--log-level: %q is not debug, info, warn or error", *level)}
		}
		options := &slog.HandlerOptions{Level: l}
		switch *format {
		case "text":
			return slog.New(slog.NewTextHandler(a.Err, options)), nil
		case "json":
			return slog.New(slog.NewJSONHandler(a.Err, options)), nil
		default:
			return nil, &usageError{fmt.Errorf("--log-format: %q is neither text nor json", *format)}
		}
	}
}
