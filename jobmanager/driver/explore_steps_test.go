package driver

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
	aTimeout
	aGiveUp
)

// alternatives are the ways in which one entry of a step may go.
var alternatives = []logFault{logEndsLost, logEndsApplied, logUnknownLost, logUnknownApplied}

// enabled lists the steps of a state: first those in which nothing goes wrong, in the order in which a fair continuation takes them.
func (x *explorer) enabled(s state, out []action) (all []action, fair int) {
	left := &x.budgets.list[s.left]
	info := &x.infos[s.leader]
	for i := range s.tms {
		if t := &x.machines.list[s.tms[i]]; t.up && t.nOut > 0 {
			out = append(out, action{kind: aReport, tm: uint8(i)})
		}
	}
	for k := range info.internal {
		out = append(out, action{kind: aInternal, sub: k})
	}
	for i := range s.tms {
		t := &x.machines.list[s.tms[i]]
		if !t.up {
			out = append(out, action{kind: aConnect, tm: uint8(i)})
		}
		if t.nDown > 0 {
			out = append(out, action{kind: aReceive, tm: uint8(i)})
		}
		for sub := range x.records {
			a := action{tm: uint8(i), sub: uint8(sub)}
			switch k := &t.tasks[sub]; {
			case !k.here:
			case x.recovers(t, k):
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
	for i := range s.tms {
		if x.machines.list[s.tms[i]].state == workerFailed {
			out = append(out, action{kind: aGiveUp, tm: uint8(i)})
		}
	}
	if len(out) == 0 && x.wait(s.leader) > 0 {
		out = append(out, action{kind: aTick})
	}
	fair = len(out)
	for i := range s.tms {
		t := &x.machines.list[s.tms[i]]
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
	if left.timeout > 0 {
		for i, d := range x.brokers.list[s.broker].ids {
			if d.ongoing {
				out = append(out, action{kind: aTimeout, sub: uint8(i)})
			}
		}
	}
	if x.brokers.list[s.broker].hasLate {
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

// localOut is what a step of one TaskManager and the broker leads to.
type localOut struct{ tm, broker uint32 }

// step takes a step. calls is the number of log entries it proposed.
func (x *explorer) step(s state, a action) (next state, calls uint8, v violation) {
	switch a.kind {
	case aReceive, aRecover, aFence, aEndTxn, aEmit, aCrash, aEndTxnCopied, aLate, aInit, aTimeout, aGiveUp:
	default:
		calls, v = x.global(&s, a)
		return s, calls, v
	}
	switch a.kind {
	case aCrash:
		x.spend(&s, func(b *budget) *uint8 { return &b.crash })
	case aEndTxnCopied:
		x.spend(&s, func(b *budget) *uint8 { return &b.copied })
	case aTimeout:
		x.spend(&s, func(b *budget) *uint8 { return &b.timeout })
	}
	info := &x.infos[s.leader]
	key := pair{uint64(s.tms[a.tm]) | uint64(a.kind)<<32 | uint64(a.sub)<<40, uint64(s.broker) | uint64(info.list)<<32}
	n, ok := x.locals.get(key)
	if !ok {
		x.vouched = info.vouched
		t, b := x.machines.list[s.tms[a.tm]], x.brokers.list[s.broker]
		if v = x.local(&t, &b, a); v != "" {
			return s, 0, v
		}
		n = uint32(len(x.localOuts))
		x.localOuts = append(x.localOuts, localOut{x.machines.number(t), x.brokers.number(b)})
		x.locals.put(key, n)
	}
	s.tms[a.tm], s.broker = x.localOuts[n].tm, x.localOuts[n].broker
	return s, 0, ""
}

func (x *explorer) spend(s *state, kind func(*budget) *uint8) {
	left := x.budgets.list[s.left]
	left.spend(kind(&left))
	s.left = x.budgets.number(left)
}

func (x *explorer) local(t *taskManager, b *broker, a action) violation {
	switch a.kind {
	case aReceive:
		return x.receive(t, b, t.pop())
	case aRecover:
		return x.recover(t, b, a.sub)
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
	case aTimeout:
		return b.giveUp(a.sub)
	case aLate:
		c := b.late
		b.late, b.hasLate = cid{}, false
		_, v := b.commit(c, !x.v1)
		return v
	}
	t.exit(false)
	return ""
}

// global takes a step of the leader.
func (x *explorer) global(s *state, a action) (calls uint8, v violation) {
	op := leaderOp{tm: a.tm, fault: a.fault}
	t := &x.machines.list[s.tms[a.tm]]
	switch a.kind {
	case aReport, aDecline:
		op.kind, op.up = opReport, t.out[0]
		if a.kind == aDecline {
			x.spend(s, func(b *budget) *uint8 { return &b.decline })
			op.up.kind, op.up.arg = uDeclined, 0
		}
		if x.mutation == staleReports {
			op.up.attempt = x.infos[s.leader].attempt
		}
	case aInternal:
		op.kind, op.internal = opInternal, a.sub
	case aTick:
		op.kind = opTick
	case aEarly:
		x.spend(s, func(b *budget) *uint8 { return &b.early })
		op.kind = opTick
	case aCancel:
		x.spend(s, func(b *budget) *uint8 { return &b.cancel })
		op.kind = opCancel
	case aConnect:
		op.kind, op.running = opConnect, t.running()
	case aBreak:
		x.spend(s, func(b *budget) *uint8 { return &b.broken })
		op.kind = opBroken
	case aLose:
		x.spend(s, func(b *budget) *uint8 { return &b.lost })
		op.kind = opLost
	case aLeaderEnds:
		x.spend(s, func(b *budget) *uint8 { return &b.leader })
		x.succeed(s)
		return 0, ""
	}
	switch a.fault.mode {
	case logEndsLost, logEndsApplied:
		x.spend(s, func(b *budget) *uint8 { return &b.leader })
	case logUnknownLost, logUnknownApplied:
		x.spend(s, func(b *budget) *uint8 { return &b.unknown })
	case logFine:
	}
	return x.lead(s, op)
}

// lead lets the driver handle something and hands its messages over.
func (x *explorer) lead(s *state, op leaderOp) (calls uint8, v violation) {
	before := x.infos[s.leader]
	n := x.stepLeader(s.leader, op)
	out := &x.leaderOuts[n]
	s.leader = out.id
	info := &x.infos[out.id]
	early := x.mutation == commitFirst && op.up.kind == uAck && info.internal > before.internal
	for i := range s.tms {
		key := pair{uint64(s.tms[i]) | uint64(n)<<32, uint64(i) | uint64(op.kind)<<8 | one(uint8(i) == op.tm)<<16 | one(early)<<17}
		id, ok := x.effects.get(key)
		if !ok {
			t := x.machines.list[s.tms[i]]
			x.affect(&t, uint8(i), op, out)
			if early {
				t.push(downMsg{kind: dComplete, attempt: info.attempt, n: op.up.n})
			}
			id = x.machines.number(t)
			x.effects.put(key, id)
		}
		s.tms[i] = id
	}
	if info.list != before.list {
		b := x.brokers.list[s.broker]
		b.cover(info.vouched)
		s.broker = x.brokers.number(b)
	}
	if info.dead {
		x.succeed(s)
	}
	if x.infos[s.leader].attempt >= maxAttempts {
		v = "the job restarts again and again"
	}
	return out.calls, v
}

// affect is what a step of the leader makes of a TaskManager.
func (x *explorer) affect(t *taskManager, i uint8, op leaderOp, out *leaderOut) {
	if i == op.tm {
		switch op.kind {
		case opReport:
			t.told()
		case opConnect:
			for t.nDown > 0 && x.mutation != hearFormer {
				t.pop() // of the connection before
			}
			t.up = true
		case opBroken, opLost:
			t.disconnect()
		}
		if out.stale && t.state != workerNone {
			t.exit(true)
		}
	}
	for _, m := range out.sent {
		if m.tm == i {
			t.push(m.msg)
		}
	}
}

// succeed ends a leadership and begins the next. What the former leader has sent may still arrive until a TaskManager has found the
// next one.
func (x *explorer) succeed(s *state) {
	for i := range s.tms {
		t := x.machines.list[s.tms[i]]
		t.disconnect()
		s.tms[i] = x.machines.number(t)
	}
	s.leader = x.leaderOuts[x.stepLeader(s.leader, leaderOp{kind: opTakeUp})].id
}
