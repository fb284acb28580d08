package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/operator"
)

// ErrReplacement is wrapped by the error about a replacement of transactions that the restore point does not have.
var ErrReplacement = errors.New("transactions to replace are not in the restore point")

// Replace makes transactions that a former attempt has written again take the place of those that the restore point lists.
func (p *Point) Replace(replacements []*workerv1.Replacement) error {
	for _, r := range replacements {
		for _, old := range r.GetReplaced() {
			for _, n := range old.GetCheckpoints() {
				if p.committable(r.GetUid(), old.GetSubtask(), n) == nil {
					return operator.Fatal(fmt.Errorf("%w: sink %s, subtask %d, checkpoint %d", ErrReplacement, r.GetUid(), old.GetSubtask(), n))
				}
			}
		}
	}
	p.replacements = replacements
	return nil
}

func (p *Point) committable(uid string, subtask uint32, checkpoint uint64) *snapshotv1.Committable {
	f := p.operators[uid]
	if f == nil {
		return nil
	}
	for _, c := range f.snapshots[int(subtask)].GetCommittables() {
		if c.GetCheckpoint() == checkpoint {
			return c
		}
	}
	return nil
}

func (p *Point) replaced(uid string, subtask int, checkpoint uint64) bool {
	return slices.ContainsFunc(p.replacements, func(r *workerv1.Replacement) bool {
		return r.GetUid() == uid && slices.ContainsFunc(r.GetReplaced(), func(old *workerv1.ReplacedTransactions) bool {
			return int(old.GetSubtask()) == subtask && slices.Contains(old.GetCheckpoints(), checkpoint)
		})
	})
}

// Transactions returns what a subtask of a sink has to commit: a group for each former subtask that falls to it, and then those that
// replace lost ones. What was before those in their group is committed, or they would not be there.
func (p *Point) Transactions(uid string, subtask, parallelism int) (groups []operator.Restored) {
	f := p.operators[uid]
	if f == nil {
		return nil
	}
	for _, from := range slices.Sorted(maps.Keys(f.snapshots)) {
		if from%parallelism != subtask {
			continue
		}
		var group operator.Restored
		for _, c := range f.snapshots[from].GetCommittables() {
			if !p.replaced(uid, from, c.GetCheckpoint()) {
				group = append(group, operator.RestoredTransaction{
					Committable: c, StandsFor: []*workerv1.ReplacedTransactions{{Subtask: uint32(from), Checkpoints: []uint64{c.GetCheckpoint()}}},
				})
			}
		}
		if len(group) > 0 {
			groups = append(groups, group)
		}
	}
	for _, r := range p.replacements {
		if r.GetUid() == uid && int(r.GetReplaced()[0].GetSubtask())%parallelism == subtask {
			groups = append(groups, operator.Restored{p.replacement(r)})
		}
	}
	return groups
}

// replacement returns a replacement with the records of what it replaces.
func (p *Point) replacement(r *workerv1.Replacement) operator.RestoredTransaction {
	c := proto.CloneOf(r.GetCommittable())
	for _, old := range r.GetReplaced() {
		for _, n := range old.GetCheckpoints() {
			c.Records = append(c.Records, p.committable(r.GetUid(), old.GetSubtask(), n).GetRecords()...)
		}
	}
	return operator.RestoredTransaction{Committable: c, StandsFor: r.GetReplaced()}
}
