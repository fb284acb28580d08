package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/version"
	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/taskmanager/session"
)

// taskManager speaks the session protocol with the session of a real one, and does at once what its workers would do after a while.
type taskManager struct {
	id      string
	slots   int
	bucket  blob.Bucket
	graph   *jobv1.Graph
	seen    *observer
	session *session.Session

	mu      sync.Mutex
	cluster string
	workers map[attempt]*clusterv1.RunningAttempt
}

// attempt names a worker.
type attempt struct {
	job    string
	number uint64
}

func newTaskManager(n, slots int, addresses []string, bucket blob.Bucket, graph *jobv1.Graph, seen *observer) *taskManager {
	t := &taskManager{
		id: fmt.Sprintf("tm-%d", n), slots: slots, bucket: bucket, graph: graph, seen: seen, workers: map[attempt]*clusterv1.RunningAttempt{},
	}
	t.session = session.New(session.Config{
		Addresses: addresses, Handler: t, Logger: slog.New(slog.DiscardHandler),
		Register: &clusterv1.Register{
			TaskmanagerId: t.id, Incarnation: ulid.Make().String(), Host: fmt.Sprintf("host-%d", n), Slots: uint32(slots), Platform: "linux/amd64",
			ProtocolMin: version.ProtocolMin, ProtocolMax: version.ProtocolMax,
		},
	})
	return t
}

// Running lists the workers.
func (t *taskManager) Running() []*clusterv1.RunningAttempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*clusterv1.RunningAttempt
	for _, w := range t.workers {
		out = append(out, proto.CloneOf(w))
	}
	return out
}

// FreeSlots counts the slots without a worker.
func (t *taskManager) FreeSlots() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.slots - len(t.workers)
}

// Registered notes that a leader has taken the TaskManager on.
func (t *taskManager) Registered(m *clusterv1.Registered) error {
	t.change(func() { t.cluster = m.GetClusterId() })
	t.seen.registered(t.id)
	return nil
}

// Probe reads the cluster's probe object.
func (t *taskManager) Probe(ctx context.Context, name string) (string, error) {
	return readProbe(ctx, t.bucket, name)
}

// Handle does as the leader says.
func (t *taskManager) Handle(m *clusterv1.SessionResponse) {
	switch m := m.GetMessage().(type) {
	case *clusterv1.SessionResponse_PlanJob:
		g := proto.CloneOf(t.graph)
		g.Name = m.PlanJob.GetName()
		t.session.Send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_JobPlanned{JobPlanned: &clusterv1.JobPlanned{
			PlanId: m.PlanJob.GetPlanId(),
			Result: &jobv1.PlanResult{Graph: g, ProtocolMin: version.ProtocolMin, ProtocolMax: version.ProtocolMax},
		}}})
	case *clusterv1.SessionResponse_StartWorker:
		p := m.StartWorker.GetPrepare()
		w := &clusterv1.RunningAttempt{JobId: p.GetJobId(), Attempt: p.GetAttempt(), Tasks: p.GetTasks(), DataAddress: "127.0.0.1:1"}
		t.mu.Lock()
		t.workers[attempt{w.GetJobId(), w.GetAttempt()}] = w
		t.mu.Unlock()
		t.event(w, &workerv1.Event{Event: &workerv1.Event_Prepared{Prepared: &workerv1.Prepared{
			DataAddress: w.GetDataAddress(), ProtocolMax: version.ProtocolMax,
		}}})
	case *clusterv1.SessionResponse_StopWorker:
		t.stop(attempt{m.StopWorker.GetJobId(), m.StopWorker.GetAttempt()})
	case *clusterv1.SessionResponse_WorkerCommand:
		t.mu.Lock()
		w := t.workers[attempt{m.WorkerCommand.GetJobId(), m.WorkerCommand.GetAttempt()}]
		t.mu.Unlock()
		if w != nil {
			t.command(w, m.WorkerCommand.GetCommand())
		}
	}
}

func (t *taskManager) stop(of attempt) {
	t.mu.Lock()
	_, found := t.workers[of]
	delete(t.workers, of)
	t.mu.Unlock()
	if found {
		t.session.Send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_WorkerExited{WorkerExited: &clusterv1.WorkerExited{
			JobId: of.job, Attempt: of.number, Expected: true,
		}}})
	}
}

func (t *taskManager) command(w *clusterv1.RunningAttempt, c *workerv1.Command) {
	switch c := c.GetCommand().(type) {
	case *workerv1.Command_Start:
		t.change(func() { w.Started = true })
		t.event(w, &workerv1.Event{Event: &workerv1.Event_Started{Started: &workerv1.Started{}}})
		t.active(w, 0)
	case *workerv1.Command_TriggerCheckpoint:
		n := c.TriggerCheckpoint.GetCheckpoint()
		t.seen.triggered(w.GetJobId(), n)
		t.change(func() { w.Triggered = n })
		for _, task := range w.GetTasks() {
			t.event(w, &workerv1.Event{Event: &workerv1.Event_CheckpointAck{CheckpointAck: &workerv1.CheckpointAck{
				Checkpoint: n, Handle: t.snapshot(w, task, n), DeltaBytes: stateBytes,
			}}})
		}
		t.active(w, n)
	case *workerv1.Command_CompleteCheckpoint:
		n := c.CompleteCheckpoint.GetCheckpoint()
		t.change(func() { w.Completed, w.Committed = n, n })
		t.event(w, &workerv1.Event{Event: &workerv1.Event_CommitAcked{CommitAcked: &workerv1.CommitAcked{Checkpoint: n}}})
		t.seen.completed(w.GetJobId(), n)
	case *workerv1.Command_Finish:
		t.event(w, &workerv1.Event{Event: &workerv1.Event_Closed{Closed: &workerv1.Closed{}}})
		t.stop(attempt{w.GetJobId(), w.GetAttempt()})
	}
}

func (t *taskManager) change(set func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	set()
}

// active tells that records were processed after a checkpoint, unless the job is to be idle.
func (t *taskManager) active(w *clusterv1.RunningAttempt, since uint64) {
	if !t.seen.idle {
		t.event(w, &workerv1.Event{Event: &workerv1.Event_Activity{Activity: &workerv1.Activity{SinceCheckpoint: since}}})
	}
}

func (t *taskManager) event(w *clusterv1.RunningAttempt, e *workerv1.Event) {
	t.session.Send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_WorkerEvent{WorkerEvent: &clusterv1.WorkerEvent{
		JobId: w.GetJobId(), Attempt: w.GetAttempt(), Event: e,
	}}})
}

// stateBytes is what a task claims to have written.
const stateBytes = 1 << 20

// snapshot is the handle of a task that has written one file of keyed state. There is no such file; nobody reads it before a restore.
func (t *taskManager) snapshot(w *clusterv1.RunningAttempt, task *workerv1.TaskAssignment, n uint64) *snapshotv1.TaskHandle {
	name := fmt.Sprintf("%s/jobs/%s/state/%d/%s-%d/%s/%d-0", t.cluster, w.GetJobId(), w.GetAttempt(), task.GetVertex(), task.GetSubtask(), task.GetVertex(), n)
	data, err := proto.Marshal(&snapshotv1.TaskSnapshot{Vertex: task.GetVertex(), Subtask: task.GetSubtask(), Operators: []*snapshotv1.OperatorSnapshot{{
		Uid:   task.GetVertex(),
		Keyed: &snapshotv1.KeyedSnapshot{Segments: []*snapshotv1.Segment{{Name: name, Size: stateBytes, Checkpoint: n}}},
	}}})
	if err != nil {
		panic(err) // strings that are valid UTF-8 can be encoded
	}
	return &snapshotv1.TaskHandle{
		Vertex: task.GetVertex(), Subtask: task.GetSubtask(), Snapshot: data,
		Files: []*snapshotv1.FileReference{{Name: name, Size: stateBytes, Checkpoint: n}},
	}
}
