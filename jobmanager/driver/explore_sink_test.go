package driver

import (
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	kafkaslots "github.com/weir-stream/weir/sinks/kafka/slots"
	"github.com/weir-stream/weir/sinks/ledger"
)

// handle is a task's snapshot as it is acknowledged.
type handle struct {
	bytes        string
	committables uint32
}

func (x *explorer) handleOf(sub, pos uint8, listed []ledger.Entry[cid]) uint32 {
	out := &snapshotv1.OperatorSnapshot{Uid: "out"}
	for _, e := range listed {
		out.Committables = append(out.Committables, &snapshotv1.Committable{Checkpoint: e.Checkpoint, Version: 1, Payload: e.Committable.payload()})
	}
	s := &snapshotv1.TaskSnapshot{Vertex: "v", Subtask: uint32(sub), Parallelism: parallelism, Operators: []*snapshotv1.OperatorSnapshot{
		{Uid: "src", OperatorStates: []*snapshotv1.OperatorState{{Name: "position", Version: 1, Entries: []*snapshotv1.OperatorStateEntry{{Key: strconv.Itoa(int(sub)), Value: []byte{pos}}}}}},
		out,
	}}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
	if err != nil {
		panic(err)
	}
	return intern(&x.handles, x.handleIndex, handle{string(b), uint32(len(listed))})
}

// The ledger as a core. The entry being committed is kept with it, since its owner holds it.
type ledgerState struct {
	l       ledger.Ledger[cid]
	current *ledger.Entry[cid]
}

type ledgerOp struct {
	kind uint8
	n    uint64
	c    cid
}

const (
	ledgerPrepare uint8 = iota
	ledgerSnapshot
	ledgerComplete
	ledgerNext
	ledgerCommitted
	ledgerSettled
)

// ledgerOut holds at most as many transactions as there are slots.
type ledgerOut struct {
	cs [slotBound]cid
	at [slotBound]uint64
	n  int
	ok bool
}

func applyLedger(s *ledgerState, op ledgerOp) (out ledgerOut) {
	list := func(cs []cid) {
		out.n = copy(out.cs[:], cs)
	}
	switch op.kind {
	case ledgerPrepare:
		out.ok = s.l.Prepare(op.n, op.c) == nil
	case ledgerSnapshot:
		es, err := s.l.Snapshot(op.n)
		out.ok = err == nil
		for _, e := range es {
			out.cs[out.n], out.at[out.n] = e.Committable, e.Checkpoint
			out.n++
		}
	case ledgerComplete:
		list(s.l.Complete(op.n))
	case ledgerNext:
		if s.current = s.l.Next(); s.current != nil {
			out.ok = true
			list([]cid{s.current.Committable})
			out.at[0] = s.current.Checkpoint
		}
	case ledgerCommitted:
		list(s.l.Committed(s.current))
		s.current = nil
	case ledgerSettled:
		out.ok = s.l.Settled(op.n)
	}
	return out
}

type poolOp struct {
	kind uint8
	slot uint8
}

const (
	poolStart uint8 = iota
	poolStarted
	poolAcquire
	poolPrepared
	poolCommitted
	poolRelease
)

type poolOut struct {
	slots [slotBound]uint8
	n     int
	ok    bool
}

func applyPool(p *kafkaslots.Pool, op poolOp) (out poolOut) {
	out.ok = true
	var err error
	switch op.kind {
	case poolStart:
		for _, s := range p.ToStart() {
			out.slots[out.n] = uint8(s)
			out.n++
		}
	case poolStarted:
		err = p.Started(int(op.slot))
	case poolAcquire:
		var slot int
		var wait bool
		if slot, wait, err = p.Acquire(); wait {
			panic("explore: ids are initialised at once")
		}
		out.slots[0] = uint8(slot)
	case poolPrepared:
		err = p.Prepared(int(op.slot))
	case poolCommitted:
		err = p.Committed(int(op.slot), true)
	case poolRelease:
		_, err = p.Release(int(op.slot))
	}
	out.ok = err == nil
	return out
}

// must panics when a core refuses what its owner in the product would never be refused.
func must(ok bool) {
	if !ok {
		panic("explore: a core refuses a step")
	}
}

// startSpares initialises the ids that the pool asks for.
func (x *explorer) startSpares(t *taskManager, b *broker, sub uint8) (v violation) {
	k := &t.tasks[sub]
	out := x.pools.do(&k.pool, poolOp{kind: poolStart})
	for _, slot := range out.slots[:out.n] {
		if x.slow && t.state == workerRunning {
			k.starting |= 1 << slot
			continue
		}
		v = cmpViolation(v, x.startSlot(t, b, sub, slot))
	}
	return v
}

func (x *explorer) startSlot(t *taskManager, b *broker, sub, slot uint8) (v violation) {
	k := &t.tasks[sub]
	k.epochs[slot], v = b.initialise(idIndex(t.attempt, sub, slot))
	must(x.pools.do(&k.pool, poolOp{kind: poolStarted, slot: slot}).ok)
	return v
}

// recoverCommit commits the next restored transaction.
func (x *explorer) recoverCommit(t *taskManager, b *broker, sub uint8) (v violation) {
	k := &t.tasks[sub]
	c := k.restored[0]
	a, v := b.commit(c, !x.v1)
	switch a {
	case answerLost:
		return cmpViolation(v, violation(fmt.Sprintf("transaction %s is restored and proven lost", c)))
	case answerOpen:
		return cmpViolation(v, violation(fmt.Sprintf("nobody can tell what became of the restored transaction %s", c)))
	}
	copy(k.restored[:], k.restored[1:])
	k.nRestored--
	k.restored[k.nRestored] = cid{}
	x.preparedWhenComplete(t)
	return v
}

// fence initialises a task's share of the former attempts' ids that exist.
func (x *explorer) fence(t *taskManager, b *broker, sub uint8) (v violation) {
	t.tasks[sub].toFence = false
	for _, i := range x.toFence(t.fences, sub) {
		if b.ids[i].known {
			_, w := b.initialise(i)
			v = cmpViolation(v, w)
		}
	}
	for s := range t.tasks {
		if t.tasks[s].toFence {
			return v
		}
	}
	t.state, t.started, t.fences = workerRunning, true, 0
	t.tell(upMsg{kind: uStarted})
	return v
}

func (t *taskManager) fail(sub uint8) {
	t.state = workerFailed
	t.tell(upMsg{kind: uFailed, sub: sub})
}

// emit takes the next input record through a task.
func (x *explorer) emit(t *taskManager, b *broker, sub uint8) (v violation) {
	k := &t.tasks[sub]
	if !k.changed {
		k.changed = true
		if k.last+1 > t.since {
			t.since = k.last + 1
			t.tell(upMsg{kind: uActivity, n: k.last})
		}
	}
	if k.slot == noSlot {
		out := x.pools.do(&k.pool, poolOp{kind: poolAcquire})
		if !out.ok {
			t.fail(sub)
			return ""
		}
		k.slot, k.from = out.slots[0], k.pos+1
		if v = x.reused(t, b, sub); v != "" {
			return v
		}
		if v = x.startSpares(t, b, sub); v != "" {
			return v
		}
	}
	if fenced := b.produce(idIndex(t.attempt, sub, k.slot), k.epochs[k.slot], sub, k.pos+1); fenced {
		t.fail(sub)
		return ""
	}
	k.pos++
	return ""
}

// snapshot is the barrier of checkpoint n at a task.
func (x *explorer) snapshot(t *taskManager, sub uint8, n uint16) {
	k := &t.tasks[sub]
	if k.slot != noSlot {
		c := cid{attempt: t.attempt, sub: sub, slot: k.slot, epoch: k.epochs[k.slot], from: k.from, to: k.pos}
		must(x.pools.do(&k.pool, poolOp{kind: poolPrepared, slot: k.slot}).ok)
		must(x.ledgers.do(&k.ledger, ledgerOp{kind: ledgerPrepare, n: uint64(n), c: c}).ok)
		k.slot, k.from = noSlot, 0
	}
	out := x.ledgers.do(&k.ledger, ledgerOp{kind: ledgerSnapshot, n: uint64(n)})
	must(out.ok)
	var listed []ledger.Entry[cid]
	for i := range out.n {
		if x.mutation == forgetPending && out.at[i] != uint64(n) {
			continue
		}
		listed = append(listed, ledger.Entry[cid]{Checkpoint: out.at[i], Committable: out.cs[i]})
	}
	k.last, k.changed = n, false
	t.tell(upMsg{kind: uAck, sub: sub, n: n, arg: x.handleOf(sub, k.pos, listed)})
}

func (x *explorer) commitAsked(t *taskManager, n uint16, tasks uint8) {
	for i := range t.asks {
		if a := &t.asks[i]; a.n == n || a.n == 0 {
			a.n, a.left = n, a.left+tasks
			return
		}
	}
	panic("explore: more commits asked for than foreseen")
}

func (x *explorer) committed(t *taskManager, n uint16) {
	for i := range t.asks {
		if a := &t.asks[i]; a.n == n {
			if a.left--; a.left == 0 {
				copy(t.asks[i:], t.asks[i+1:])
				t.asks[len(t.asks)-1] = commitAsk{}
				t.tell(upMsg{kind: uCommitted, n: n})
			}
			return
		}
	}
}

// serve goes on with the commits asked of a task up to the next one that needs the broker.
func (x *explorer) serve(t *taskManager, b *broker, sub uint8) (v violation) {
	k := &t.tasks[sub]
	for !k.busy {
		if k.serving == 0 {
			if k.nAsked == 0 {
				return v
			}
			k.serving = k.asked[0]
			copy(k.asked[:], k.asked[1:])
			k.nAsked--
			k.asked[k.nAsked] = 0
			v = cmpViolation(v, x.free(t, b, sub, x.ledgers.do(&k.ledger, ledgerOp{kind: ledgerComplete, n: uint64(k.serving)})))
		}
		before := k.ledger
		next := x.ledgers.do(&k.ledger, ledgerOp{kind: ledgerNext})
		if next.ok && x.mutation == onlyNewest && next.at[0] != uint64(k.serving) {
			k.ledger, next.ok = before, false
			x.committed(t, k.serving)
			k.serving = 0
			continue
		}
		if next.ok {
			k.committing, k.busy = next.cs[0], true
			return v
		}
		must(x.ledgers.do(&k.ledger, ledgerOp{kind: ledgerSettled, n: uint64(k.serving)}).ok)
		x.committed(t, k.serving)
		k.serving = 0
	}
	return v
}

func (x *explorer) free(t *taskManager, b *broker, sub uint8, freed ledgerOut) (v violation) {
	k := &t.tasks[sub]
	for _, c := range freed.cs[:freed.n] {
		if x.mutation != releaseAtCommit {
			must(x.pools.do(&k.pool, poolOp{kind: poolRelease, slot: c.slot}).ok)
		}
		v = cmpViolation(v, x.startSpares(t, b, sub))
	}
	return v
}

// endTxn commits the transaction at hand.
func (x *explorer) endTxn(t *taskManager, b *broker, sub uint8) (v violation) {
	k := &t.tasks[sub]
	a, v := b.commit(k.committing, !x.v1)
	switch a {
	case answerLost:
		return cmpViolation(v, violation(fmt.Sprintf("transaction %s is proven lost", k.committing)))
	case answerOpen:
		return cmpViolation(v, violation(fmt.Sprintf("nobody can tell what became of transaction %s", k.committing)))
	}
	if !x.v1 {
		k.epochs[k.committing.slot] = k.committing.epoch + 1
	}
	must(x.pools.do(&k.pool, poolOp{kind: poolCommitted, slot: k.committing.slot}).ok)
	if x.mutation == releaseAtCommit {
		must(x.pools.do(&k.pool, poolOp{kind: poolRelease, slot: k.committing.slot}).ok)
		v = cmpViolation(v, x.startSpares(t, b, sub))
	}
	freed := x.ledgers.do(&k.ledger, ledgerOp{kind: ledgerCommitted})
	k.committing, k.busy = cid{}, false
	v = cmpViolation(v, x.free(t, b, sub, freed))
	return cmpViolation(v, x.serve(t, b, sub))
}

// reused reports an id that is written with while the newest completed checkpoint lists a transaction of it.
func (x *explorer) reused(t *taskManager, _ *broker, sub uint8) violation {
	k := &t.tasks[sub]
	i := slices.IndexFunc(x.newest, func(c cid) bool { return c.attempt == t.attempt && c.sub == sub && c.slot == k.slot })
	if i < 0 {
		return ""
	}
	return violation(fmt.Sprintf("id %d.%d.%d is used again while the newest completed checkpoint lists its transaction %s", t.attempt, sub, k.slot, x.newest[i]))
}
