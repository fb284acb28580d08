package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-stream/weir/internal/localcluster"
)

// Workers returns the process ids of the workers that a TaskManager runs now.
func Workers(tm *localcluster.Process) []int {
	var out []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // gone meanwhile
		}
		// The command name is in parentheses and may hold spaces; state and parent follow it.
		_, rest, ok := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		if ppid, err := strconv.Atoi(fields[1]); err == nil && ppid == tm.PID() {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			out = append(out, pid)
		}
	}
	return out
}

// WorkerOf returns a worker and its TaskManager.
func (c *Cluster) WorkerOf() (pid int, tm *localcluster.Process, err error) {
	for _, p := range c.TaskManagers() {
		if p.Running() {
			if pids := Workers(p); len(pids) > 0 {
				return pids[0], p, nil
			}
		}
	}
	return 0, nil, fmt.Errorf("no TaskManager runs a worker")
}

// WorkersByTaskManager returns the process ids of all workers, by the id of their TaskManager.
func (c *Cluster) WorkersByTaskManager() map[string][]int {
	out := map[string][]int{}
	for _, p := range c.TaskManagers() {
		if !p.Running() {
			continue
		}
		if pids := Workers(p); len(pids) > 0 {
			slices.Sort(pids)
			out[p.ID] = pids
		}
	}
	return out
}

// AwaitDead waits until no process with one of the ids is left.
func AwaitDead(t testing.TB, pids []int, timeout time.Duration) {
	t.Helper()
	Eventually(t, timeout, "the processes to be gone", func() error {
		for _, pid := range pids {
			if err := syscall.Kill(pid, 0); err == nil {
				return fmt.Errorf("process %d lives", pid)
			}
		}
		return nil
	})
}
