package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/localcluster"
)

// BuildWithFaultPoints builds the executables with fault points, once per test binary.
var BuildWithFaultPoints = sync.OnceValues(func() (Binaries, error) { return build("-tags", "faultpoint") })

// StartWithFaultPoints is Start with executables that have fault points, none of them armed.
func StartWithFaultPoints(t testing.TB, cfg localcluster.Config) *Cluster {
	t.Helper()
	return startWithFaultPoints(t, cfg, kafkatest.Shared(t), func(id string) string { return id })
}

// StartOnWithFaultPoints is StartWithFaultPoints with a broker of the test's own.
func StartOnWithFaultPoints(t testing.TB, cfg localcluster.Config, broker *kafkatest.Broker) *Cluster {
	t.Helper()
	return startWithFaultPoints(t, cfg, broker, func(id string) string { return id })
}

// StartWithSharedFaultPoints is StartWithFaultPoints where a point is armed for a role: of its processes, the first that comes by acts.
func StartWithSharedFaultPoints(t testing.TB, cfg localcluster.Config) *Cluster {
	t.Helper()
	return startWithFaultPoints(t, cfg, kafkatest.Shared(t), func(id string) string {
		if id[:2] == "jm" {
			return string(localcluster.JobManager)
		}
		return string(localcluster.TaskManager)
	})
}

func startWithFaultPoints(t testing.TB, cfg localcluster.Config, broker *kafkatest.Broker, who func(id string) string) *Cluster {
	t.Helper()
	bin, err := BuildWithFaultPoints()
	require.NoError(t, err)
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	cfg.Environment = func(id string) []string {
		dir := pointsDir(cfg.Dir, who(id))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		return []string{faultpoint.EnvDir + "=" + dir}
	}
	return start(t, cfg, broker, bin)
}

func pointsDir(dir, who string) string { return filepath.Join(dir, "faultpoints", who) }

func (c *Cluster) pointFile(p *localcluster.Process, point faultpoint.Point) string {
	return filepath.Join(pointsDir(c.Dir, p.ID), string(point))
}

// Arm makes a node, and the workers that it starts, act at a point from now on; see package faultpoint for the actions.
func (c *Cluster) Arm(p *localcluster.Process, point faultpoint.Point, action string) {
	c.t.Helper()
	require.NoError(c.t, ArmFile(c.pointFile(p, point), action))
}

// ArmFile arms the point that a file in the directory of a program's points is named after.
func ArmFile(path, action string) error {
	if err := os.RemoveAll(path + faultpoint.Fired); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", []byte(action), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Disarm undoes Arm, whether the node has acted or not.
func (c *Cluster) Disarm(p *localcluster.Process, point faultpoint.Point) {
	c.t.Helper()
	require.NoError(c.t, disarmFile(c.pointFile(p, point)))
}

func disarmFile(path string) error {
	return errors.Join(os.RemoveAll(path), os.RemoveAll(path+faultpoint.Fired))
}

// AwaitAnyFired waits until one of some nodes is at an armed point, and returns it.
func (c *Cluster) AwaitAnyFired(nodes []*localcluster.Process, point faultpoint.Point, timeout time.Duration) *localcluster.Process {
	c.t.Helper()
	var at *localcluster.Process
	Eventually(c.t, timeout, "a node to be at "+string(point), func() error {
		for _, p := range nodes {
			if _, err := os.Stat(c.pointFile(p, point) + faultpoint.Fired); err == nil {
				at = p
				return nil
			}
		}
		return errors.New("none is")
	})
	return at
}

// AwaitFired waits until a node is at an armed point.
func (c *Cluster) AwaitFired(p *localcluster.Process, point faultpoint.Point, timeout time.Duration) {
	c.t.Helper()
	c.AwaitAnyFired([]*localcluster.Process{p}, point, timeout)
}

// Fired reports whether a node has acted at an armed point.
func (c *Cluster) Fired(p *localcluster.Process, point faultpoint.Point) bool {
	_, err := os.Stat(c.pointFile(p, point) + faultpoint.Fired)
	return err == nil
}

func (c *Cluster) roleFile(role localcluster.Role, point faultpoint.Point) string {
	if role == localcluster.Worker {
		role = localcluster.TaskManager // workers share the points of those who start them
	}
	return filepath.Join(pointsDir(c.Dir, string(role)), string(point))
}

// ArmRole makes one process of a role act at a point, the first that comes by, in a cluster with shared fault points.
func (c *Cluster) ArmRole(role localcluster.Role, point faultpoint.Point, action string) {
	c.t.Helper()
	require.NoError(c.t, ArmFile(c.roleFile(role, point), action))
}

// DisarmRole undoes ArmRole.
func (c *Cluster) DisarmRole(role localcluster.Role, point faultpoint.Point) {
	c.t.Helper()
	require.NoError(c.t, disarmFile(c.roleFile(role, point)))
}

// AwaitRoleFired waits until a process of a role is at an armed point, and returns its id.
func (c *Cluster) AwaitRoleFired(role localcluster.Role, point faultpoint.Point, timeout time.Duration) (pid int, err error) {
	return AwaitFileFired(c.roleFile(role, point), timeout)
}

// AwaitFileFired waits until a program is at the point that ArmFile has armed, and returns its process id.
func AwaitFileFired(path string, timeout time.Duration) (pid int, err error) {
	deadline := time.Now().Add(timeout)
	for {
		by, err := os.ReadFile(path + faultpoint.Fired)
		if err == nil {
			return strconv.Atoi(string(by))
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("no process has come to %s within %s", filepath.Base(path), timeout)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Node returns the node that has the process id.
func (c *Cluster) Node(pid int) (*localcluster.Process, error) {
	for _, p := range append(c.JobManagers(), c.TaskManagers()...) {
		if p.PID() == pid {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no node has the process id %d", pid)
}
