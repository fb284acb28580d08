package jobmanager

import (
	"context"
	"log/slog"
)

// Run runs a JobManager until ctx ends, and then shuts it down in order within cfg.ShutdownTimeout. It returns nil after an orderly
// shutdown, raftnode.ErrInUse when another process has the data directory open, and any other error that made it give up.
func Run(ctx context.Context, cfg Config, logger *slog.Logger) error {
	s, err := Start(cfg, logger)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
