package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/weir-stream/weir/bench/peers"
	"github.com/weir-stream/weir/internal/config"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/taskmanager"
)

// engine is a way to run a workload. It starts it, and returns how to list its processes and how to end them.
type engine struct {
	name string
	// warm is the part of the output after which measuring begins.
	warm  float64
	start func(ctx context.Context, b *bench, w workload, in, out string) (pids func() ([]int, error), stop func() error, err error)
}

var (
	handwritten = engine{"handwritten", warm, startHandwritten}
	weir        = engine{"weir", warm, func(ctx context.Context, b *bench, w workload, in, out string) (func() ([]int, error), func() error, error) {
		taskManagers := 1
		if w.local {
			taskManagers = 2
		}
		return startWeir(ctx, b, w, in, out, taskManagers, nil)
	}}
	oneProcess = engine{"weir-one-process", warm, func(ctx context.Context, b *bench, w workload, in, out string) (func() ([]int, error), func() error, error) {
		return startWeir(ctx, b, w, in, out, 1, nil)
	}}
	bounded = engine{"weir-bounded", warm, func(ctx context.Context, b *bench, w workload, in, out string) (func() ([]int, error), func() error, error) {
		return startWeir(ctx, b, w, in, out, 1, func(c *taskmanager.Config) { c.StateMemory = config.Bytes(w.bounded) })
	}}
)

func (w workload) engines() []engine {
	switch {
	case w.local:
		return []engine{handwritten, weir, oneProcess}
	case w.bounded > 0:
		return []engine{weir, bounded}
	}
	return []engine{handwritten, weir}
}

func (b *bench) arguments(w workload, in, out string) []string {
	return []string{"--workload", w.name, "--brokers", b.broker.Addr(), "--in", in, "--out", out, "--interval", b.interval.String()}
}

func guarantee(w workload) []string {
	if w.guarantee == "" {
		return nil
	}
	return []string{"--guarantee", w.guarantee}
}

func startHandwritten(ctx context.Context, b *bench, w workload, in, out string) (func() ([]int, error), func() error, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(b.dir, "handwritten"), b.arguments(w, in, out)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	stop := func() error {
		if err := cmd.Process.Kill(); err != nil {
			return fmt.Errorf("the hand-written program ended by itself: %w", errors.Join(err, cmd.Wait()))
		}
		_ = cmd.Wait() // killed, as asked
		return nil
	}
	return func() ([]int, error) { return []int{cmd.Process.Pid}, nil }, stop, nil
}

// startWeir starts a cluster of one JobManager and some TaskManagers with a slot per partition in all, and submits the job.
func startWeir(ctx context.Context, b *bench, w workload, in, out string, taskManagers int, configure func(*taskmanager.Config)) (func() ([]int, error), func() error, error) {
	c, stop, err := b.startCluster(ctx, out, taskManagers, partitions/taskManagers, configure)
	if err != nil {
		return nil, nil, err
	}
	if err := b.submit(ctx, c, out, partitions, slices.Concat(b.arguments(w, in, out), guarantee(w))...); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return pidsOf(c), stop, nil
}

// startCluster starts a cluster of one JobManager and some TaskManagers with so many slots each, configured besides unless that is nil. stop
// removes what it has on disk.
func (b *bench) startCluster(ctx context.Context, name string, taskManagers, slots int, configure func(*taskmanager.Config)) (c *localcluster.Cluster, stop func() error, err error) {
	dir := filepath.Join(b.dir, name)
	c, err = localcluster.Start(ctx, localcluster.Config{
		Binary: filepath.Join(b.dir, "weir"), Dir: dir, JobManagers: 1, TaskManagers: taskManagers, Slots: slots, ConfigureTaskManager: configure,
	})
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, func() error { return errors.Join(c.Close(), os.RemoveAll(dir)) }, nil
}

// submit starts one of the jobs, named after its output topic, with the given arguments.
func (b *bench) submit(ctx context.Context, c *localcluster.Cluster, out string, parallelism int, arguments ...string) error {
	all := append([]string{
		"submit", "--jobmanager", c.Addresses(), "--name", out, "-p", fmt.Sprint(parallelism), filepath.Join(b.dir, "jobs"), "--",
	}, arguments...)
	if b.profile != "" {
		profiles, err := filepath.Abs(filepath.Join(b.profile, out))
		if err == nil {
			err = os.MkdirAll(profiles, 0o755)
		}
		if err != nil {
			return err
		}
		all = append(all, "--profile="+profiles)
	}
	if text, err := exec.CommandContext(ctx, filepath.Join(b.dir, "weir"), all...).CombinedOutput(); err != nil {
		return fmt.Errorf("submit: %w\n%s", err, text)
	}
	return nil
}

// pidsOf returns a function that lists the processes of a cluster.
func pidsOf(c *localcluster.Cluster) func() ([]int, error) {
	return func() ([]int, error) {
		out := []int{c.JobManagers()[0].PID()}
		for _, tm := range c.TaskManagers() {
			out = append(append(out, tm.PID()), tm.Children()...)
		}
		return out, nil
	}
}

// warmJVM is the part of the output after which measuring begins for programs that a virtual machine compiles while they run.
const warmJVM = 0.5

func peerEngine(p *peers.Engine) engine {
	return engine{p.Name, warmJVM, func(ctx context.Context, b *bench, w workload, in, out string) (func() ([]int, error), func() error, error) {
		run, err := p.Start(ctx, peers.Job{
			Workload: w.name, In: in, Out: out, Partitions: partitions, Interval: b.interval, Dir: filepath.Join(b.dir, out), Broker: b.broker,
		})
		if err != nil {
			return nil, nil, err
		}
		return run.PIDs, run.Stop, nil
	}}
}

// engines returns what runs a workload, the peers last.
func (b *bench) engines(w workload) []engine {
	all := w.engines()
	for _, p := range b.peers {
		if p.Computes(w.name) {
			all = append(all, peerEngine(p))
		}
	}
	return all
}
