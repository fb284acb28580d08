package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// writePidFile records a child.
func writePidFile(path string, pid int) error {
	mark, err := startMark(pid)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(mark), 0o600)
}

// leftoverLimit is how long a killed process may take to go away.
const leftoverLimit = 10 * time.Second

// killLeftovers kills the recorded children of a former supervisor and returns when none of them runs.
func killLeftovers(dir string, logger *slog.Logger) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("looking for workers left running: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), leftoverLimit)
	defer cancel()
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid > 1 {
			recorded, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("looking for workers left running: %w", err)
			}
			if err := killLeftover(ctx, pid, string(recorded), logger); err != nil {
				return err
			}
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("looking for workers left running: %w", err)
		}
	}
	return nil
}

func killLeftover(ctx context.Context, pid int, recorded string, logger *slog.Logger) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for told := false; ; {
		mark, err := startMark(pid)
		if err != nil || mark != recorded {
			return nil // gone, or another process has its number
		}
		if !told {
			logger.Warn("killing a worker left by a former TaskManager process", "pid", pid)
			told = true
		}
		if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("killing worker process %d, left running by a former TaskManager process: %w", pid, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("worker process %d, left running by a former TaskManager process, does not die within %v: it may be stuck in the kernel; reboot the machine", pid, leftoverLimit)
		}
	}
}
