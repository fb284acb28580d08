package demo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/client"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/internal/orders"
)

// JobCommand is the hidden command of the weir binary that is the demo's job.
const JobCommand = "demo-job"

// jobs submits the demo's job as a user would, and looks at it.
type jobs struct {
	binary  string
	cluster *localcluster.Cluster
	client  *client.Client
	id      string

	mu   sync.Mutex
	last *jobv1.Job
}

func newJobs(binary string, cluster *localcluster.Cluster) *jobs {
	return &jobs{
		binary: binary, cluster: cluster,
		client: client.New(cluster.ClientConfig()),
	}
}

func (j *jobs) submit(ctx context.Context, t orders.Topics, interval time.Duration) error {
	out, err := j.weir(ctx, "submit", "-p", fmt.Sprint(parallelism), "--name", "demo", j.binary, "--", JobCommand,
		"--brokers", strings.Join(t.Brokers, ","), "--orders", t.Orders, "--totals", t.Totals, "--interval", interval.String())
	if err != nil {
		return err
	}
	j.id = strings.TrimSpace(out)
	return j.refresh(ctx)
}

func (j *jobs) cancel(ctx context.Context) error {
	if err := j.refresh(ctx); err != nil {
		return err
	}
	_, err := j.weir(ctx, "cancel", j.id)
	return err
}

// weir runs the command line.
func (j *jobs) weir(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, j.binary, args...)
	cmd.Env = append(os.Environ(), j.cluster.Environ()...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("weir %s: %w: %s", args[0], err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// refresh looks at the job; a cluster without a leader for the moment is no error.
func (j *jobs) refresh(ctx context.Context) error {
	var job *jobv1.Job
	err := j.client.Ask(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		resp, err := jobv1.NewJobServiceClient(conn).GetJob(ctx, &jobv1.GetJobRequest{Job: j.id})
		job = resp.GetJob()
		return err
	})
	if err != nil {
		return fmt.Errorf("look at the job: %w", err)
	}
	j.mu.Lock()
	j.last = job
	j.mu.Unlock()
	switch s := job.GetState(); s {
	case jobv1.JobState_JOB_STATE_FAILED, jobv1.JobState_JOB_STATE_FINISHED:
		return fmt.Errorf("the job has ended: %s", j.describe())
	}
	return nil
}

func (j *jobs) view() *jobv1.Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

func (j *jobs) running() bool { return j.view().GetState() == jobv1.JobState_JOB_STATE_RUNNING }

// hosts returns the TaskManagers that run tasks of the job.
func (j *jobs) hosts() map[string]bool {
	out := map[string]bool{}
	for _, t := range j.view().GetTasks() {
		out[t.GetHost()] = true
	}
	return out
}

// describe says in a sentence how the job is.
func (j *jobs) describe() string {
	v := j.view()
	s := "the job is " + strings.ToLower(strings.TrimPrefix(v.GetState().String(), "JOB_STATE_"))
	if w := v.GetWaitingFor(); w != "" {
		s += ", waiting for " + w
	}
	if f := v.GetFailures(); len(f) > 0 {
		s += "; last failure: " + f[len(f)-1].GetMessage()
	}
	return s
}

func (j *jobs) close() error { return j.client.Close() }
