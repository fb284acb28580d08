package driver

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/jobmanager/fsm"
)

// The steps of the leader's side, each carried out once in each state of a leader.

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
	for s := range uint32(maxTasks) {
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
}

// leaderInfo is what the exploration asks about a leader.
type leaderInfo struct {
	dead, ended bool
	internal    uint8
	conn        [taskManagers]uint8
	wait        time.Duration // until the driver wants to be woken; 0 for not known, negative for never
	running     bool
	vouched     []cid  // what the newest completed checkpoint lists, and what replaces some of it
	list        uint32 // number of that list
	attempt     uint8
	state       jobv1.JobState
	lost        [maxTasks]uint16 // records of which the log says that they are lost
}

func (x *explorer) internLeader(l *leader) uint32 {
	key := l.key()
	if id, ok := x.leaderIndex.get(key); ok {
		return id
	}
	id := uint32(len(x.leaders))
	x.leaderIndex.put(key, id)
	x.leaders = append(x.leaders, l)
	rec := l.log.record()
	info := leaderInfo{dead: l.dead(), ended: l.j == nil, conn: l.conn, attempt: uint8(rec.GetAttempt())}
	if l.j != nil {
		info.internal = uint8(len(l.j.box.queue))
		info.running = l.j.phase == phaseRunning
	}
	info.state = rec.GetState()
	for _, l := range rec.GetLost() {
		c := x.cids[l.GetTransaction()]
		info.lost[c.sub] |= bitsOf(c.from, c.to)
	}
	if last, ok := fsm.LastCheckpoint(rec); ok {
		name := fmt.Sprintf("%s %d", last.GetMetadata().GetName(), x.replacementsOf(rec.GetReplaced().GetReplacements()))
		id, known := x.lists.names.index[name]
		if !known {
			vouched := x.listed(last.GetMetadata().GetName())
			for _, r := range rec.GetReplaced().GetReplacements() {
				vouched = append(vouched[:len(vouched):len(vouched)], cidOf(r.GetCommittable().GetPayload()))
			}
			id = x.lists.number(name, vouched)
		}
		info.list, info.vouched = id+1, x.lists.list[id]
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

// packed is the operation as a number.
func (o leaderOp) packed() uint64 {
	n := uint64(o.kind) | uint64(o.tm)<<4 | uint64(o.internal)<<8 | uint64(o.fault.mode)<<16 | uint64(o.fault.at)<<20
	if o.kind == opConnect {
		return n | uint64(o.running.attempt)<<24 | uint64(o.running.tasks)<<32 | one(o.running.prepared)<<40 | one(o.running.started)<<41
	}
	if o.up.n >= 1<<12 || o.up.arg >= 1<<18 {
		panic("explore: more than can be packed")
	}
	return n | uint64(o.up.kind)<<24 | uint64(o.up.attempt)<<28 | uint64(o.up.sub)<<32 | uint64(o.up.n)<<34 | uint64(o.up.arg)<<46 // 12 bits, 18 bits
}

func one(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// stepLeader lets a driver handle something and returns the number of what came out.
func (x *explorer) stepLeader(id uint32, op leaderOp) uint32 {
	key := pair{uint64(id), op.packed()}
	if n, ok := x.leaderMemo.get(key); ok && !x.telling {
		return n
	}
	out := leaderOut{}
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
		x.handle(n, op, &out)
		x.finishStep(n)
	}
	out.calls, out.sent = n.log.calls, n.sent
	n.sent = nil
	out.id = x.internLeader(n)
	number := uint32(len(x.leaderOuts))
	x.leaderOuts = append(x.leaderOuts, out)
	x.leaderMemo.put(key, number)
	return number
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
		ev.Event = &workerv1.Event_Prepared{Prepared: &workerv1.Prepared{DataAddress: "a", Lost: x.lostIn(u.arg)}}
	case uRewritten:
		ev.Event = &workerv1.Event_Rewritten{Rewritten: &workerv1.Rewritten{Replacements: x.replacements.list[u.arg]}}
	case uFenced:
		ev.Event = &workerv1.Event_TransactionsDone{TransactionsDone: &workerv1.TransactionsDone{Request: l.request(u.n)}}
	case uStarted:
		ev.Event = &workerv1.Event_Started{Started: &workerv1.Started{}}
	case uClosed:
		ev.Event = &workerv1.Event_Closed{Closed: &workerv1.Closed{}}
	case uAck:
		h := &snapshotv1.TaskHandle{Vertex: "v", Subtask: uint32(u.sub), Snapshot: []byte(x.handles.list[u.arg].bytes), Committables: x.handles.list[u.arg].committables}
		ev.Event = &workerv1.Event_CheckpointAck{CheckpointAck: &workerv1.CheckpointAck{Checkpoint: uint64(u.n), Handle: h}}
	case uDeclined:
		ev.Event = &workerv1.Event_CheckpointDeclined{CheckpointDeclined: &workerv1.CheckpointDeclined{Checkpoint: uint64(u.n), Vertex: "v", Subtask: uint32(u.sub)}}
	case uActivity:
		ev.Event = &workerv1.Event_Activity{Activity: &workerv1.Activity{SinceCheckpoint: uint64(u.n)}}
	case uCommitted:
		ev.Event = &workerv1.Event_CommitAcked{CommitAcked: &workerv1.CommitAcked{Checkpoint: uint64(u.n)}}
	case uFailed:
		failed := &workerv1.TaskFailed{Vertex: "v", Subtask: uint32(u.sub), Class: workerv1.FailureClass_FAILURE_CLASS_RESTART}
		if u.arg > 0 {
			failed.Class, failed.Lost = workerv1.FailureClass_FAILURE_CLASS_DATA_LOSS, x.lostIn(u.arg)
		}
		ev.Event = &workerv1.Event_TaskFailed{TaskFailed: failed}
	}
	l.j.handle(workerEvent{tm: l.taskManager(tm), ev: &clusterv1.WorkerEvent{JobId: exploredJob, Attempt: uint64(u.attempt), Event: ev}})
}

// lostIn returns losses to be told. They are copies, since the driver writes into them.
func (x *explorer) lostIn(losses uint32) (out []*jobv1.LostOutput) {
	for _, l := range x.losses.list[losses] {
		out = append(out, proto.CloneOf(l))
	}
	return out
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
			Name: "n", MaxParallelism: 8, Fingerprint: "f", TransactionsCommand: x.mutation != fenceOnce,
			Vertices: []*jobv1.Vertex{{Id: "v", Parallelism: uint32(x.tasks()), Source: true, Operators: []*jobv1.Operator{
				{Uid: "src"}, {Uid: "out", TransactionSlots: slotBound, DurableOutput: x.durable},
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

// note adds to the story of the present step, when one is told.
func (x *explorer) note(format string, args ...any) {
	if x.telling {
		x.notes = append(x.notes, fmt.Sprintf(format, args...))
	}
}
