package driver

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/raftnode"
	"github.com/weir-stream/weir/jobmanager/registry"
	"github.com/weir-stream/weir/statebackend/blob"
)

const (
	exploredJob = "j"
	// parallelism is the number of tasks, each a source with its sink; taskManagers is the number of machines.
	parallelism  = 2
	taskManagers = 2
	slotBound    = 5
)

// fault is what happens to one of the entries that a leader proposes in one step.
type fault struct {
	mode logFault
	at   uint8 // which of them
}

type logFault uint8

const (
	logFine           logFault = iota
	logEndsLost                // the leadership ends and the entry never gets into the log
	logEndsApplied             // the leadership ends, but the next leader finds the entry
	logUnknownLost             // nobody knows until a barrier: it did not get there
	logUnknownApplied          // nobody knows until a barrier: it did
)

// memLog is the log as the state machine that has applied it.
type memLog struct {
	x     *explorer
	state fsm.State
	term  uint64
	// fault, calls and ended are of the present step.
	fault fault
	calls uint8
	ended bool
}

func (l *memLog) Propose(_ context.Context, cmd *raftv1.Command) (fsm.Result, error) {
	i := l.calls
	l.calls++
	if l.ended {
		return fsm.Result{}, raftnode.ErrNotLeader
	}
	mode := logFine
	if l.fault.at == i {
		mode = l.fault.mode
	}
	l.ended = mode == logEndsLost || mode == logEndsApplied
	if mode == logEndsLost || mode == logUnknownLost {
		l.x.note("not in the log: %s", nameOfCommand(cmd))
		return fsm.Result{}, raftnode.ErrUnknownOutcome
	}
	res := l.apply(cmd)
	if res.Err != nil {
		l.x.note("the log refuses %s: %v", nameOfCommand(cmd), res.Err)
	} else {
		l.x.note("in the log: %s", nameOfCommand(cmd))
	}
	if mode == logEndsApplied || mode == logUnknownApplied {
		return fsm.Result{}, raftnode.ErrUnknownOutcome
	}
	return res, nil
}

// apply lets the state machine apply a command without the times and texts in it, and drops garbage as the cleaner would.
func (l *memLog) apply(cmd *raftv1.Command) fsm.Result {
	switch c := cmd.GetCommand().(type) {
	case *raftv1.Command_NewAttempt:
		c.NewAttempt.AtMs = 0
		c.NewAttempt.Token = fmt.Sprintf("token %d of term %d", c.NewAttempt.GetAttempt(), l.term)
		if l.x.mutation == forgetUnfenced {
			defer l.forgetUnfenced()
		}
	case *raftv1.Command_StartAttempt:
		c.StartAttempt.RecoveryMs = 0
	case *raftv1.Command_FailAttempt:
		c.FailAttempt.Failure = nil
	case *raftv1.Command_EndJob:
		c.EndJob.Failure = nil
	case *raftv1.Command_RecordResult:
		c.RecordResult.AtMs = 0
	case *raftv1.Command_CompleteCheckpoint:
		if l.x.mutation == settleAtOnce {
			c.CompleteCheckpoint.Checkpoint.Committables = 0
		}
		c.CompleteCheckpoint.Checkpoint.TriggeredAtMs, c.CompleteCheckpoint.Checkpoint.DurationMs = 0, 0
	}
	res := l.state.Apply(1, cmd)
	if g := res.Job.GetGarbage(); len(g) > 0 {
		drop := &raftv1.DropGarbage{JobId: exploredJob}
		for _, cp := range g {
			drop.Checkpoints = append(drop.Checkpoints, cp.GetId())
		}
		res.Job = l.state.Apply(1, &raftv1.Command{Command: &raftv1.Command_DropGarbage{DropGarbage: drop}}).Job
	}
	return res
}

func (l *memLog) forgetUnfenced() {
	rec, _ := l.state.View().Job(exploredJob)
	var cmd raftv1.FencedAttempts
	cmd.JobId = exploredJob
	for _, f := range rec.GetUnfenced() {
		cmd.Attempts = append(cmd.Attempts, f.GetAttempt())
	}
	l.state.Apply(1, &raftv1.Command{Command: &raftv1.Command_FencedAttempts{FencedAttempts: &cmd}})
}

func (l *memLog) forgetReserved() {
	snap := proto.CloneOf(l.state.Snapshot())
	for _, rec := range snap.GetJobs() {
		rec.NextCheckpoint = 1
		if last, ok := fsm.LastCheckpoint(rec); ok {
			rec.NextCheckpoint = last.GetId() + 1
		}
	}
	if err := l.state.Restore(snap); err != nil {
		panic(err)
	}
}

func (l *memLog) Barrier(context.Context) error {
	if l.ended {
		return raftnode.ErrNotLeader
	}
	return nil
}

func (l *memLog) View() fsm.View { return l.state.View() }

func (l *memLog) record() *raftv1.JobRecord {
	rec, _ := l.state.View().Job(exploredJob)
	return rec
}

func nameOfCommand(cmd *raftv1.Command) string {
	m := cmd.ProtoReflect()
	name := string(m.WhichOneof(m.Descriptor().Oneofs().Get(0)).Name())
	switch c := cmd.GetCommand().(type) {
	case *raftv1.Command_NewAttempt:
		name += fmt.Sprintf(" %d settle_only=%t", c.NewAttempt.GetAttempt(), c.NewAttempt.GetSettleOnly())
	case *raftv1.Command_StartAttempt:
		name += fmt.Sprintf(" %d", c.StartAttempt.GetAttempt())
	case *raftv1.Command_CompleteCheckpoint:
		name += fmt.Sprintf(" %d of attempt %d", c.CompleteCheckpoint.GetCheckpoint().GetId(), c.CompleteCheckpoint.GetCheckpoint().GetAttempt())
	case *raftv1.Command_SettleCheckpoint:
		name += fmt.Sprintf(" %d", c.SettleCheckpoint.GetCheckpoint())
	case *raftv1.Command_FencedAttempts:
		name += fmt.Sprintf(" %v", c.FencedAttempts.GetAttempts())
	}
	return name
}

// memBucket is checkpoint storage. Contents of all branches of the exploration live side by side.
type memBucket struct {
	blob.Bucket
	content map[string][]byte
	last    string
}

func (b *memBucket) Put(_ context.Context, name string, r io.Reader) error {
	data, err := io.ReadAll(r)
	b.last = fmt.Sprintf("%s#%08x", name, crc32.ChecksumIEEE(data))
	b.content[b.last] = data
	return err
}

func (b *memBucket) Open(_ context.Context, name string) (io.ReadCloser, error) {
	data, ok := b.content[name]
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, blob.ErrNotExist)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (b *memBucket) List(context.Context, string) iter.Seq2[blob.Attributes, error] {
	return func(func(blob.Attributes, error) bool) {}
}

// Connections as the leader knows them.
const (
	connGone uint8 = iota
	connBroken
	connUp
)

// leader is the log and, under one leadership, the driver of the job, which is the product's. A leader that is listed is never changed:
// each step works on a copy.
type leader struct {
	log  *memLog
	m    *Manager
	j    *job // nil when the job has ended
	conn [taskManagers]uint8
	at   time.Time // when the copy was made
	sent []sentMsg // in the present step
}

type sentMsg struct {
	tm  uint8
	msg downMsg
}

var _ Sessions = (*leader)(nil)

func tmName(i uint8) string { return fmt.Sprintf("tm%d", i) }

func tmIndex(id string) uint8 { return id[2] - '0' }

func (l *leader) taskManager(i uint8) registry.TaskManager {
	return registry.TaskManager{ID: tmName(i), Incarnation: "i", Host: "h", Slots: parallelism, Connected: l.conn[i] == connUp}
}

// TaskManagers implements Sessions.
func (l *leader) TaskManagers() []registry.TaskManager {
	var out []registry.TaskManager
	for i, c := range l.conn {
		if c != connGone {
			out = append(out, l.taskManager(uint8(i)))
		}
	}
	return out
}

// Send implements Sessions.
func (l *leader) Send(tmID string, m *clusterv1.SessionResponse) error {
	i := tmIndex(tmID)
	if l.conn[i] != connUp {
		return grpcerr.ErrNoTaskManager
	}
	var d downMsg
	switch m := m.GetMessage().(type) {
	case *clusterv1.SessionResponse_StartWorker:
		p := m.StartWorker.GetPrepare()
		d = downMsg{kind: dPrepare, attempt: uint8(p.GetAttempt()), arg: l.log.x.prepareOf(p)}
	case *clusterv1.SessionResponse_StopWorker:
		d = downMsg{kind: dStop, attempt: uint8(m.StopWorker.GetAttempt())}
	case *clusterv1.SessionResponse_WorkerCommand:
		d.attempt = uint8(m.WorkerCommand.GetAttempt())
		switch c := m.WorkerCommand.GetCommand().GetCommand().(type) {
		case *workerv1.Command_Start:
			d.kind, d.arg = dStart, l.log.x.fencesOf(c.Start.GetFence())
		case *workerv1.Command_TriggerCheckpoint:
			d.kind, d.n = dTrigger, uint16(c.TriggerCheckpoint.GetCheckpoint())
		case *workerv1.Command_CompleteCheckpoint:
			d.kind, d.n = dComplete, uint16(c.CompleteCheckpoint.GetCheckpoint())
		case *workerv1.Command_AbortCheckpoint:
			d.kind, d.n = dAbort, uint16(c.AbortCheckpoint.GetCheckpoint())
		case *workerv1.Command_ResumeSources:
			d.kind = dResume
		case *workerv1.Command_Finish:
			d.kind = dFinish
		default:
			panic(fmt.Sprintf("explore: command %T", c))
		}
	default:
		panic(fmt.Sprintf("explore: message %T", m))
	}
	l.sent = append(l.sent, sentMsg{i, d})
	return nil
}

func (x *explorer) newManager(l *leader) *Manager {
	m := &Manager{
		cfg: Config{
			ClusterID: "c", Log: l.log, Bucket: x.bucket,
			RegisterGrace: 20 * time.Second, CancelDeadline: 4 * time.Second, PrepareWarning: 24 * time.Hour, PrepareTimeout: 60 * time.Second,
			SettleBudget: 24 * time.Hour, Metrics: x.metrics, Logger: x.logger,
		},
		sessions: l, slots: newSlots(l), jobs: map[string]*job{}, ctx: x.ctx, cancel: func() {},
	}
	return m
}

func newCleanerWithoutLife(m *Manager, j *job) *cleaner {
	return &cleaner{
		m: m, jobID: j.id, prefix: jobPrefix("c", j.id), box: j.box, logger: m.cfg.Logger, wake: make(chan struct{}, 1),
		known: map[uint64]*snapshotv1.CheckpointMetadata{},
	}
}

// takeUp makes the driver of a new leadership, like Manager.Start and job.run.
func (x *explorer) takeUp(former *leader) *leader {
	l := &leader{log: &memLog{x: x, state: former.log.state, term: former.log.term + 1}}
	l.m = x.newManager(l)
	if x.mutation == reuseIDs {
		l.log.forgetReserved()
	}
	rec := l.log.record()
	if fsm.Terminal(rec.GetState()) {
		return l
	}
	if adoptable(rec) {
		l.m.slots.hold(rec)
	}
	l.j = newJob(l.m, rec)
	l.j.ctx = x.ctx
	l.j.clean = newCleanerWithoutLife(l.m, l.j)
	l.m.jobs[exploredJob] = l.j
	l.j.begin()
	x.finishStep(l)
	return l
}

// copyLeader returns a copy that lives pass later.
func (x *explorer) copyLeader(l *leader, pass time.Duration) *leader {
	n := &leader{log: &memLog{x: x, state: l.log.state, term: l.log.term}, conn: l.conn}
	n.m = x.newManager(n)
	now := time.Now()
	if l.j == nil {
		return n
	}
	n.j = deepCopy(l.j, func(t time.Time) time.Time {
		a := age(t, l.at)
		t = now.Add(-time.Duration(a)*time.Second - pass)
		if a >= 0 {
			t = t.Add(-2 * time.Millisecond) // no two steps are at the same time
		}
		return t
	})
	n.j.m, n.j.clean = n.m, newCleanerWithoutLife(n.m, n.j)
	switch name := nameOf(reflect.ValueOf(l.j.after)); name[strings.LastIndexByte(name, '.')+1:] {
	case "":
	case "proceed-fm":
		n.j.after = n.j.proceed
	case "afterFailure-fm":
		n.j.after = n.j.afterFailure
	case "recordSettled-fm":
		n.j.after = n.j.recordSettled
	default:
		panic("explore: what follows a stop cannot be copied: " + name)
	}
	n.m.jobs[exploredJob] = n.j
	for id, p := range l.m.slots.held {
		n.m.slots.held[id] = p
	}
	for id, w := range l.m.slots.waiting {
		r := *w
		r.box = n.j.box
		n.m.slots.waiting[id] = &r
	}
	return n
}

// finishStep waits for what the driver does on the side, which is short here, and gives metadata files a name for their content.
func (x *explorer) finishStep(l *leader) {
	l.m.wg.Wait()
	l.at = time.Now()
	if l.j == nil {
		return
	}
	for _, ev := range l.j.box.queue {
		if c, ok := ev.(coordinatorEvent); ok {
			if w, ok := c.ev.(checkpoint.MetadataWritten); ok && !strings.Contains(w.Metadata.GetName(), "#") {
				w.Metadata.Name = x.bucket.last
			}
		}
	}
	if l.j.phase == phaseDone && fsm.Terminal(l.log.record().GetState()) {
		l.j = nil
		delete(l.m.jobs, exploredJob)
	}
}

// dead reports whether the leadership has ended.
func (l *leader) dead() bool { return l.j != nil && l.j.phase == phaseDone }

// key is the canonical form.
func (l *leader) key() string {
	k := keyer{now: l.at}
	k.number(int64(l.log.term))
	k.buf = append(k.buf, l.conn[:]...)
	rec, err := proto.MarshalOptions{Deterministic: true}.Marshal(l.log.record())
	if err != nil {
		panic(err)
	}
	k.text(string(rec))
	if l.j == nil {
		return string(k.buf)
	}
	k.number(int64(l.j.status.live.Load()))
	k.number(int64(len(l.m.slots.held)*10 + len(l.m.slots.waiting)))
	k.write(reflect.ValueOf(l.j).Elem())
	return string(k.buf)
}

// What a driver is told.
type leaderOp struct {
	kind     uint8
	tm       uint8
	internal uint8
	up       upMsg
	running  running
	fault    fault
}

const (
	opReport   uint8 = iota + 1 // a message of a TaskManager
	opInternal                  // an answer of storage or of the scheduler
	opTick
	opBroken
	opLost
	opConnect
	opCancel
	opTakeUp // a new leader begins
)

// running is what a TaskManager tells of its worker when it registers.
type running struct {
	attempt           uint8 // 0 for none
	tasks             uint8 // a bit for each
	prepared, started bool
}

func (r running) attempts() []*clusterv1.RunningAttempt {
	if r.attempt == 0 {
		return nil
	}
	a := &clusterv1.RunningAttempt{JobId: exploredJob, Attempt: uint64(r.attempt), Started: r.started}
	for s := range uint32(parallelism) {
		if r.tasks&(1<<s) != 0 {
			a.Tasks = append(a.Tasks, &workerv1.TaskAssignment{Vertex: "v", Subtask: s})
		}
	}
	if r.prepared {
		a.DataAddress = "a"
	}
	return []*clusterv1.RunningAttempt{a}
}

// leaderOut is what a step of the driver led to.
type leaderOut struct {
	id    uint32
	sent  []sentMsg
	stale bool  // what the TaskManager runs is to be stopped
	calls uint8 // entries proposed
	notes []string
}

// leaderInfo is what the exploration asks about a leader.
type leaderInfo struct {
	dead, ended bool
	internal    uint8
	conn        [taskManagers]uint8
	wait        time.Duration // until the driver wants to be woken; 0 for not known, negative for never
	running     bool
	listed      []cid  // of the newest completed checkpoint
	list        uint32 // number of that list
	attempt     uint8
	text        string
}

func (x *explorer) internLeader(l *leader) uint32 {
	key := l.key()
	if id, ok := x.leaderIndex[key]; ok {
		return id
	}
	id := uint32(len(x.leaders))
	x.leaderIndex[key] = id
	x.leaders = append(x.leaders, l)
	rec := l.log.record()
	info := leaderInfo{dead: l.dead(), ended: l.j == nil, conn: l.conn, attempt: uint8(rec.GetAttempt())}
	info.text = fmt.Sprintf("term %d, %s, attempt %d", l.log.term, strings.ToLower(strings.TrimPrefix(rec.GetState().String(), "JOB_STATE_")), rec.GetAttempt())
	if l.j != nil {
		info.internal = uint8(len(l.j.box.queue))
		info.running = l.j.phase == phaseRunning
		info.text += fmt.Sprintf(", phase %d", l.j.phase)
	}
	if last, ok := fsm.LastCheckpoint(rec); ok {
		info.listed = x.listed(last.GetMetadata().GetName())
		info.list = intern(&x.lists, x.listIndex, last.GetMetadata().GetName()) + 1
	}
	x.infos = append(x.infos, info)
	return id
}

// wait returns after which time a driver wants to be woken; 0 for never.
func (x *explorer) wait(id uint32) time.Duration {
	info := &x.infos[id]
	if info.wait == 0 {
		info.wait = -1
		if n := x.copyLeader(x.leaders[id], 0); n.j != nil {
			if d := n.j.untilDeadline(); d < time.Hour {
				info.wait = max(d, time.Microsecond)
			}
		}
	}
	return max(info.wait, 0)
}

// stepLeader lets a driver handle something.
func (x *explorer) stepLeader(id uint32, op leaderOp) *leaderOut {
	key := memoKey[leaderOp]{id, op}
	if out, ok := x.leaderMemo[key]; ok {
		x.notes = out.notes
		return out
	}
	x.notes = nil
	out := &leaderOut{}
	var n *leader
	if op.kind == opTakeUp {
		n = x.takeUp(x.leaders[id])
	} else {
		pass := time.Duration(0)
		if op.kind == opTick {
			pass = x.wait(id)
		}
		n = x.copyLeader(x.leaders[id], pass)
		n.log.fault = op.fault
		x.handle(n, op, out)
		x.finishStep(n)
	}
	out.calls, out.sent, out.notes = n.log.calls, n.sent, x.notes
	n.sent = nil
	out.id = x.internLeader(n)
	x.leaderMemo[key] = out
	return out
}

func (x *explorer) handle(l *leader, op leaderOp, out *leaderOut) {
	j := l.j
	switch op.kind {
	case opInternal:
		ev := j.box.queue[op.internal]
		j.box.queue = append(j.box.queue[:op.internal:op.internal], j.box.queue[op.internal+1:]...)
		j.handle(ev)
	case opTick:
		j.tick()
	case opReport:
		x.report(l, op.tm, op.up)
	case opBroken:
		l.conn[op.tm] = connBroken
		if j != nil {
			j.handle(tmChanged{tm: l.taskManager(op.tm), change: interrupted})
			l.m.slots.changed()
		}
	case opLost:
		l.conn[op.tm] = connGone
		if j != nil {
			j.handle(tmChanged{tm: l.taskManager(op.tm), change: lost, reason: "no sign of life"})
			l.m.slots.changed()
		}
	case opConnect:
		change := resumed
		if l.conn[op.tm] == connGone {
			change = joined
		}
		out.stale = len(l.m.Stale(op.running.attempts())) > 0
		l.conn[op.tm] = connUp
		if j != nil {
			j.handle(tmChanged{tm: l.taskManager(op.tm), change: change, running: op.running.attempts()})
			l.m.slots.changed()
		}
	case opCancel:
		reply := make(chan error, 1)
		j.handle(cancelRequest{requestID: "cancel", reply: reply})
	}
}

// report gives the driver a report of a TaskManager.
func (x *explorer) report(l *leader, tm uint8, u upMsg) {
	if l.j == nil {
		return
	}
	if u.kind == uExited {
		ev := &clusterv1.WorkerExited{JobId: exploredJob, Attempt: uint64(u.attempt), Expected: u.n == 1}
		if u.n == 0 {
			ev.Signal = "SIGKILL"
		}
		l.j.handle(workerExited{tm: l.taskManager(tm), ev: ev})
		return
	}
	ev := &workerv1.Event{}
	switch u.kind {
	case uPrepared:
		ev.Event = &workerv1.Event_Prepared{Prepared: &workerv1.Prepared{DataAddress: "a"}}
	case uStarted:
		ev.Event = &workerv1.Event_Started{Started: &workerv1.Started{}}
	case uClosed:
		ev.Event = &workerv1.Event_Closed{Closed: &workerv1.Closed{}}
	case uAck:
		h := &snapshotv1.TaskHandle{Vertex: "v", Subtask: uint32(u.sub), Snapshot: []byte(x.handles[u.arg].bytes), Committables: x.handles[u.arg].committables}
		ev.Event = &workerv1.Event_CheckpointAck{CheckpointAck: &workerv1.CheckpointAck{Checkpoint: uint64(u.n), Handle: h}}
	case uDeclined:
		ev.Event = &workerv1.Event_CheckpointDeclined{CheckpointDeclined: &workerv1.CheckpointDeclined{Checkpoint: uint64(u.n), Vertex: "v", Subtask: uint32(u.sub)}}
	case uActivity:
		ev.Event = &workerv1.Event_Activity{Activity: &workerv1.Activity{SinceCheckpoint: uint64(u.n)}}
	case uCommitted:
		ev.Event = &workerv1.Event_CommitAcked{CommitAcked: &workerv1.CommitAcked{Checkpoint: uint64(u.n)}}
	case uFailed:
		ev.Event = &workerv1.Event_TaskFailed{TaskFailed: &workerv1.TaskFailed{Vertex: "v", Subtask: uint32(u.sub), Class: workerv1.FailureClass_FAILURE_CLASS_RESTART}}
	}
	l.j.handle(workerEvent{tm: l.taskManager(tm), ev: &clusterv1.WorkerEvent{JobId: exploredJob, Attempt: uint64(u.attempt), Event: ev}})
}

// listed returns the committables in a metadata file.
func (x *explorer) listed(name string) []cid {
	if known, ok := x.listedIn[name]; ok {
		return known
	}
	md, err := checkpointfile.Decode(name, x.bucket.content[name])
	if err != nil {
		panic(err)
	}
	var out []cid
	for _, h := range md.GetTasks() {
		s := &snapshotv1.TaskSnapshot{}
		if err := proto.Unmarshal(h.GetSnapshot(), s); err != nil {
			panic(err)
		}
		for _, op := range s.GetOperators() {
			for _, c := range op.GetCommittables() {
				out = append(out, cidOf(c.GetPayload()))
			}
		}
	}
	x.listedIn[name] = out
	return out
}

// firstLeader is the first leader of a cluster to which the job has just been submitted.
func (x *explorer) firstLeader() *leader {
	former := &leader{log: &memLog{x: x}}
	former.log.state.Apply(1, &raftv1.Command{Command: &raftv1.Command_InitCluster{InitCluster: &raftv1.InitCluster{ClusterId: "c"}}})
	res := former.log.state.Apply(1, &raftv1.Command{Command: &raftv1.Command_CreateJob{CreateJob: &raftv1.CreateJob{Job: &raftv1.JobRecord{
		Id: exploredJob, RequestId: "r", Name: "n", Graph: &jobv1.Graph{
			Name: "n", MaxParallelism: 8, Fingerprint: "f",
			Vertices: []*jobv1.Vertex{{Id: "v", Parallelism: parallelism, Source: true, Operators: []*jobv1.Operator{
				{Uid: "src"}, {Uid: "out", TransactionSlots: slotBound},
			}}},
			Checkpoints: &jobv1.CheckpointConfig{Enabled: true, IntervalMs: 1, ToleratedFailures: 1, Retained: 1},
			Restarts:    &jobv1.RestartPolicy{MaxRestarts: 100, WindowMs: 1, Multiplier: 1},
		},
	}}}})
	if res.Err != nil {
		panic(res.Err)
	}
	return x.takeUp(former)
}

func newMetricsForNobody() *Metrics { return NewMetrics(prometheus.NewRegistry()) }

func nobodyReads() *slog.Logger { return slog.New(slog.DiscardHandler) }

// cid is a prepared transaction: what one transactional id wrote of one input, in its producer epoch.
type cid struct {
	attempt, sub, slot, epoch uint8
	from, to                  uint8 // records
}

func (c cid) payload() []byte { return []byte{c.attempt, c.sub, c.slot, c.epoch, c.from, c.to} }

func cidOf(b []byte) cid { return cid{b[0], b[1], b[2], b[3], b[4], b[5]} }

func (c cid) String() string {
	return fmt.Sprintf("%d.%d.%d@%d[%d-%d]", c.attempt, c.sub, c.slot, c.epoch, c.from, c.to)
}

// note adds to the story of the present step.
func (x *explorer) note(format string, args ...any) {
	x.notes = append(x.notes, fmt.Sprintf(format, args...))
}
