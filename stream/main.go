package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/weir-stream/weir/internal/gcpace"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/stream/internal/local"
	"github.com/weir-stream/weir/taskmanager/worker/control"
)

// Names of the environment variables by which a job binary learns what to do. Started by hand it runs the job locally.
const (
	envMode         = "WEIR_MODE" // "plan", "worker", or empty for a local run
	envPlanOutput   = "WEIR_PLAN_OUTPUT"
	envParallelism  = "WEIR_PARALLELISM"
	envOperators    = "WEIR_OPERATOR_PARALLELISM" // name=number, one a line
	envJobName      = "WEIR_JOB_NAME"
	envDefaultName  = "WEIR_JOB_DEFAULT_NAME" // of a job that sets none; the file's name where it is not given
	envSocket       = "WEIR_CONTROL_SOCKET"
	envToken        = "WEIR_TOKEN"
	envWorkDir      = "WEIR_WORK_DIR"
	envStateDir     = "WEIR_STATE_DIR"
	envLogLevel     = "WEIR_LOG_LEVEL"
	envAllowDropped = "WEIR_ALLOW_DROPPED_STATE"
)

// Option changes how [Main] runs a job.
type Option func(*options)

type options struct {
	stateDir string
	logger   *slog.Logger
}

// WithStateDir sets where a local run keeps its state; the default is ./.weir/ and the job's name. The environment variable
// WEIR_STATE_DIR takes precedence.
func WithStateDir(dir string) Option { return func(o *options) { o.stateDir = dir } }

// WithLogger sets the logger of the worker and of a local run; the default writes text to standard error, at the level that the
// environment variable WEIR_LOG_LEVEL names.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// Main is the whole main function of a job binary. Started by hand it runs the job in this process, with checkpoints below the state
// directory, until the input ends or SIGINT or SIGTERM stops it after a last checkpoint; a second signal ends it at once. Started by
// a cluster it plans the job or runs a part of it. It does not return: the exit code is 0, or 1 after an error, which it prints.
//
// A local run refuses to resume from a checkpoint with state that the job does not have any more, unless the environment variable
// WEIR_ALLOW_DROPPED_STATE is 1: then that state is dropped.
//
// References ${env:NAME} and ${file:PATH} in the program's arguments are replaced before the job function runs, but in the plan, so
// that secrets stay on the machines that use them.
func Main(job func(*Env) error, opts ...Option) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for a clean end; from then on signals have their normal effect.
	context.AfterFunc(ctx, stop)
	code := run(ctx, job, host{
		args: os.Args, getenv: os.Getenv, stderr: os.Stderr, setArgs: func(args []string) { os.Args = args },
	}, opts)
	stop()
	os.Exit(code)
}

// host is what Main takes from the process it runs in.
type host struct {
	args    []string
	setArgs func([]string)
	getenv  func(string) string
	stderr  io.Writer
}

// run carries out Main and returns the exit code.
func run(ctx context.Context, job func(*Env) error, p host, opts []Option) int {
	err := dispatch(ctx, job, p, opts)
	if err == nil {
		return 0
	}
	for _, e := range split(err) {
		// An error of several lines has a stack; its lines are set off from the next error.
		fmt.Fprintln(p.stderr, "error: "+strings.ReplaceAll(strings.TrimSpace(e.Error()), "\n", "\n  "))
	}
	return 1
}

func dispatch(ctx context.Context, job func(*Env) error, p host, opts []Option) error {
	job = withFlags(job)
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if o.logger == nil {
		var level slog.Level
		if name := p.getenv(envLogLevel); name != "" {
			if err := level.UnmarshalText([]byte(name)); err != nil {
				return fmt.Errorf("%s: %w; use debug, info, warn or error", envLogLevel, err)
			}
		}
		o.logger = slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: level}))
	}
	plan := PlanOptions{Name: p.getenv(envJobName), DefaultName: p.getenv(envDefaultName)}
	if plan.DefaultName == "" {
		plan.DefaultName = strings.TrimSuffix(filepath.Base(p.args[0]), ".exe")
	}
	if text := p.getenv(envParallelism); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("%s: %q is not a positive number", envParallelism, text)
		}
		plan.Parallelism = n
	}
	for _, line := range strings.Split(p.getenv(envOperators), "\n") {
		if line == "" {
			continue
		}
		i := strings.LastIndex(line, "=")
		n, err := strconv.Atoi(line[i+1:])
		if i < 1 || err != nil || n < 1 {
			return fmt.Errorf("%s: %q is not an operator's name, = and a positive number", envOperators, line)
		}
		if plan.Operators == nil {
			plan.Operators = make(map[string]int)
		}
		plan.Operators[line[:i]] = n
	}
	mode := p.getenv(envMode)
	if mode == "plan" {
		return writePlan(job, plan, p.getenv(envPlanOutput))
	}
	defer gcpace.Start()()
	args, err := resolveArgs(p.args, p.getenv)
	planned := planFunc(job, plan)
	switch {
	case err == nil:
		p.setArgs(args)
	case mode == "worker":
		// Reported in place of a plan, so that it fails the job: an exit would have it started again and again.
		reason := errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
		planned = func(int) (*operator.Program, error) { return nil, reason }
	default:
		return err
	}
	switch mode {
	case "worker":
		return control.Run(ctx, control.Config{
			Socket: p.getenv(envSocket), Token: p.getenv(envToken), Dir: p.getenv(envWorkDir),
			Plan: planned, Logger: o.logger,
		})
	case "":
		allowDropped := false
		if text := p.getenv(envAllowDropped); text != "" {
			if allowDropped, err = strconv.ParseBool(text); err != nil {
				return fmt.Errorf("%s: %q is neither 1 nor 0", envAllowDropped, text)
			}
		}
		return runLocal(ctx, job, plan, local.Config{Dir: p.getenv(envStateDir), AllowDroppedState: allowDropped, Logger: o.logger}, o.stateDir)
	default:
		return fmt.Errorf("%s: unknown mode %q; leave it unset to run the job here", envMode, mode)
	}
}

// planFunc returns the function by which a worker plans the job for a given parallelism.
func planFunc(job func(*Env) error, o PlanOptions) func(int) (*operator.Program, error) {
	return func(parallelism int) (*operator.Program, error) {
		o := o
		if parallelism > 0 {
			o.Parallelism = parallelism
		}
		return Plan(job, o)
	}
}

// runLocal runs the job in this process. Without a directory in cfg it uses stateDir, and without that one named after the job.
func runLocal(ctx context.Context, job func(*Env) error, o PlanOptions, cfg local.Config, stateDir string) error {
	program, err := Plan(job, o)
	if err != nil {
		return err
	}
	if cfg.Dir == "" {
		cfg.Dir = stateDir
	}
	if cfg.Dir == "" {
		cfg.Dir = filepath.Join(".weir", filepath.Base(program.Graph.Name))
	}
	cfg.Plan = planFunc(job, o)
	return local.Run(ctx, cfg)
}
