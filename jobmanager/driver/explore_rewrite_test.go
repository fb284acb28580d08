package driver

import (
	"fmt"
	"slices"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
)

// Durable output: what sinks.twoPhase does with restored transactions that are lost.

// replacementsOf numbers a list of replacements; 0 for none.
func (x *explorer) replacementsOf(rs []*workerv1.Replacement) uint32 {
	var name []byte
	for _, r := range rs {
		name = fmt.Appendf(name, "%s;", canonical(r))
	}
	return x.replacements.number(string(name), rs)
}

// rewrite writes what is lost into one new transaction and prepares it.
func (x *explorer) rewrite(t *taskManager, b *broker, sub uint8) (v violation) {
	k := &t.tasks[sub]
	out := x.pools.do(&k.pool, poolOp{kind: poolAcquire})
	must(out.ok)
	slot := out.slots[0]
	c := cid{attempt: t.attempt, sub: sub, slot: slot, epoch: k.epochs[slot]}
	for i, tx := range x.toFinish(&k.restore) {
		if k.restore.again&(1<<i) == 0 {
			continue
		}
		for n := tx.from; n <= tx.to; n++ {
			if b.produce(c.id(), c.epoch, sub, n) {
				t.fail(sub)
				return ""
			}
		}
		if c.from == 0 {
			c.from = tx.from
		}
		c.to = tx.to
	}
	must(x.pools.do(&k.pool, poolOp{kind: poolPrepared, slot: slot}).ok)
	k.restore.rewritten = c
	if x.mutation == replaceFirst {
		_, v = b.commit(c, !x.v1)
	}
	return cmpViolation(v, x.startSpares(t, b, sub))
}

// replacement tells what a task has written again, as sinks.twoPhase does.
func (x *explorer) replacement(r *restoring) *workerv1.Replacement {
	out := &workerv1.Replacement{Uid: "out", Committable: &snapshotv1.Committable{Version: 1, Payload: r.rewritten.payload()}}
	for i, tx := range x.toFinish(r) {
		if r.again&(1<<i) == 0 {
			continue
		}
		out.Committable.Checkpoint = max(out.GetCommittable().GetCheckpoint(), tx.of.Committable.GetCheckpoint())
		for _, of := range tx.of.StandsFor {
			at := slices.IndexFunc(out.GetReplaced(), func(p *workerv1.ReplacedTransactions) bool { return p.GetSubtask() == of.GetSubtask() })
			if at < 0 {
				at = len(out.GetReplaced())
				out.Replaced = append(out.Replaced, &workerv1.ReplacedTransactions{Subtask: of.GetSubtask()})
			}
			out.Replaced[at].Checkpoints = append(out.Replaced[at].Checkpoints, of.GetCheckpoints()...)
		}
	}
	return out
}

// commitRewritten commits what a task has written again, of which the log knows.
func (x *explorer) commitRewritten(t *taskManager, b *broker, sub uint8) violation {
	k := &t.tasks[sub]
	a, v := b.commit(k.restore.rewritten, !x.v1)
	switch a {
	case answerOpen:
		return cmpViolation(v, violation(fmt.Sprintf("nobody can tell what became of transaction %s", k.restore.rewritten)))
	case answerLost:
		t.fail(sub) // it is written again in its turn
		return v
	}
	k.restore.committed = true
	for s := range t.tasks {
		if r := &t.tasks[s].restore; r.due && !r.committed {
			return v
		}
	}
	x.tellPrepared(t)
	return v
}

// freeRewritten lets the identity of a replacement go, since the log says that the restore point is settled.
func (x *explorer) freeRewritten(k *task) {
	if c := k.restore.rewritten; c != (cid{}) {
		if !x.v1 {
			k.epochs[c.slot] = c.epoch + 1
		}
		must(x.pools.do(&k.pool, poolOp{kind: poolCommitted, slot: c.slot}).ok)
		must(x.pools.do(&k.pool, poolOp{kind: poolRelease, slot: c.slot}).ok)
	}
	k.restore = restoring{}
}
