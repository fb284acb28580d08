package harness

import (
	"errors"
	"os"
	"path/filepath"
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
	return StartOnWithFaultPoints(t, cfg, kafkatest.Shared(t))
}

// StartOnWithFaultPoints is StartWithFaultPoints with a broker of the test's own.
func StartOnWithFaultPoints(t testing.TB, cfg localcluster.Config, broker *kafkatest.Broker) *Cluster {
	t.Helper()
	bin, err := BuildWithFaultPoints()
	require.NoError(t, err)
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	cfg.Environment = func(id string) []string {
		dir := pointsDir(cfg.Dir, id)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		return []string{faultpoint.EnvDir + "=" + dir}
	}
	return start(t, cfg, broker, bin)
}

func pointsDir(dir, id string) string { return filepath.Join(dir, "faultpoints", id) }

func (c *Cluster) pointFile(p *localcluster.Process, point faultpoint.Point) string {
	return filepath.Join(pointsDir(c.Dir, p.ID), string(point))
}

// Arm makes a node, and the workers that it starts, act at a point from now on; see package faultpoint for the actions.
func (c *Cluster) Arm(p *localcluster.Process, point faultpoint.Point, action string) {
	c.t.Helper()
	path := c.pointFile(p, point)
	require.NoError(c.t, os.RemoveAll(path+faultpoint.Fired))
	require.NoError(c.t, os.WriteFile(path+".new", []byte(action), 0o644))
	require.NoError(c.t, os.Rename(path+".new", path))
}

// Disarm undoes Arm, whether the node has acted or not.
func (c *Cluster) Disarm(p *localcluster.Process, point faultpoint.Point) {
	c.t.Helper()
	require.NoError(c.t, os.RemoveAll(c.pointFile(p, point)))
	require.NoError(c.t, os.RemoveAll(c.pointFile(p, point)+faultpoint.Fired))
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
