// Command control measures the control plane alone: three JobManager processes coordinate a job on simulated TaskManagers, which speak
// the real protocol over real connections and answer at once. It prints how long the deployment takes, how long checkpoints take from
// the first trigger that reaches a TaskManager to the last notice of the completion, what they cost the leader, and how long the cluster
// is without completed checkpoints when the leader is killed. With many jobs it prints what the leader needs for them while they are idle.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"time"
)

type options struct {
	taskManagers, tasks, jobs, checkpoints int
	interval                               time.Duration
	jobManagers                            int
}

func main() {
	var o options
	flag.IntVar(&o.taskManagers, "taskmanagers", 1000, "simulated TaskManagers")
	flag.IntVar(&o.tasks, "tasks", 32, "tasks of a job on each TaskManager")
	flag.IntVar(&o.jobs, "jobs", 1, "jobs; more than one are idle")
	flag.IntVar(&o.checkpoints, "checkpoints", 20, "checkpoints to measure")
	flag.DurationVar(&o.interval, "interval", time.Second, "checkpoint interval")
	flag.IntVar(&o.jobManagers, "jobmanagers", 3, "JobManager processes: 1, 3 or 5")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "weir-control-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := start(ctx, o, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if o.jobs > 1 {
		return s.idleJobs(ctx)
	}
	return s.oneJob(ctx)
}
