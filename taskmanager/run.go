package taskmanager

import (
	"context"
	"log/slog"
)

// Run runs a TaskManager until ctx ends, then says goodbye, stops the workers within the cancel deadline and returns nil.
func Run(ctx context.Context, cfg Config, logger *slog.Logger) error {
	panic("not yet")
}
