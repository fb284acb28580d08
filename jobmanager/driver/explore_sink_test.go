package driver

import (
	"fmt"
	"slices"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/sinks/ledger"
)

// A task with its sink: a record passes, a barrier comes, a transaction is committed.

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

func (t *taskManager) fail(sub uint8) {
	t.state = workerFailed
	t.tell(upMsg{kind: uFailed, sub: sub})
}

// failWith is a failure by a loss, of which losses is the number.
func (t *taskManager) failWith(sub uint8, losses uint32) {
	t.state = workerFailed
	t.tell(upMsg{kind: uFailed, sub: sub, n: 1, arg: losses})
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
func (x *explorer) snapshot(t *taskManager, b *broker, sub uint8, n uint16) {
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
		if !b.alive(out.cs[i]) {
			t.fail(sub) // the proof before an acknowledgement
			return
		}
		if x.mutation == forgetPending && out.at[i] != uint64(n) || x.mutation == forgetThird && sub == 2 {
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
			k.committing, k.committingOf, k.busy = next.cs[0], next.at[0], true
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
		switch {
		case !b.givenUp(k.committing):
			return cmpViolation(v, violation(fmt.Sprintf("transaction %s is proven lost", k.committing)))
		case x.durable:
			t.fail(sub)
			return v
		case x.mutation != swallowLoss:
			t.failWith(sub, x.lossesOf([]*jobv1.LostOutput{x.lostOutput(k.committingOf, k.committing)}))
			return v
		}
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
	k.committing, k.committingOf, k.busy = cid{}, 0, false
	v = cmpViolation(v, x.free(t, b, sub, freed))
	return cmpViolation(v, x.serve(t, b, sub))
}

// reused reports an id that is written with while the newest completed checkpoint lists a transaction of it.
func (x *explorer) reused(t *taskManager, _ *broker, sub uint8) violation {
	k := &t.tasks[sub]
	i := slices.IndexFunc(x.vouched, func(c cid) bool { return c.attempt == t.attempt && c.sub == sub && c.slot == k.slot })
	if i < 0 {
		return ""
	}
	return violation(fmt.Sprintf("id %d.%d.%d is used again while the newest completed checkpoint lists its transaction %s", t.attempt, sub, k.slot, x.vouched[i]))
}
