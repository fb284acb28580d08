package driver

import (
	"fmt"
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
	dCommitRewritten
	dFenceAgain
)

type downMsg struct {
	kind, attempt uint8
	n             uint16
	arg           uint32
}

func (m downMsg) String() string {
	name := [...]string{"", "prepare", "stop", "start", "trigger", "complete", "abort", "resume", "finish", "commit what was written again", "fence again"}[m.kind]
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
	uRewritten
	uFenced
)

type upMsg struct {
	kind, attempt, sub uint8
	n                  uint16
	arg                uint32
}

func (m upMsg) String() string {
	name := [...]string{"", "prepared", "started", "closed", "acknowledgement", "decline", "activity after", "committed", "failed", "exited", "written again what was lost", "fenced again"}[m.kind]
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
	workerRewritten // waits until the log knows
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
	restore  restoring
	toFence  bool
	// asked are the checkpoints whose commit was asked for and not begun, oldest first; serving is the one that is under way.
	asked   [6]uint16
	nAsked  uint8
	serving uint16
	// committing is the transaction that is being committed.
	committing   cid
	committingOf uint64 // its checkpoint
	busy         bool
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
	prepared   bool
	acceptLoss bool
	since      uint16
	fences     uint32
	asks       [6]commitAsk
	tasks      [maxTasks]task
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
	r := running{attempt: t.attempt, prepared: t.prepared, started: t.started}
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
	t.state, t.attempt, t.settleOnly, t.started, t.prepared, t.acceptLoss, t.since, t.fences = workerNone, 0, false, false, false, false, 0, 0
	t.asks, t.tasks = [6]commitAsk{}, [maxTasks]task{}
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
	case m.kind == dCommitRewritten:
		switch {
		case t.state == workerRewritten:
			for s := range t.tasks {
				r := &t.tasks[s].restore
				r.due = r.rewritten != cid{}
			}
		case t.prepared && t.state != workerFailed:
			x.tellPrepared(t)
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
	case dFenceAgain:
		v = x.fenceAgain(t, b, m)
	case dTrigger:
		for s := range t.tasks {
			if t.tasks[s].here && m.n > t.tasks[s].last {
				x.snapshot(t, b, uint8(s), m.n)
				if t.state != workerRunning {
					return ""
				}
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
