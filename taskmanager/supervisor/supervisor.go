package supervisor

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/taskmanager/segmentstore"
)

// Config configures a Supervisor.
type Config struct {
	// Dir is the TaskManager's data directory, already locked.
	Dir string
	// Slots is the number of slots that FreeSlots counts from.
	Slots int
	// Bucket is the root of checkpoint storage, where artifacts are.
	Bucket blob.Bucket
	// Segments serves the workers' state files.
	Segments *segmentstore.Store
	// BindHost and AdvertiseHost go into each Prepare command.
	BindHost, AdvertiseHost string
	// So do Encrypt, which puts the data connections of workers under TLS, and the range of their ports; zero means any port.
	Encrypt             bool
	FirstPort, LastPort uint16
	// StateMemory is for the keyed state of all slots, in bytes; 0 means no bound.
	StateMemory int64
	// CancelDeadline is how long a worker may take to exit once it should.
	CancelDeadline time.Duration
	// ConnectTimeout is how long a started worker may take to connect.
	ConnectTimeout time.Duration
	// StallTimeout is how long a connected worker may be silent; at least 2 s.
	StallTimeout time.Duration
	// PlanTimeout bounds a run in plan mode.
	PlanTimeout time.Duration
	// LogRetention and LogPerWorker bound the kept output in bytes, of all workers and of one.
	LogRetention, LogPerWorker int64
	// ArtifactCache bounds the cached binaries in bytes; those in use stay beyond it.
	ArtifactCache int64
	// Report takes what the leader should know. It is called from any goroutine and must not block.
	Report func(*clusterv1.SessionRequest)
	Logger *slog.Logger
}

type attemptKey struct {
	job     string
	attempt uint64
}

// Supervisor runs worker processes.
type Supervisor struct {
	cfg       Config
	spawner   *spawner
	artifacts *artifacts
	sockets   string
	life      context.Context //nolint:containedctx // it ends with Close; plans and log reads run under it
	end       context.CancelFunc
	running   sync.WaitGroup

	exitsExpected, exitsUnexpected atomic.Uint64

	mu      sync.Mutex
	closed  bool
	cluster string
	workers map[attemptKey]*worker
	ears    map[*ear]struct{}
	highest map[string]uint64 // by job: attempts up to it that are not in workers have ended here
	next    int               // numbers sockets
}

// New kills what a former supervisor on the same directory left running, cleans up after it, and returns a supervisor without
// workers.
func New(cfg Config) (*Supervisor, error) {
	for _, d := range []string{"pids", "artifacts", "work", "logs"} {
		if err := os.MkdirAll(filepath.Join(cfg.Dir, d), 0o700); err != nil {
			return nil, fmt.Errorf("preparing the data directory: %w", err)
		}
	}
	if err := killLeftovers(filepath.Join(cfg.Dir, "pids"), cfg.Logger); err != nil {
		return nil, err
	}
	if err := emptyDir(filepath.Join(cfg.Dir, "work")); err != nil {
		return nil, fmt.Errorf("removing scratch files of former workers: %w", err)
	}
	sockets, err := socketDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("making the directory of control sockets: %w", err)
	}
	cache, err := openArtifacts(filepath.Join(cfg.Dir, "artifacts"), cfg.ArtifactCache, cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("opening the artifact cache: %w", err)
	}
	s := &Supervisor{
		cfg: cfg, spawner: newSpawner(), artifacts: cache, sockets: sockets,
		workers: map[attemptKey]*worker{}, ears: map[*ear]struct{}{}, highest: map[string]uint64{},
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.goRun(s.lookAfter)
	s.pruneLogs()
	return s, nil
}

// SetCluster tells the id of the cluster, which artifacts are stored under.
func (s *Supervisor) SetCluster(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster = id
}

// Start starts a worker process. Repeated for an attempt that runs it does nothing; for one that has ended here, or that a higher
// attempt replaced, it reports the exit again. Lower attempts of the job are killed: the leader has replaced them.
func (s *Supervisor) Start(m *clusterv1.StartWorker) {
	p := m.GetPrepare()
	key := attemptKey{p.GetJobId(), p.GetAttempt()}
	if !plainName(key.job) {
		s.cfg.Logger.Error("worker refused: the job id is not a plain name", "job", key.job)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.workers[key] != nil {
		return
	}
	if key.attempt <= s.highest[key.job] {
		s.cfg.Logger.Warn("worker refused: the attempt is over here", "job", key.job, "attempt", key.attempt)
		s.reportExit(key, exit{code: -1, expected: true})
		return
	}
	faultpoint.Hit(faultpoint.OrderReceived)
	s.highest[key.job] = key.attempt
	for k, w := range s.workers {
		if k.job == key.job {
			w.stop(0)
		}
	}
	s.next++
	w := newWorker(s, key, m, filepath.Join(s.sockets, fmt.Sprintf("%d.sock", s.next)))
	s.workers[key] = w
	s.running.Go(func() {
		w.run()
		s.mu.Lock()
		delete(s.workers, key)
		s.mu.Unlock()
		s.reportExit(key, w.exit)
		s.pruneLogs()
	})
}

// Command relays a command to the worker of an attempt, after those before it. Without such a worker it is dropped: the leader has
// been told of the exit.
func (s *Supervisor) Command(m *clusterv1.WorkerCommand) {
	s.mu.Lock()
	w := s.workers[attemptKey{m.GetJobId(), m.GetAttempt()}]
	s.mu.Unlock()
	if w != nil {
		w.command(m.GetCommand())
	}
}

// Stop ends the worker of an attempt, by force once the deadline has passed. Without such a worker the exit is reported again.
func (s *Supervisor) Stop(m *clusterv1.StopWorker) {
	key := attemptKey{m.GetJobId(), m.GetAttempt()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.workers[key]; w != nil {
		w.stop(time.Duration(m.GetDeadlineMs()) * time.Millisecond)
		return
	}
	s.highest[key.job] = max(s.highest[key.job], key.attempt)
	s.reportExit(key, exit{expected: true})
}

// Running lists the attempts with a worker process, or with one about to start, and how far each has come.
func (s *Supervisor) Running() []*clusterv1.RunningAttempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*clusterv1.RunningAttempt, 0, len(s.workers))
	for _, w := range s.workers {
		out = append(out, w.report())
	}
	return out
}

// FreeSlots returns the number of slots that no worker uses.
func (s *Supervisor) FreeSlots() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.cfg.Slots
	for _, w := range s.workers {
		free -= w.slots
	}
	return max(free, 0)
}

// Exits returns how many workers have exited as asked, and otherwise, since New.
func (s *Supervisor) Exits() (expected, unexpected uint64) {
	return s.exitsExpected.Load(), s.exitsUnexpected.Load()
}

// Close stops every worker, by force after the cancel deadline or when ctx ends, and returns when all are reaped.
func (s *Supervisor) Close(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	for _, w := range s.workers {
		w.stop(s.cfg.CancelDeadline)
	}
	s.mu.Unlock()
	s.end()
	forced := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, w := range s.workers {
			w.stop(0)
		}
	})
	s.running.Wait()
	forced()
	s.spawner.close()
	_ = os.RemoveAll(s.sockets)
}

// goRun runs fn in a goroutine that Close waits for; not after Close.
func (s *Supervisor) goRun(fn func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.running.Go(func() { fn(s.life) })
}

// exit is how a worker process ended.
type exit struct {
	code     int
	signal   string
	tail     string
	expected bool
}

func (s *Supervisor) reportExit(key attemptKey, e exit) {
	if e.expected {
		s.exitsExpected.Add(1)
	} else {
		s.exitsUnexpected.Add(1)
	}
	s.cfg.Report(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_WorkerExited{WorkerExited: &clusterv1.WorkerExited{
		JobId: key.job, Attempt: key.attempt, ExitCode: int32(e.code), Signal: e.signal, OutputTail: e.tail, Expected: e.expected,
	}}})
}

func (s *Supervisor) reportEvent(key attemptKey, e *workerv1.Event) {
	s.cfg.Report(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_WorkerEvent{WorkerEvent: &clusterv1.WorkerEvent{
		JobId: key.job, Attempt: key.attempt, Event: e,
	}}})
}

// plainName reports whether name can be a file name of its own.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\\x00")
}

func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// maxSocketDir leaves room for a socket's name within the 104 bytes that every system allows for the path of a unix socket.
const maxSocketDir = 90

// socketDir returns an empty directory for sockets: in the data directory, or in the system's temporary one when that path is too
// long.
func socketDir(data string) (string, error) {
	abs, err := filepath.Abs(filepath.Join(data, "run"))
	if err != nil {
		return "", err
	}
	if len(abs) > maxSocketDir {
		return os.MkdirTemp("", "weir-")
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return "", err
	}
	return abs, emptyDir(abs)
}
