package harness

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-stream/weir/internal/localcluster"
)

// Workers returns the process ids of the workers that a TaskManager runs now.
func Workers(tm *localcluster.Process) []int { return tm.Children() }

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

// WorkersOf returns the process ids of the workers that run a job which writes to a topic: they have its name among their arguments.
func (c *Cluster) WorkersOf(topic string) []int {
	var of []int
	for _, pids := range c.WorkersByTaskManager() {
		for _, pid := range pids {
			args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err == nil && slices.Contains(strings.Split(string(args), "\x00"), topic) {
				of = append(of, pid)
			}
		}
	}
	return of
}

// WorkersByTaskManager returns the process ids of all workers, by the id of their TaskManager.
func (c *Cluster) WorkersByTaskManager() map[string][]int {
	out := map[string][]int{}
	for _, p := range c.TaskManagers() {
		if !p.Running() {
			continue
		}
		if pids := Workers(p); len(pids) > 0 {
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
