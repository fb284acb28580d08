package driver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
	kafkaslots "github.com/weir-stream/weir/sinks/kafka/slots"
	"github.com/weir-stream/weir/taskmanager/worker/snapshot"
)

// The workers' side: the ledger and the pool of slots are the product's, and so are the distribution of what is restored and the names
// of ids. What is written here again is the little around them: sinks.twoPhase, sinks.committer, kafkasink.lanes, worker.Worker,
// supervisor.Supervisor and session.outbox, without their I/O.

// Messages to a TaskManager.
const (
	dPrepare uint8 = iota + 1
	dStop
	dStart
	dTrigger
	dComplete
	dAbort
	dResume
	dFinish
)

type downMsg struct {
	kind, attempt uint8
	n             uint16
	arg           uint32
}

func (m downMsg) String() string {
	name := [...]string{"", "prepare", "stop", "start", "trigger", "complete", "abort", "resume", "finish"}[m.kind]
	if m.n > 0 {
		name += fmt.Sprintf(" %d", m.n)
	}
	return fmt.Sprintf("%s (attempt %d)", name, m.attempt)
}

// Messages of a TaskManager.
const (
	uPrepared uint8 = iota + 1
	uStarted
	uClosed
	uAck
	uDeclined
	uActivity
	uCommitted
	uFailed
	uExited
)

type upMsg struct {
	kind, attempt, sub uint8
	n                  uint16
	arg                uint32
}

func (m upMsg) String() string {
	name := [...]string{"", "prepared", "started", "closed", "acknowledgement", "decline", "activity after", "committed", "failed", "exited"}[m.kind]
	switch m.kind {
	case uAck, uDeclined:
		name += fmt.Sprintf(" of checkpoint %d by task %d", m.n, m.sub)
	case uActivity, uCommitted:
		name += fmt.Sprintf(" %d", m.n)
	}
	return fmt.Sprintf("%s (attempt %d)", name, m.attempt)
}

// kept reports whether a report outlives a connection, as session.kept does.
func (m upMsg) kept() bool { return m.kind != uAck && m.kind != uDeclined }

// What a worker is at.
const (
	workerNone uint8 = iota
	workerPreparing
	workerPrepared
	workerFencing
	workerRunning
	workerFailed
)

const noSlot = 255

// task is a source with its transactional sink.
type task struct {
	here bool
	pos  uint8 // records emitted
	last uint16
	// starting is a bit for each slot that is to be initialised in a step of its own.
	starting uint8
	changed  bool
	ledger   uint32
	pool     uint32
	slot     uint8 // being written, or noSlot
	from     uint8 // first record in it
	epochs   [slotBound]uint8
	// restored are the transactions still to be committed before the worker has prepared.
	restored  [4]cid
	nRestored uint8
	toFence   bool
	// asked are the checkpoints whose commit was asked for and not begun, oldest first; serving is the one that is under way.
	asked   [6]uint16
	nAsked  uint8
	serving uint16
	// committing is the transaction that is being committed.
	committing cid
	busy       bool
}

// commitAsk is a commit that not all tasks of a worker have acknowledged.
type commitAsk struct {
	n    uint16
	left uint8
}

type taskManager struct {
	up      bool // the connection to the leader stands
	highest uint8
	down    [14]downMsg
	nDown   uint8
	out     [16]upMsg
	nOut    uint8

	state      uint8
	attempt    uint8
	settleOnly bool
	started    bool
	since      uint16
	fences     uint32
	asks       [6]commitAsk
	tasks      [parallelism]task
}

func (t *taskManager) push(m downMsg) {
	t.down[t.nDown] = m
	t.nDown++
}

func (t *taskManager) pop() downMsg {
	m := t.down[0]
	copy(t.down[:], t.down[1:t.nDown])
	t.nDown--
	t.down[t.nDown] = downMsg{}
	return m
}

func (t *taskManager) tell(m upMsg) {
	if !t.up && !m.kept() {
		return
	}
	m.attempt = max(m.attempt, t.attempt)
	t.out[t.nOut] = m
	t.nOut++
}

func (t *taskManager) told() upMsg {
	m := t.out[0]
	copy(t.out[:], t.out[1:t.nOut])
	t.nOut--
	t.out[t.nOut] = upMsg{}
	return m
}

// disconnect ends the connection: what only made sense to its leader is dropped, and what was sent to us may still be read.
func (t *taskManager) disconnect() {
	t.up = false
	n := uint8(0)
	for _, m := range t.out[:t.nOut] {
		if m.kept() {
			t.out[n] = m
			n++
		}
	}
	for i := n; i < t.nOut; i++ {
		t.out[i] = upMsg{}
	}
	t.nOut = n
}

func (t *taskManager) running() running {
	r := running{attempt: t.attempt, prepared: t.state > workerPreparing, started: t.started}
	if t.state == workerNone {
		return running{}
	}
	for s := range t.tasks {
		if t.tasks[s].here {
			r.tasks |= 1 << s
		}
	}
	return r
}

// exit ends the worker process.
func (t *taskManager) exit(expected bool) {
	m := upMsg{kind: uExited, attempt: t.attempt}
	if expected {
		m.n = 1
	}
	t.tell(m)
	t.state, t.attempt, t.settleOnly, t.started, t.since, t.fences = workerNone, 0, false, false, 0, 0
	t.asks, t.tasks = [6]commitAsk{}, [parallelism]task{}
}

// prep is what a worker is told to prepare.
type prep struct {
	tasks              uint8
	metadata           string
	settled, settleOnl bool
}

func (x *explorer) prepareOf(p *workerv1.Prepare) uint32 {
	v := prep{metadata: p.GetRestore().GetMetadata().GetName(), settled: p.GetRestore().GetSettled(), settleOnl: p.GetSettleOnly()}
	for _, t := range p.GetTasks() {
		v.tasks |= 1 << t.GetSubtask()
	}
	return intern(&x.preps, x.prepIndex, v)
}

func intern[T comparable](list *[]T, index map[T]uint32, v T) uint32 {
	id, ok := index[v]
	if !ok {
		id = uint32(len(*list))
		*list = append(*list, v)
		index[v] = id
	}
	return id
}

// fencesOf numbers a list of former attempts.
func (x *explorer) fencesOf(fs []*workerv1.FencedAttempt) uint32 {
	var name strings.Builder
	for _, f := range fs {
		for _, s := range f.GetSinks() {
			fmt.Fprintf(&name, "%d %s %d %d;", f.GetAttempt(), s.GetUid(), s.GetParallelism(), s.GetSlots())
		}
	}
	id := intern(&x.fenceNames, x.fenceIndex, name.String())
	if int(id) == len(x.fences) {
		x.fences = append(x.fences, fs)
	}
	return id
}

// toFence returns the ids that one subtask has to initialise.
func (x *explorer) toFence(fences uint32, sub uint8) []uint8 {
	key := [2]uint32{fences, uint32(sub)}
	if ids, ok := x.shares[key]; ok {
		return ids
	}
	scope := operator.Scope{Subtask: int(sub), Parallelism: parallelism}
	for _, f := range x.fences[fences] {
		for _, s := range f.GetSinks() {
			if s.GetUid() == "out" {
				scope.Attempts = append(scope.Attempts, operator.FormerAttempt{
					Attempt: f.GetAttempt(), Parallelism: int(s.GetParallelism()), Slots: int(s.GetSlots()),
				})
			}
		}
	}
	var ids []uint8
	for _, name := range kafkaslots.NewScheme("w", sinks.Context{ClusterID: "c", JobID: exploredJob, UID: "out"}).Share(scope) {
		parts := strings.Split(name, ".")
		var n [3]uint8
		for i, p := range parts[len(parts)-3:] {
			v, err := strconv.ParseUint(p, 10, 8)
			if err != nil {
				panic(err)
			}
			n[i] = uint8(v)
		}
		ids = append(ids, idIndex(n[0], n[1], n[2]))
	}
	x.shares[key] = ids
	return ids
}

// restored is what a task starts from.
type restored struct {
	pos          uint8
	committables []cid
}

// files gives restore points to the code that reads them.
type files struct {
	x   *explorer
	dir string
}

func (f files) Upload(context.Context, string, string, uint64, uint32) error {
	panic("explore: not used")
}

func (f files) Fetch(_ context.Context, seg *snapshotv1.Segment) (string, error) {
	path := filepath.Join(f.dir, strings.ReplaceAll(seg.GetName(), "/", "_"))
	return path, os.WriteFile(path, f.x.bucket.content[seg.GetName()], 0o600)
}

func (x *explorer) restore(p prep, sub uint8) restored {
	key := fmt.Sprintf("%s %d", p.metadata, sub)
	if r, ok := x.restores[key]; ok {
		return r
	}
	var r restored
	if p.metadata != "" {
		point, err := snapshot.Read(x.ctx, files{x, x.dir}, &snapshotv1.Segment{Name: p.metadata})
		if err != nil {
			panic(err)
		}
		states, _ := point.Operator("src", int(sub), parallelism)
		for _, s := range states {
			r.pos = s.GetOperatorStates()[0].GetEntries()[0].GetValue()[0]
		}
		_, cs := point.Operator("out", int(sub), parallelism)
		for _, c := range cs {
			r.committables = append(r.committables, cidOf(c.GetPayload()))
		}
	}
	x.restores[key] = r
	return r
}

// receive lets a TaskManager handle the next message of the leader.
func (x *explorer) receive(t *taskManager, b *broker, m downMsg) (v violation) {
	switch m.kind {
	case dPrepare:
		return x.prepare(t, b, m)
	case dStop:
		if t.state != workerNone && t.attempt == m.attempt {
			t.exit(true)
			return ""
		}
		t.highest = max(t.highest, m.attempt)
		t.tell(upMsg{kind: uExited, attempt: m.attempt, n: 1})
		return ""
	}
	if t.state == workerNone || t.attempt != m.attempt {
		return ""
	}
	switch {
	case m.kind == dStart:
		switch t.state {
		case workerPrepared:
			t.state, t.fences = workerFencing, m.arg
			for s := range t.tasks {
				t.tasks[s].toFence = t.tasks[s].here
			}
		case workerRunning:
			t.tell(upMsg{kind: uStarted})
		}
		return ""
	case m.kind == dFinish:
		if t.state != workerFailed {
			t.tell(upMsg{kind: uClosed})
			t.exit(true)
		}
		return ""
	case t.state != workerRunning || t.settleOnly:
		return ""
	}
	switch m.kind {
	case dTrigger:
		for s := range t.tasks {
			if t.tasks[s].here && m.n > t.tasks[s].last {
				x.snapshot(t, uint8(s), m.n)
			}
		}
	case dComplete:
		n := uint8(0)
		for s := range t.tasks {
			if t.tasks[s].here {
				n++
			}
		}
		x.commitAsked(t, m.n, n)
		for s := range t.tasks {
			if k := &t.tasks[s]; k.here {
				k.asked[k.nAsked] = m.n
				k.nAsked++
				v = cmpViolation(v, x.serve(t, b, uint8(s)))
			}
		}
	}
	return v
}

func cmpViolation(a, b violation) violation {
	if a != "" {
		return a
	}
	return b
}

// prepare starts a worker process, which opens its sinks; what it has to commit follows in steps.
func (x *explorer) prepare(t *taskManager, b *broker, m downMsg) (v violation) {
	if t.state != workerNone && t.attempt == m.attempt {
		return ""
	}
	if m.attempt <= t.highest {
		t.tell(upMsg{kind: uExited, attempt: m.attempt, n: 1})
		return ""
	}
	t.highest = m.attempt
	if t.state != workerNone {
		t.exit(true)
	}
	p := x.preps[m.arg]
	t.state, t.attempt, t.settleOnly = workerPreparing, m.attempt, p.settleOnl
	for s := range t.tasks {
		if p.tasks&(1<<s) == 0 {
			continue
		}
		k := &t.tasks[s]
		r := x.restore(p, uint8(s))
		*k = task{here: true, pos: r.pos, slot: noSlot}
		if !p.settled {
			k.nRestored = uint8(copy(k.restored[:], r.committables))
			must(int(k.nRestored) == len(r.committables))
		}
		k.pool = x.emptyPool()
		v = cmpViolation(v, x.startSpares(t, b, uint8(s)))
	}
	if x.mutation == fenceFirst {
		// As if former attempts were fenced while this one is being prepared.
		for i := range b.ids {
			if b.ids[i].known && uint8(i)/slotBound/parallelism+1 < t.attempt {
				_, w := b.initialise(uint8(i))
				v = cmpViolation(v, w)
			}
		}
	}
	x.preparedWhenComplete(t)
	return v
}

func (x *explorer) emptyPool() uint32 {
	if x.v1 {
		return x.poolRenew
	}
	return 0
}

func (x *explorer) preparedWhenComplete(t *taskManager) {
	for s := range t.tasks {
		if t.tasks[s].nRestored > 0 {
			return
		}
	}
	t.state = workerPrepared
	t.tell(upMsg{kind: uPrepared})
}
