package local

import (
	"context"
	"log/slog"

	"github.com/weir-stream/weir/operator"
)

// Config is a local run.
type Config struct {
	// Plan compiles the job; it is called for every attempt, with 0.
	Plan func(parallelism int) (*operator.Program, error)
	// Dir is the state directory; it is created when absent.
	Dir string
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Clock defaults to the system's.
	Clock operator.Clock
}

// Run runs the job in this process until its input ends, ctx ends (a last checkpoint is taken and committed first) or it fails.
func Run(ctx context.Context, cfg Config) error { panic("not yet") }
