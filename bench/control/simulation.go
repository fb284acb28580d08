package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/client"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/internal/usage"
	"github.com/weir-stream/weir/statebackend/blob"
)

const (
	patience = 5 * time.Minute
	lookEach = 10 * time.Millisecond
	// calm is how long idle jobs are watched.
	calm = 20 * time.Second
)

// simulation is a cluster of real JobManagers and simulated TaskManagers.
type simulation struct {
	o       options
	cluster *localcluster.Cluster
	client  *client.Client
	bucket  blob.Bucket
	seen    *observer
	stop    context.CancelFunc
	running sync.WaitGroup
	binary  string // hash of the job binary, which nobody runs
}

func start(ctx context.Context, o options, dir string) (_ *simulation, err error) {
	binary := filepath.Join(dir, "weir")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/weir-stream/weir/cmd/weir")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build: %w\n%s", err, text)
	}
	cluster, err := localcluster.Start(ctx, localcluster.Config{Binary: binary, Dir: dir, JobManagers: o.jobManagers})
	if err != nil {
		return nil, err
	}
	s := &simulation{o: o, cluster: cluster, client: client.New(cluster.ClientConfig()), seen: newObserver(o.taskManagers, o.jobs > 1), stop: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.bucket, err = blob.OpenURL(ctx, cluster.StorageURL()); err != nil {
		return nil, err
	}
	content := []byte("nobody runs this")
	hash := sha256.Sum256(content)
	s.binary = hex.EncodeToString(hash[:])
	if err := s.client.Upload(ctx, bytes.NewReader(content), s.binary, int64(len(content))); err != nil {
		return nil, err
	}
	began := time.Now()
	session, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	for n := range o.taskManagers {
		t := newTaskManager(n, o.jobs, strings.Split(cluster.Addresses(), ","), s.bucket, graph(o), s.seen)
		s.running.Go(func() { _ = t.session.Run(session) }) // what is missing shows in what the cluster does
	}
	if err := s.await(ctx, func() bool { return s.seen.reached() >= o.taskManagers }, "registered TaskManagers"); err != nil {
		return nil, err
	}
	fmt.Printf("%d TaskManagers registered in %s\n", o.taskManagers, since(began))
	return s, nil
}

func (s *simulation) close() error {
	s.stop()
	s.running.Wait()
	return errors.Join(s.client.Close(), s.cluster.Close())
}

// graph is a chain of as many vertices as a TaskManager has tasks, each with a subtask on every TaskManager.
func graph(o options) *jobv1.Graph {
	g := &jobv1.Graph{
		MaxParallelism: 32768, Fingerprint: "simulated",
		Checkpoints: &jobv1.CheckpointConfig{Enabled: true, IntervalMs: uint64(o.interval.Milliseconds()), TimeoutMs: 60_000, ToleratedFailures: 3, Retained: 3, RecoveryBudgetMs: 60_000},
		Restarts:    &jobv1.RestartPolicy{InitialDelayMs: 10, MaxDelayMs: 50, Multiplier: 2, MaxRestarts: 5, WindowMs: 60_000},
	}
	for i := range o.tasks {
		id := fmt.Sprintf("v%d", i)
		g.Vertices = append(g.Vertices, &jobv1.Vertex{
			Id: id, Parallelism: uint32(o.taskManagers), Source: i == 0, Operators: []*jobv1.Operator{{Uid: id, Kind: "process"}},
		})
		if i > 0 {
			g.Edges = append(g.Edges, &jobv1.Edge{
				Id: fmt.Sprintf("e%d", i), FromVertex: fmt.Sprintf("v%d", i-1), ToVertex: id, Partitioning: jobv1.Partitioning_PARTITIONING_HASH,
			})
		}
	}
	return g
}

func (s *simulation) submit(ctx context.Context, name string) (id string, err error) {
	request := &jobv1.SubmitJobRequest{RequestId: ulid.Make().String(), Name: name, ArtifactSha256: s.binary}
	err = s.client.Do(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		answer, err := jobv1.NewJobServiceClient(conn).SubmitJob(ctx, request)
		id = answer.GetJobId()
		return err
	})
	return id, err
}

func (s *simulation) job(ctx context.Context, id string) (j *jobv1.Job, err error) {
	err = s.client.Ask(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		answer, err := jobv1.NewJobServiceClient(conn).GetJob(ctx, &jobv1.GetJobRequest{Job: id}, grpc.MaxCallRecvMsgSize(1<<30))
		j = answer.GetJob()
		return err
	})
	return j, err
}

func (s *simulation) awaitRunning(ctx context.Context, id string) error {
	var failed error
	err := s.await(ctx, func() bool {
		j, err := s.job(ctx, id)
		failed = err
		return err != nil || j.GetState() == jobv1.JobState_JOB_STATE_RUNNING && j.GetPrepared()
	}, "a running job")
	return errors.Join(failed, err)
}

// oneJob measures a job with tasks on every TaskManager.
func (s *simulation) oneJob(ctx context.Context) error {
	began := time.Now()
	id, err := s.submit(ctx, "job")
	if err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, id); err != nil {
		return err
	}
	prepared := since(began)
	if err := s.await(ctx, func() bool { return s.seen.newest(id) > 0 }, "a checkpoint"); err != nil {
		return err
	}
	fmt.Printf("%d tasks were prepared %s after the submit, and their first checkpoint was complete after %s\n", s.o.tasks*s.o.taskManagers, prepared, since(began))
	first := s.seen.newest(id)
	leader, err := s.cluster.WaitLeader(ctx)
	if err != nil {
		return err
	}
	used, memory, err := during(leader, func() error {
		return s.await(ctx, func() bool { return len(s.seen.took(id, first)) >= s.o.checkpoints }, "checkpoints")
	})
	if err != nil {
		return err
	}
	took := s.seen.took(id, first)
	slices.Sort(took)
	fmt.Printf("%d checkpoints: median %s, longest %s; the leader used %s of CPU time for each and %d MB\n", len(took),
		took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond),
		(used / time.Duration(len(took))).Round(time.Millisecond), memory>>20)
	if s.o.jobManagers == 1 {
		return nil
	}
	return s.failover(ctx, leader, id)
}

// failover kills the leader and waits for a checkpoint that a new one has completed.
func (s *simulation) failover(ctx context.Context, leader *localcluster.Process, id string) error {
	if err := leader.Kill(); err != nil {
		return err
	}
	s.seen.forget()
	last, killed := s.seen.newest(id), time.Now()
	if err := s.await(ctx, func() bool { return s.seen.reached() >= s.o.taskManagers }, "TaskManagers at the new leader"); err != nil {
		return err
	}
	fmt.Printf("all TaskManagers are at a new leader %s after the kill\n", since(killed))
	if err := s.await(ctx, func() bool { return s.seen.newest(id) > last }, "a checkpoint under the new leader"); err != nil {
		return err
	}
	j, err := s.job(ctx, id)
	if err != nil {
		return err
	}
	fmt.Printf("the next checkpoint was complete %s after the kill, in attempt %d\n", since(killed), j.GetAttempt())
	return nil
}

// idleJobs measures jobs that have nothing to do.
func (s *simulation) idleJobs(ctx context.Context) error {
	began := time.Now()
	var ids []string
	for n := range s.o.jobs {
		id, err := s.submit(ctx, fmt.Sprintf("job-%d", n))
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		if err := s.awaitRunning(ctx, id); err != nil {
			return err
		}
	}
	fmt.Printf("%d jobs run %s after the first submit\n", len(ids), since(began))
	leader, err := s.cluster.WaitLeader(ctx)
	if err != nil {
		return err
	}
	began = time.Now()
	used, memory, err := during(leader, func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(calm):
			return nil
		}
	})
	if err != nil {
		return err
	}
	fmt.Printf("while they are idle the leader uses %.1f %% of a core and %d MB\n",
		100*used.Seconds()/time.Since(began).Seconds(), memory>>20)
	return nil
}

// during returns the CPU time that a process uses while do runs, and the most memory in bytes that it has had.
func during(p *localcluster.Process, do func() error) (used time.Duration, memory int64, err error) {
	before, err := usage.CPU(p.PID())
	if err != nil {
		return 0, 0, err
	}
	if err := do(); err != nil {
		return 0, 0, err
	}
	after, err := usage.CPU(p.PID())
	if err != nil {
		return 0, 0, err
	}
	memory, err = usage.Peak(p.PID())
	return after - before, memory, err
}

func (s *simulation) await(ctx context.Context, done func() bool, what string) error {
	for began := time.Now(); !done(); {
		if time.Since(began) > patience {
			return fmt.Errorf("waited %s for %s", patience, what)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookEach):
		}
	}
	return nil
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }

func readProbe(ctx context.Context, bucket blob.Bucket, name string) (string, error) {
	r, err := bucket.Open(ctx, name)
	if err != nil {
		return "", err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return string(data), err
}
