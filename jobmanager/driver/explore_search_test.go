package driver

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	kafkaslots "github.com/weir-stream/weir/sinks/kafka/slots"
)

// budget is what may still go wrong.
type budget struct {
	crash   uint8 // of a worker process
	leader  uint8 // ends of a leadership
	broken  uint8 // connections of a TaskManager that break and come back
	lost    uint8 // TaskManagers that the leader gives up while they and their workers live on
	decline uint8 // snapshots that cannot be stored
	unknown uint8 // entries of which the leader learns only by a barrier what became of them
	early   uint8 // timers that end while other things could still happen
	cancel  uint8 // commands to end the job
	copied  uint8 // requests to commit of which a copy arrives at any later time
}

// scenario bounds an exploration.
type scenario struct {
	records  [parallelism]uint8 // of each input
	budget   budget
	v1       bool // transactions v1
	slow     bool // spare ids are initialised in steps of their own
	mutation mutation
	most     int // states
}

// mutation is a fault put into the protocol, to see it found.
type mutation uint8

const (
	none            mutation = iota
	commitFirst              // workers are told of a completion before it is in the log
	forgetPending            // a snapshot lists the transaction of its own barrier only
	fenceFirst               // former attempts are fenced while the new one is being prepared
	releaseAtCommit          // an id is free when its transaction is committed
	onlyNewest               // a notice commits the transactions of its own checkpoint only
	noRenewal                // with transactions v1 ids are used again as they are
	forgetUnfenced           // the log does not remember which attempts are to be fenced
	settleAtOnce             // a completed checkpoint counts as committed at once
	reuseIDs                 // a new leader begins with the checkpoint ids of the former one
	staleReports             // reports of former attempts count as those of the current one
	hearFormer               // a TaskManager goes on hearing the former leader once it has found the new one
)

// state is a state of the whole: numbers of the states of its parts.
type state struct {
	leader, broker uint32
	tms            [taskManagers]uint32
	left           budget
}

// explorer walks through the states of a scenario, breadth first.
type explorer struct {
	scenario
	ctx     context.Context
	dir     string
	bucket  *memBucket
	metrics *Metrics
	logger  *slog.Logger
	notes   []string
	newest  []cid // what the newest completed checkpoint lists, in the present step

	leaders     []*leader
	infos       []leaderInfo
	leaderIndex map[string]uint32
	leaderMemo  map[memoKey[leaderOp]]*leaderOut
	listedIn    map[string][]cid
	lists       []string
	listIndex   map[string]uint32

	ledgers   *core[ledgerState, ledgerOp, ledgerOut]
	pools     *core[kafkaslots.Pool, poolOp, poolOut]
	poolRenew uint32

	preps       []prep
	prepIndex   map[prep]uint32
	fences      [][]*workerv1.FencedAttempt
	fenceNames  []string
	fenceIndex  map[string]uint32
	shares      map[[2]uint32][]uint8
	restores    map[string]restored
	handles     []handle
	handleIndex map[handle]uint32

	brokers     []broker
	brokerIndex map[broker]uint32
	machines    []taskManager
	machineIdx  map[taskManager]uint32

	locals map[localKey]localOut

	states []state
	known  map[state]uint32
	from   []uint32 // state that was left
	by     []action // and the step
	fair   []uint32 // what follows when nothing more goes wrong; itself at the end
}

func newExplorer(ctx context.Context, dir string, sc scenario) *explorer {
	x := &explorer{
		scenario: sc, ctx: ctx, dir: dir, bucket: &memBucket{content: map[string][]byte{}}, metrics: newMetricsForNobody(), logger: nobodyReads(),
		leaderIndex: map[string]uint32{}, leaderMemo: map[memoKey[leaderOp]]*leaderOut{}, listedIn: map[string][]cid{},
		prepIndex: map[prep]uint32{}, fenceIndex: map[string]uint32{}, shares: map[[2]uint32][]uint8{}, restores: map[string]restored{},
		handleIndex: map[handle]uint32{}, brokerIndex: map[broker]uint32{}, machineIdx: map[taskManager]uint32{}, known: map[state]uint32{},
		locals: map[localKey]localOut{}, listIndex: map[string]uint32{},
	}
	x.ledgers = newCore(&ledgerState{}, applyLedger)
	x.pools = newCore(kafkaslots.NewPool(slotBound, false), applyPool)
	x.poolRenew = x.pools.intern(kafkaslots.NewPool(slotBound, x.mutation != noRenewal))
	s := state{leader: x.internLeader(x.firstLeader()), broker: intern(&x.brokers, x.brokerIndex, broker{}), left: sc.budget}
	for i := range s.tms {
		s.tms[i] = intern(&x.machines, x.machineIdx, taskManager{})
	}
	x.add(s, 0, action{})
	return x
}

func (x *explorer) add(s state, from uint32, by action) uint32 {
	if i, ok := x.known[s]; ok {
		return i
	}
	i := uint32(len(x.states))
	x.known[s] = i
	x.states, x.from, x.by = append(x.states, s), append(x.from, from), append(x.by, by)
	return i
}

// action is a step.
type action struct {
	kind, tm, sub uint8
	fault         fault
}

const (
	aReport uint8 = iota + 1
	aInternal
	aConnect
	aReceive
	aRecover
	aFence
	aEndTxn
	aEmit
	aTick
	aCrash
	aDecline
	aLeaderEnds
	aBreak
	aLose
	aEarly
	aCancel
	aEndTxnCopied
	aLate
	aInit
)

// alternatives are the ways in which one entry of a step may go.
var alternatives = []logFault{logEndsLost, logEndsApplied, logUnknownLost, logUnknownApplied}

// enabled lists the steps of a state: first those in which nothing goes wrong, in the order in which a fair continuation takes them.
func (x *explorer) enabled(s state, out []action) (all []action, fair int) {
	info := &x.infos[s.leader]
	for i := range s.tms {
		if t := &x.machines[s.tms[i]]; t.up && t.nOut > 0 {
			out = append(out, action{kind: aReport, tm: uint8(i)})
		}
	}
	for k := range info.internal {
		out = append(out, action{kind: aInternal, sub: k})
	}
	for i := range s.tms {
		t := &x.machines[s.tms[i]]
		if !t.up {
			out = append(out, action{kind: aConnect, tm: uint8(i)})
		}
		if t.nDown > 0 {
			out = append(out, action{kind: aReceive, tm: uint8(i)})
		}
		for sub := range t.tasks {
			a := action{tm: uint8(i), sub: uint8(sub)}
			switch k := &t.tasks[sub]; {
			case !k.here:
			case t.state == workerPreparing && k.nRestored > 0:
				a.kind = aRecover
				out = append(out, a)
			case t.state == workerFencing && k.toFence:
				a.kind = aFence
				out = append(out, a)
			case t.state == workerRunning && !t.settleOnly:
				if k.busy {
					a.kind = aEndTxn
					out = append(out, a)
				}
				if k.starting != 0 {
					a.kind = aInit
					out = append(out, a)
				}
				if k.pos < x.records[sub] && (k.starting == 0 || k.slot != noSlot || x.pools.list[k.pool].Free()) {
					a.kind = aEmit
					out = append(out, a)
				}
			}
		}
	}
	if len(out) == 0 && x.wait(s.leader) > 0 {
		out = append(out, action{kind: aTick})
	}
	fair = len(out)
	left := s.left
	for i := range s.tms {
		t := &x.machines[s.tms[i]]
		a := action{tm: uint8(i)}
		if left.crash > 0 && t.state != workerNone {
			a.kind = aCrash
			out = append(out, a)
		}
		if left.decline > 0 && t.up && t.nOut > 0 && t.out[0].kind == uAck {
			a.kind = aDecline
			out = append(out, a)
		}
		if left.broken > 0 && t.up {
			a.kind = aBreak
			out = append(out, a)
		}
		if left.lost > 0 && t.up {
			a.kind = aLose
			out = append(out, a)
		}
	}
	if left.copied > 0 {
		for _, a := range out[:fair] {
			if a.kind == aEndTxn {
				a.kind = aEndTxnCopied
				out = append(out, a)
			}
		}
	}
	if x.brokers[s.broker].hasLate {
		out = append(out, action{kind: aLate})
	}
	if left.leader > 0 && !info.ended {
		out = append(out, action{kind: aLeaderEnds})
	}
	if left.cancel > 0 && !info.ended {
		out = append(out, action{kind: aCancel})
	}
	if left.early > 0 && fair > 0 && x.wait(s.leader) > 0 && out[0].kind != aTick {
		out = append(out, action{kind: aEarly})
	}
	return out, fair
}

// localKey is a step that needs one TaskManager and the broker only, and localOut what it leads to.
type localKey struct {
	tm, broker, newest uint32
	a                  action
}

type localOut struct {
	tm, broker uint32
	v          violation
}

// step takes a step. calls is the number of log entries it proposed.
func (x *explorer) step(s state, a action) (next state, calls uint8, v violation) {
	switch a.kind {
	case aReceive, aRecover, aFence, aEndTxn, aEmit, aCrash, aEndTxnCopied, aLate, aInit:
		if a.kind == aCrash {
			s.left.crash--
		}
		if a.kind == aEndTxnCopied {
			s.left.copied--
		}
		key := localKey{s.tms[a.tm], s.broker, x.infos[s.leader].list, a}
		key.a.tm = 0
		out, ok := x.locals[key]
		if !ok {
			x.newest = x.infos[s.leader].listed
			t, b := x.machines[s.tms[a.tm]], x.brokers[s.broker]
			out.v = x.local(&t, &b, a)
			out.tm, out.broker = intern(&x.machines, x.machineIdx, t), intern(&x.brokers, x.brokerIndex, b)
			x.locals[key] = out
		}
		s.tms[a.tm], s.broker = out.tm, out.broker
		return s, 0, out.v
	}
	w := scratch{s: s}
	calls = x.global(&w, a)
	if x.infos[w.s.leader].attempt > maxAttempts {
		return s, calls, "the job restarts again and again"
	}
	for i := range w.tms {
		if w.changed[i] {
			w.s.tms[i] = intern(&x.machines, x.machineIdx, w.tms[i])
		}
	}
	return w.s, calls, ""
}

func (x *explorer) local(t *taskManager, b *broker, a action) violation {
	switch a.kind {
	case aReceive:
		return x.receive(t, b, t.pop())
	case aRecover:
		return x.recoverCommit(t, b, a.sub)
	case aFence:
		return x.fence(t, b, a.sub)
	case aEndTxn:
		return x.endTxn(t, b, a.sub)
	case aInit:
		k := &t.tasks[a.sub]
		for slot := range uint8(slotBound) {
			if k.starting&(1<<slot) != 0 {
				k.starting &^= 1 << slot
				return x.startSlot(t, b, a.sub, slot)
			}
		}
	case aEmit:
		return x.emit(t, b, a.sub)
	case aEndTxnCopied:
		b.late, b.hasLate = t.tasks[a.sub].committing, true
		return x.endTxn(t, b, a.sub)
	case aLate:
		c := b.late
		b.late, b.hasLate = cid{}, false
		_, v := b.commit(c, !x.v1)
		return v
	}
	t.exit(false)
	return ""
}

// scratch is what a step of the leader changes.
type scratch struct {
	s       state
	tms     [taskManagers]taskManager
	changed [taskManagers]bool
}

// machine gives a TaskManager to be changed.
func (x *explorer) machine(w *scratch, i uint8) *taskManager {
	if !w.changed[i] {
		w.changed[i] = true
		w.tms[i] = x.machines[w.s.tms[i]]
	}
	return &w.tms[i]
}

func (x *explorer) global(w *scratch, a action) (calls uint8) {
	op := leaderOp{tm: a.tm, fault: a.fault}
	switch a.kind {
	case aReport, aDecline:
		op.kind, op.up = opReport, x.machine(w, a.tm).told()
		if a.kind == aDecline {
			w.s.left.decline--
			op.up.kind, op.up.arg = uDeclined, 0
		}
		if x.mutation == staleReports {
			op.up.attempt = x.infos[w.s.leader].attempt
		}
	case aInternal:
		op.kind, op.internal = opInternal, a.sub
	case aTick:
		op.kind = opTick
	case aEarly:
		w.s.left.early--
		op.kind = opTick
	case aCancel:
		w.s.left.cancel--
		op.kind = opCancel
	case aConnect:
		t := x.machine(w, a.tm)
		op.kind, op.running = opConnect, t.running()
		for t.nDown > 0 && x.mutation != hearFormer {
			t.pop() // of the connection before
		}
		t.up = true
	case aBreak:
		w.s.left.broken--
		op.kind = opBroken
		x.machine(w, a.tm).disconnect()
	case aLose:
		w.s.left.lost--
		op.kind = opLost
		x.machine(w, a.tm).disconnect()
	case aLeaderEnds:
		w.s.left.leader--
		x.succeed(w)
		return 0
	}
	return x.lead(w, op)
}

// lead lets the driver handle something and hands its messages over.
func (x *explorer) lead(w *scratch, op leaderOp) (calls uint8) {
	before := x.infos[w.s.leader]
	out := x.stepLeader(w.s.leader, op)
	w.s.leader = out.id
	info := &x.infos[out.id]
	if out.stale && x.machines[w.s.tms[op.tm]].state != workerNone {
		x.machine(w, op.tm).exit(true)
	}
	for _, m := range out.sent {
		x.machine(w, m.tm).push(m.msg)
	}
	if x.mutation == commitFirst && op.up.kind == uAck && info.internal > before.internal {
		for i := range w.tms {
			x.machine(w, uint8(i)).push(downMsg{kind: dComplete, attempt: info.attempt, n: op.up.n})
		}
	}
	if info.list != before.list {
		b := x.brokers[w.s.broker]
		b.cover(info.listed)
		w.s.broker = intern(&x.brokers, x.brokerIndex, b)
	}
	switch op.fault.mode {
	case logEndsLost, logEndsApplied:
		w.s.left.leader--
	case logUnknownLost, logUnknownApplied:
		w.s.left.unknown--
	case logFine:
	}
	if info.dead {
		x.succeed(w)
	}
	return out.calls
}

// succeed ends a leadership and begins the next. What the former leader has sent may still arrive until a TaskManager has found the
// next one.
func (x *explorer) succeed(w *scratch) {
	for i := range w.tms {
		x.machine(w, uint8(i)).disconnect()
	}
	w.s.leader = x.stepLeader(w.s.leader, leaderOp{kind: opTakeUp}).id
}

// settled says what is wrong with a state in which nothing more happens.
func (x *explorer) settled(s state) violation {
	info, b := &x.infos[s.leader], &x.brokers[s.broker]
	if n := b.open(); n > 0 {
		return violation(fmt.Sprintf("%d transactions stay open for ever", n))
	}
	if info.ended {
		return ""
	}
	if !info.running {
		return "the job does not run again"
	}
	for i := range b.partitions {
		if got := b.partitions[i].visible; got != x.records[i] {
			return violation(fmt.Sprintf("of input %d, %d of %d records are ever seen", i, got, x.records[i]))
		}
	}
	return ""
}

// finding is a way to a broken promise.
type finding struct {
	v     violation
	steps []action
}

// search explores until a promise is broken, everything is known, or there are too many states. complete tells that everything is.
func (x *explorer) search() (f *finding, complete bool) {
	var acts []action
	for i := uint32(0); int(i) < len(x.states); i++ {
		if x.most > 0 && len(x.states) > x.most {
			return nil, false
		}
		s := x.states[i]
		var fair int
		acts, fair = x.enabled(s, acts[:0])
		if fair == 0 {
			x.fair = append(x.fair, i)
			if v := x.settled(s); v != "" {
				return x.found(i, action{}, v), false
			}
		}
		for k := 0; k < len(acts); k++ {
			a := acts[k]
			next, calls, v := x.step(s, a)
			if v != "" {
				return x.found(i, a, v), false
			}
			n := x.add(next, i, a)
			if k == 0 && fair > 0 {
				x.fair = append(x.fair, n)
			}
			if a.fault.mode == logFine {
				for at := range calls {
					for _, mode := range alternatives {
						if ends := mode <= logEndsApplied; ends && s.left.leader > 0 || !ends && s.left.unknown > 0 {
							b := a
							b.fault = fault{mode, at}
							acts = append(acts, b)
						}
					}
				}
			}
		}
	}
	return x.circles(), true
}

// circles looks for a state from which a fair continuation never comes to its end.
func (x *explorer) circles() *finding {
	const unseen, passing, fine = 0, 1, 2
	mark := make([]uint8, len(x.states))
	var path []uint32
	for i := range x.states {
		path = path[:0]
		at := uint32(i)
		for mark[at] == unseen {
			mark[at] = passing
			path = append(path, at)
			if x.fair[at] == at {
				break
			}
			at = x.fair[at]
		}
		if mark[at] == passing && x.fair[at] != at {
			return x.found(uint32(i), action{}, "the job goes in a circle for ever")
		}
		for _, p := range path {
			mark[p] = fine
		}
	}
	return nil
}

func (x *explorer) found(at uint32, last action, v violation) *finding {
	f := &finding{v: v}
	for i := at; i != 0; i = x.from[i] {
		f.steps = append([]action{x.by[i]}, f.steps...)
	}
	if last.kind != 0 {
		f.steps = append(f.steps, last)
	}
	return f
}

// String tells the story of a finding.
func (f *finding) tell(x *explorer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nafter %d steps:\n", f.v, len(f.steps))
	s := x.states[0]
	for i, a := range f.steps {
		fmt.Fprintf(&b, "%3d  %s\n", i+1, x.describe(s, a))
		x.notes = nil
		next, _, v := x.step(s, a)
		for _, n := range x.notes {
			fmt.Fprintf(&b, "       %s\n", n)
		}
		for t := range next.tms {
			former, now := &x.machines[s.tms[t]], &x.machines[next.tms[t]]
			for _, m := range now.down[min(former.nDown, now.nDown):now.nDown] {
				fmt.Fprintf(&b, "       sent to tm%d: %s\n", t, m)
			}
		}
		if next.leader != s.leader {
			fmt.Fprintf(&b, "       leader: %s\n", x.infos[next.leader].text)
		}
		if v != "" {
			fmt.Fprintf(&b, "     ! %s\n", v)
		}
		s = next
	}
	br := &x.brokers[s.broker]
	for i := range br.partitions {
		p := &br.partitions[i]
		fmt.Fprintf(&b, "output of input %d: %d visible, %v\n", i, p.visible, p.segments[:p.n])
	}
	return b.String()
}

func (x *explorer) describe(s state, a action) string {
	t := x.machines[s.tms[a.tm]]
	who := fmt.Sprintf("tm%d", a.tm)
	text := ""
	switch a.kind {
	case aReport:
		text = fmt.Sprintf("leader hears from %s: %s", who, t.out[0])
	case aInternal:
		text = "leader hears from storage or the scheduler"
	case aConnect:
		text = fmt.Sprintf("%s registers with the leader, running attempt %d", who, t.running().attempt)
	case aReceive:
		text = fmt.Sprintf("%s receives %s", who, t.down[0])
	case aRecover:
		text = fmt.Sprintf("%s, task %d: restored transaction %s is committed", who, a.sub, t.tasks[a.sub].restored[0])
	case aFence:
		text = fmt.Sprintf("%s, task %d: former attempts are fenced", who, a.sub)
	case aEndTxn:
		text = fmt.Sprintf("%s, task %d: transaction %s is committed", who, a.sub, t.tasks[a.sub].committing)
	case aEndTxnCopied:
		text = fmt.Sprintf("%s, task %d: transaction %s is committed, and a copy of the request is still under way", who, a.sub, t.tasks[a.sub].committing)
	case aLate:
		text = fmt.Sprintf("a late copy of the request to commit %s arrives", x.brokers[s.broker].late)
	case aInit:
		text = fmt.Sprintf("%s, task %d: a spare id is initialised", who, a.sub)
	case aEmit:
		text = fmt.Sprintf("%s, task %d: record %d passes", who, a.sub, t.tasks[a.sub].pos+1)
	case aTick, aEarly:
		text = fmt.Sprintf("%s passes", x.wait(s.leader))
	case aCrash:
		text = fmt.Sprintf("the worker of attempt %d on %s dies", t.attempt, who)
	case aDecline:
		text = fmt.Sprintf("leader hears from %s that task %d could not store its snapshot of checkpoint %d", who, t.out[0].sub, t.out[0].n)
	case aLeaderEnds:
		text = "the leader dies, another one is elected"
	case aBreak:
		text = fmt.Sprintf("the connection to %s breaks", who)
	case aLose:
		text = fmt.Sprintf("the leader gives %s up, which lives on", who)
	case aCancel:
		text = "the job is canceled"
	}
	switch a.fault.mode {
	case logEndsLost:
		text += fmt.Sprintf("; the leader dies before entry %d of this step is in the log", a.fault.at+1)
	case logEndsApplied:
		text += fmt.Sprintf("; the leader dies once entry %d of this step is in the log", a.fault.at+1)
	case logUnknownLost, logUnknownApplied:
		text += fmt.Sprintf("; the fate of entry %d of this step is not known at first", a.fault.at+1)
	case logFine:
	}
	return text
}
