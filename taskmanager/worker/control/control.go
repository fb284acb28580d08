// Package control connects a worker process to its TaskManager: commands in, events out, state files through its RPCs.
package control

import (
	"context"
	"log/slog"

	"github.com/weir-stream/weir/operator"
)

// Config is what worker mode is started with.
type Config struct {
	// Socket is the path of the TaskManager's unix socket for this process.
	Socket string
	// Token identifies this process to the TaskManager.
	Token string
	// Dir is the process's scratch directory.
	Dir string
	// Plan compiles the job; see worker.Config.
	Plan   func(parallelism int) (*operator.Program, error)
	Logger *slog.Logger
}

// Run serves as a worker until it is finished, canceled or failed, or the TaskManager is gone. The process should exit with code 0
// when it returns nil and 1 otherwise.
func Run(ctx context.Context, cfg Config) error { panic("not yet") }
