package jobmanager_test

import (
	"context"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/statebackend/blob"
)

// fakes are scripted TaskManagers that speak the session protocol and do as their workers would, without running anything.
type fakes struct {
	t      *testing.T
	bucket blob.Bucket
	graph  *jobv1.Graph

	mu  sync.Mutex
	tms []*fakeTM
	// ended makes every task report the end of its input.
	ended bool
	// silent makes tasks leave checkpoints without an acknowledgement.
	silent bool
	// damage makes state files differ from the checksum in their handle.
	damage bool
	// unprepared keeps Prepared back.
	unprepared bool
	// transactions answers commands about transactions, with nil by dying; without it nobody knows of any.
	transactions func(*workerv1.Transactions) *workerv1.TransactionsDone
	// unsettled makes workers that settle fail for good.
	unsettled bool
	// lost is what the next workers tell that they cannot commit.
	lost      []*jobv1.LostOutput
	events    []string
	starts    []*workerv1.Start
	prepares  []*workerv1.Prepare
	completed map[uint64]bool // notices seen
}

func newFakes(t *testing.T, bucket blob.Bucket) *fakes {
	return &fakes{t: t, bucket: bucket, graph: testGraph(), completed: make(map[uint64]bool)}
}

func testGraph() *jobv1.Graph {
	return &jobv1.Graph{
		Name: "totals", MaxParallelism: 128, Fingerprint: "f1",
		Vertices: []*jobv1.Vertex{
			{Id: "src", Parallelism: 2, Source: true, Operators: []*jobv1.Operator{{Uid: "src", Kind: "source"}}},
			{Id: "out", Parallelism: 2, Operators: []*jobv1.Operator{{
				Uid: "out", Kind: "sink", TransactionSlots: 4, Guarantee: jobv1.Guarantee_GUARANTEE_EXACTLY_ONCE,
			}}},
		},
		Edges:       []*jobv1.Edge{{Id: "e", FromVertex: "src", ToVertex: "out", Partitioning: jobv1.Partitioning_PARTITIONING_REBALANCE}},
		Checkpoints: &jobv1.CheckpointConfig{Enabled: true, IntervalMs: 30, TimeoutMs: 5000, ToleratedFailures: 3, Retained: 2, RecoveryBudgetMs: 60000},
		Restarts:    &jobv1.RestartPolicy{InitialDelayMs: 10, MaxDelayMs: 50, Multiplier: 2, MaxRestarts: 5, WindowMs: 60000},
	}
}

func (f *fakes) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// lastPrepare and lastStart return the newest commands of their kind.
func (f *fakes) lastPrepare() *workerv1.Prepare {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.prepares[len(f.prepares)-1]
}

func (f *fakes) lastStart() *workerv1.Start {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.starts[len(f.starts)-1]
}

func (f *fakes) log(format string, args ...any) {
	f.events = append(f.events, fmt.Sprintf(format, args...))
}

// fakeTM is one TaskManager.
type fakeTM struct {
	f           *fakes
	id          string
	incarnation string
	addresses   func() []string
	slots       uint32

	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	stream  clusterv1.SessionService_SessionClient
	cut     context.CancelFunc // ends the present session
	term    uint64
	workers map[string]*fakeWorker
	probe   string // overrides what it reads
	// lastWords is what the next worker that is stopped tells before it ends.
	lastWords *workerv1.TaskFailed
	refusal   error
}

type fakeWorker struct {
	prepare *workerv1.Prepare
	started bool
}

func key(job string, attempt uint64) string { return fmt.Sprintf("%s/%d", job, attempt) }

// start runs a TaskManager until the test ends or it is killed.
func (f *fakes) start(id string, slots uint32, addresses func() []string) *fakeTM {
	ctx, cancel := context.WithCancel(context.Background())
	tm := &fakeTM{
		f: f, id: id, incarnation: "i1", addresses: addresses, slots: slots, ctx: ctx, cancel: cancel,
		done: make(chan struct{}), workers: make(map[string]*fakeWorker),
	}
	f.set(func() { f.tms = append(f.tms, tm) })
	go tm.run()
	f.t.Cleanup(tm.kill)
	return tm
}

// kill makes the TaskManager and its workers disappear.
func (tm *fakeTM) kill() {
	tm.cancel()
	<-tm.done
	tm.f.set(func() { tm.f.tms = slices.DeleteFunc(tm.f.tms, func(o *fakeTM) bool { return o == tm }) })
}

// goodbye shuts the TaskManager down in order.
func (tm *fakeTM) goodbye(job string, attempt uint64) {
	tm.send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_Goodbye{Goodbye: &clusterv1.Goodbye{}}})
	tm.exit(job, attempt, 1, false, "terminated")
}

// drop breaks the session; the TaskManager comes back by itself.
func (tm *fakeTM) drop() {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	if tm.cut != nil {
		tm.cut()
	}
}

func (tm *fakeTM) run() {
	defer close(tm.done)
	for i := 0; tm.ctx.Err() == nil; i++ {
		addrs := tm.addresses()
		err := tm.session(addrs[i%len(addrs)])
		tm.mu.Lock()
		tm.refusal = err
		tm.mu.Unlock()
		select {
		case <-tm.ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (tm *fakeTM) session(address string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cut := context.WithCancel(tm.ctx)
	defer cut()
	stream, err := clusterv1.NewSessionServiceClient(conn).Session(ctx)
	if err != nil {
		return err
	}
	tm.mu.Lock()
	tm.stream, tm.cut = stream, cut
	reg := &clusterv1.Register{
		TaskmanagerId: tm.id, Incarnation: tm.incarnation, Host: "host-" + tm.id, Slots: tm.slots, ProtocolMin: 1, ProtocolMax: 1,
		Platform: "linux/amd64",
	}
	for _, w := range tm.workers {
		reg.Running = append(reg.Running, &clusterv1.RunningAttempt{
			JobId: w.prepare.GetJobId(), Attempt: w.prepare.GetAttempt(), Tasks: w.prepare.GetTasks(), DataAddress: "127.0.0.1:1", Started: w.started,
		})
	}
	term := tm.term
	tm.mu.Unlock()
	if err := stream.Send(&clusterv1.SessionRequest{Term: term, Message: &clusterv1.SessionRequest_Register{Register: reg}}); err != nil {
		_, err = stream.Recv()
		return err
	}
	stop := make(chan struct{})
	defer func() { <-stop }()
	go func() {
		defer close(stop)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
				tm.send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_Heartbeat{Heartbeat: &clusterv1.Heartbeat{}}})
			}
		}
	}()
	defer cut()
	for {
		msg, err := stream.Recv()
		if err != nil {
			return err
		}
		tm.mu.Lock()
		if msg.GetTerm() < tm.term {
			tm.mu.Unlock()
			return fmt.Errorf("stale leader of term %d", msg.GetTerm())
		}
		tm.term = msg.GetTerm()
		tm.mu.Unlock()
		tm.handle(msg)
	}
}

func (tm *fakeTM) send(m *clusterv1.SessionRequest) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	m.Term = tm.term
	if tm.stream != nil {
		_ = tm.stream.Send(m)
	}
}

func (tm *fakeTM) event(p *workerv1.Prepare, e *workerv1.Event) {
	tm.send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_WorkerEvent{WorkerEvent: &clusterv1.WorkerEvent{
		JobId: p.GetJobId(), Attempt: p.GetAttempt(), Event: e,
	}}})
}

func (tm *fakeTM) exit(job string, attempt uint64, code int32, expected bool, tail string) {
	tm.mu.Lock()
	_, ok := tm.workers[key(job, attempt)]
	delete(tm.workers, key(job, attempt))
	tm.mu.Unlock()
	if ok {
		tm.send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_WorkerExited{WorkerExited: &clusterv1.WorkerExited{
			JobId: job, Attempt: attempt, ExitCode: code, Expected: expected, OutputTail: tail,
		}}})
	}
}

func (tm *fakeTM) handle(msg *clusterv1.SessionResponse) {
	switch m := msg.GetMessage().(type) {
	case *clusterv1.SessionResponse_Registered:
		for _, s := range m.Registered.GetStop() {
			tm.exit(s.GetJobId(), s.GetAttempt(), 0, true, "")
		}
		tm.mu.Lock()
		probe := &clusterv1.Probe{Content: tm.probe}
		tm.mu.Unlock()
		if probe.Content == "" {
			r, err := tm.f.bucket.Open(tm.ctx, m.Registered.GetProbeObject())
			if err != nil {
				probe.Error = err.Error()
			} else {
				b := make([]byte, 100)
				n, _ := r.Read(b)
				probe.Content = string(b[:n])
				_ = r.Close()
			}
		}
		tm.send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_Probe{Probe: probe}})
	case *clusterv1.SessionResponse_PlanJob:
		graph := proto.CloneOf(tm.f.graph)
		if graph.GetName() == "" {
			graph.Name = m.PlanJob.GetDefaultName()
		}
		tm.send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_JobPlanned{JobPlanned: &clusterv1.JobPlanned{
			PlanId: m.PlanJob.GetPlanId(),
			Result: &jobv1.PlanResult{Graph: graph, ProtocolMin: 1, ProtocolMax: 1},
		}}})
	case *clusterv1.SessionResponse_StartWorker:
		p := m.StartWorker.GetPrepare()
		tm.mu.Lock()
		tm.workers[key(p.GetJobId(), p.GetAttempt())] = &fakeWorker{prepare: p}
		tm.mu.Unlock()
		unprepared, unsettled, prepared := false, false, &workerv1.Prepared{DataAddress: "127.0.0.1:1"}
		tm.f.set(func() {
			prepared.Lost = tm.f.lost
			tm.f.prepares = append(tm.f.prepares, p)
			tm.f.log("prepare %d settle=%v", p.GetAttempt(), p.GetSettleOnly())
			unprepared, unsettled = tm.f.unprepared, tm.f.unsettled && p.GetSettleOnly() && !p.GetInspectOnly()
		})
		switch {
		case unsettled:
			tm.fail(p.GetJobId(), p.GetAttempt(), workerv1.FailureClass_FAILURE_CLASS_FATAL, "the broker is away")
		case !unprepared:
			tm.event(p, &workerv1.Event{Event: &workerv1.Event_Prepared{Prepared: prepared}})
		}
	case *clusterv1.SessionResponse_StopWorker:
		tm.mu.Lock()
		words := tm.lastWords
		tm.lastWords = nil
		tm.mu.Unlock()
		if words != nil {
			tm.event(&workerv1.Prepare{JobId: m.StopWorker.GetJobId(), Attempt: m.StopWorker.GetAttempt()},
				&workerv1.Event{Event: &workerv1.Event_TaskFailed{TaskFailed: words}})
		}
		tm.exit(m.StopWorker.GetJobId(), m.StopWorker.GetAttempt(), 0, true, "")
	case *clusterv1.SessionResponse_WorkerCommand:
		tm.mu.Lock()
		w := tm.workers[key(m.WorkerCommand.GetJobId(), m.WorkerCommand.GetAttempt())]
		if w != nil && m.WorkerCommand.GetCommand().GetStart() != nil {
			w.started = true
		}
		tm.mu.Unlock()
		if w != nil {
			tm.command(w.prepare, m.WorkerCommand.GetCommand())
		}
	case *clusterv1.SessionResponse_ReadLogs:
		for _, c := range []*clusterv1.LogChunk{{Chunk: []byte("hello from " + tm.id + "\n")}, {End: true}} {
			c.ReadId, c.Attempt = m.ReadLogs.GetReadId(), 1
			tm.send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_LogChunk{LogChunk: c}})
		}
	}
}

func (tm *fakeTM) command(p *workerv1.Prepare, cmd *workerv1.Command) {
	switch c := cmd.GetCommand().(type) {
	case *workerv1.Command_Start:
		tm.f.set(func() {
			tm.f.starts = append(tm.f.starts, c.Start)
			tm.f.log("start %d", p.GetAttempt())
		})
		tm.event(p, &workerv1.Event{Event: &workerv1.Event_Started{Started: &workerv1.Started{}}})
		tm.event(p, &workerv1.Event{Event: &workerv1.Event_Activity{Activity: &workerv1.Activity{}}})
		ended := false
		tm.f.set(func() { ended = tm.f.ended })
		if ended {
			tm.event(p, &workerv1.Event{Event: &workerv1.Event_Activity{Activity: &workerv1.Activity{Ended: true}}})
		}
	case *workerv1.Command_TriggerCheckpoint:
		tm.f.barrier(p, c.TriggerCheckpoint.GetCheckpoint())
	case *workerv1.Command_CompleteCheckpoint:
		n := c.CompleteCheckpoint.GetCheckpoint()
		tm.f.set(func() {
			tm.f.completed[n] = true
			tm.f.log("complete %d", n)
		})
		tm.event(p, &workerv1.Event{Event: &workerv1.Event_CommitAcked{CommitAcked: &workerv1.CommitAcked{Checkpoint: n}}})
	case *workerv1.Command_Transactions:
		done := &workerv1.TransactionsDone{}
		tm.f.set(func() {
			if tm.f.transactions != nil {
				done = tm.f.transactions(c.Transactions)
			}
		})
		if done == nil {
			tm.exit(p.GetJobId(), p.GetAttempt(), 1, false, "out of memory")
			return
		}
		done.Request = c.Transactions.GetRequest()
		tm.event(p, &workerv1.Event{Event: &workerv1.Event_TransactionsDone{TransactionsDone: done}})
	case *workerv1.Command_Finish:
		tm.event(p, &workerv1.Event{Event: &workerv1.Event_Closed{Closed: &workerv1.Closed{}}})
		tm.exit(p.GetJobId(), p.GetAttempt(), 0, true, "")
	}
}

// barrier lets every task of the attempt acknowledge, as if the barrier had passed through the whole job. Each trigger of one of the
// workers with sources does its own TaskManager's tasks; those without sources go with the first.
func (f *fakes) barrier(p *workerv1.Prepare, n uint64) {
	f.mu.Lock()
	tms, silent, ended := slices.Clone(f.tms), f.silent, f.ended
	f.mu.Unlock()
	if silent {
		return
	}
	for _, tm := range tms {
		tm.mu.Lock()
		w := tm.workers[key(p.GetJobId(), p.GetAttempt())]
		tm.mu.Unlock()
		if w == nil {
			continue
		}
		for _, task := range w.prepare.GetTasks() {
			tm.event(w.prepare, &workerv1.Event{Event: &workerv1.Event_CheckpointAck{CheckpointAck: &workerv1.CheckpointAck{
				Checkpoint: n, Handle: f.snapshot(w.prepare, task, n, ended), DeltaBytes: 10,
			}}})
		}
		tm.event(w.prepare, &workerv1.Event{Event: &workerv1.Event_Activity{Activity: &workerv1.Activity{SinceCheckpoint: n}}})
	}
}

// snapshot writes one state file and names it in a task's handle.
func (f *fakes) snapshot(p *workerv1.Prepare, task *workerv1.TaskAssignment, n uint64, ended bool) *snapshotv1.TaskHandle {
	name := fmt.Sprintf("%s/jobs/%s/state/%d/%s-%d/%s/%d-0", p.GetClusterId(), p.GetJobId(), p.GetAttempt(), task.GetVertex(), task.GetSubtask(), task.GetVertex(), n)
	content := []byte(name)
	crc := crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli))
	f.mu.Lock()
	damage := f.damage
	f.mu.Unlock()
	if damage {
		content[0] ^= 1
	}
	_ = f.bucket.Put(context.Background(), name, newReader(content))
	op := &snapshotv1.OperatorSnapshot{
		Uid:   task.GetVertex(),
		Keyed: &snapshotv1.KeyedSnapshot{Segments: []*snapshotv1.Segment{{Name: name, Size: uint64(len(content)), Crc32C: crc, Checkpoint: n}}},
	}
	h := &snapshotv1.TaskHandle{
		Vertex: task.GetVertex(), Subtask: task.GetSubtask(), Ended: ended,
		Files: []*snapshotv1.FileReference{{Name: name, Size: uint64(len(content)), Crc32C: crc, Checkpoint: n}},
	}
	if task.GetVertex() == "out" {
		op.Committables = []*snapshotv1.Committable{{Checkpoint: n, Payload: []byte("txn")}}
		h.Committables = 1
	}
	data, err := proto.Marshal(&snapshotv1.TaskSnapshot{Vertex: task.GetVertex(), Subtask: task.GetSubtask(), Operators: []*snapshotv1.OperatorSnapshot{op}})
	require.NoError(f.t, err)
	h.Snapshot = data
	return h
}

// fail lets a task of the worker fail.
func (tm *fakeTM) fail(job string, attempt uint64, class workerv1.FailureClass, message string) {
	tm.report(job, attempt, &workerv1.TaskFailed{Vertex: "src", Class: class, Message: message})
}

// report lets the worker tell of a failure.
func (tm *fakeTM) report(job string, attempt uint64, f *workerv1.TaskFailed) {
	tm.event(&workerv1.Prepare{JobId: job, Attempt: attempt}, &workerv1.Event{Event: &workerv1.Event_TaskFailed{TaskFailed: f}})
}

// failsWhenStopped makes the next worker that is stopped have a failure to tell of, which was on its way.
func (tm *fakeTM) failsWhenStopped(f *workerv1.TaskFailed) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	tm.lastWords = f
}
