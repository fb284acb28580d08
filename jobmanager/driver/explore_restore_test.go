package driver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker/snapshot"
)

// How a worker restores. What a task has to finish is read and distributed by the product (snapshot.Point); what is written here again is
// what sinks.twoPhase does with it, one transaction in each step.

// prep is what a worker is told to prepare.
type prep struct {
	tasks                    uint8
	metadata                 string
	replaced                 uint32
	settled, settleOnly, all bool // all tells that losses do not fail the attempt
}

func (x *explorer) prepareOf(p *workerv1.Prepare) uint32 {
	r := p.GetRestore()
	v := prep{
		metadata: r.GetMetadata().GetName(), settled: r.GetSettled(), settleOnly: p.GetSettleOnly(),
		all: r.GetLossPolicy() != workerv1.LossPolicy_LOSS_POLICY_UNSPECIFIED,
	}
	if x.mutation != forgetReplacement {
		v.replaced = x.replacementsOf(r.GetReplacements())
	}
	for _, t := range p.GetTasks() {
		v.tasks |= 1 << t.GetSubtask()
	}
	return x.preps.number(v)
}

func canonical(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// restored is what a task starts from.
type restored struct {
	pos          uint8
	transactions []restoredTransaction
}

type restoredTransaction struct {
	cid
	group int
	of    operator.RestoredTransaction
}

// restoring is how far a task has come with it.
type restoring struct {
	from      uint32 // which of x.restores, plus 1; 0 for nothing to finish
	done      uint8  // transactions that are finished
	again     uint8  // a bit for each that has to be written again
	lost      uint8  // a bit for each that could not be committed, which is told
	rewritten cid    // what takes the place of the lost ones
	due       bool   // it may be committed now
	committed bool
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

// restoredBy numbers what a task starts from.
func (x *explorer) restoredBy(p prep, sub uint8) uint32 {
	name := fmt.Sprintf("%s %d %d", p.metadata, p.replaced, sub)
	if id, ok := x.restores.names.index[name]; ok {
		return id
	}
	var r restored
	if p.metadata != "" {
		point, err := snapshot.Read(x.ctx, files{x, x.dir}, &snapshotv1.Segment{Name: p.metadata})
		if err == nil {
			err = point.Replace(x.replacements.list[p.replaced])
		}
		if err != nil {
			panic(err)
		}
		states, _ := point.Operator("src", int(sub), x.tasks())
		for _, s := range states {
			r.pos = s.GetOperatorStates()[0].GetEntries()[0].GetValue()[0]
		}
		for i, group := range point.Transactions("out", int(sub), x.tasks()) {
			for _, tx := range group {
				r.transactions = append(r.transactions, restoredTransaction{cidOf(tx.Committable.GetPayload()), i, tx})
			}
		}
	}
	return x.restores.number(name, r)
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
	p := x.preps.list[m.arg]
	t.state, t.attempt, t.settleOnly, t.acceptLoss = workerPreparing, m.attempt, p.settleOnly, p.all
	for s := range t.tasks {
		if p.tasks&(1<<s) == 0 {
			continue
		}
		k := &t.tasks[s]
		from := x.restoredBy(p, uint8(s))
		*k = task{here: true, pos: x.restores.list[from].pos, slot: noSlot}
		if !p.settled && len(x.restores.list[from].transactions) > 0 {
			k.restore.from = from + 1
		}
		if x.v1 {
			k.pool = x.poolRenew
		}
		v = cmpViolation(v, x.startSpares(t, b, uint8(s)))
	}
	if x.mutation == fenceFirst {
		// As if former attempts were fenced while this one is being prepared.
		for i := range b.ids {
			if b.ids[i].known && uint8(i)/slotBound/maxTasks+1 < t.attempt {
				_, w := b.initialise(uint8(i))
				v = cmpViolation(v, w)
			}
		}
	}
	x.preparedWhenComplete(t)
	return v
}

// toFinish returns what a task has to finish before its worker has prepared.
func (x *explorer) toFinish(r *restoring) []restoredTransaction {
	if r.from == 0 {
		return nil
	}
	return x.restores.list[r.from-1].transactions
}

// recovers reports whether a task has a step of its restore to take.
func (x *explorer) recovers(t *taskManager, k *task) bool {
	r := &k.restore
	switch t.state {
	case workerPreparing:
		return int(r.done) < len(x.toFinish(r)) || r.again != 0 && r.rewritten == cid{}
	case workerRewritten:
		return r.due && !r.committed
	}
	return false
}

// recover takes the next step of a task's restore.
func (x *explorer) recover(t *taskManager, b *broker, sub uint8) (v violation) {
	r := &t.tasks[sub].restore
	all := x.toFinish(r)
	switch {
	case t.state == workerRewritten:
		return x.commitRewritten(t, b, sub)
	case int(r.done) == len(all):
		v = x.rewrite(t, b, sub)
	default:
		v = x.recoverOne(t, b, sub, all)
	}
	if t.state == workerPreparing {
		x.preparedWhenComplete(t)
	}
	return v
}

func (x *explorer) recoverOne(t *taskManager, b *broker, sub uint8, all []restoredTransaction) (v violation) {
	r := &t.tasks[sub].restore
	i := r.done
	tx := all[i]
	r.done++
	behind := false // a lost one of its group
	for j := range all[:i] {
		behind = behind || r.again&(1<<j) != 0 && all[j].group == tx.group
	}
	if behind && x.mutation != replaceOnlyLost {
		a, v := b.revoke(tx.cid)
		switch a {
		case answerLost:
			r.again |= 1 << i
		case answerOpen:
			return cmpViolation(v, violation(fmt.Sprintf("nobody can tell what became of transaction %s", tx.cid)))
		}
		return v
	}
	a, v := b.commit(tx.cid, !x.v1)
	switch {
	case a == answerOpen:
		return cmpViolation(v, violation(fmt.Sprintf("nobody can tell what became of the restored transaction %s", tx.cid)))
	case a == answerCommitted, v != "":
		return v
	case !b.givenUp(tx.cid) && !x.durable:
		return violation(fmt.Sprintf("transaction %s is restored and proven lost", tx.cid))
	case x.durable:
		r.again |= 1 << i
	case x.mutation == swallowLoss:
	case t.acceptLoss:
		r.lost |= 1 << i
	default:
		t.failWith(sub, x.lossesOf([]*jobv1.LostOutput{x.lostOutput(tx.of.Committable.GetCheckpoint(), tx.cid)}))
	}
	return ""
}

func (x *explorer) preparedWhenComplete(t *taskManager) {
	var rewritten []*workerv1.Replacement
	for s := range t.tasks {
		k := &t.tasks[s]
		if x.recovers(t, k) {
			return
		}
		if (k.restore.rewritten != cid{}) {
			rewritten = append(rewritten, x.replacement(&k.restore))
		}
	}
	if len(rewritten) > 0 {
		t.state = workerRewritten
		t.tell(upMsg{kind: uRewritten, arg: x.replacementsOf(rewritten)})
		return
	}
	x.tellPrepared(t)
}

// tellPrepared ends phase one, or tells again that it has ended.
func (x *explorer) tellPrepared(t *taskManager) {
	if !t.prepared {
		t.state, t.prepared = workerPrepared, true
	}
	var lost []*jobv1.LostOutput
	for s := range t.tasks {
		r := &t.tasks[s].restore
		for i, tx := range x.toFinish(r) {
			if r.lost&(1<<i) != 0 && x.mutation != forgetLoss {
				lost = append(lost, x.lostOutput(tx.of.Committable.GetCheckpoint(), tx.cid))
			}
		}
	}
	t.tell(upMsg{kind: uPrepared, arg: x.lossesOf(lost)})
}

func (x *explorer) lostOutput(checkpoint uint64, c cid) *jobv1.LostOutput {
	x.cids[c.String()] = c
	return &jobv1.LostOutput{Sink: "out", Checkpoint: checkpoint, Transaction: c.String(), Records: int64(c.to - c.from + 1)}
}

// lossesOf numbers a list of losses; 0 for none.
func (x *explorer) lossesOf(lost []*jobv1.LostOutput) uint32 {
	var name []byte
	for _, l := range lost {
		name = fmt.Appendf(name, "%s;", canonical(l))
	}
	return x.losses.number(string(name), lost)
}
