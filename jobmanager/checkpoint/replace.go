package checkpoint

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
)

// ErrReplacement is wrapped by the error about a replacement that makes no sense.
var ErrReplacement = errors.New("nothing to replace lost transactions with")

// Replace adds replacements of lost transactions of a checkpoint to those that there are. One that was lost itself is replaced whole.
// changed is false when all of them are there already.
func Replace(present, added []*workerv1.Replacement) (next []*workerv1.Replacement, changed bool, err error) {
	next = slices.Clone(present)
	for _, a := range added {
		if len(a.GetReplaced()) == 0 || a.GetCommittable() == nil {
			return nil, false, fmt.Errorf("%w: sink %s replaces nothing, or by nothing", ErrReplacement, a.GetUid())
		}
		if slices.ContainsFunc(next, func(p *workerv1.Replacement) bool { return proto.Equal(p, a) }) {
			continue
		}
		partly := false
		next = slices.DeleteFunc(next, func(p *workerv1.Replacement) bool {
			common, all := overlap(p, a)
			partly = partly || common && !all
			return common
		})
		if partly {
			return nil, false, fmt.Errorf("%w: sink %s replaces a part of another replacement", ErrReplacement, a.GetUid())
		}
		next = append(next, a)
		changed = true
	}
	return next, changed, nil
}

// overlap reports whether two replacements have transactions in common, and whether b replaces all that a does.
func overlap(a, b *workerv1.Replacement) (common, all bool) {
	if a.GetUid() != b.GetUid() {
		return false, false
	}
	all = true
	for _, x := range a.GetReplaced() {
		for _, n := range x.GetCheckpoints() {
			in := slices.ContainsFunc(b.GetReplaced(), func(y *workerv1.ReplacedTransactions) bool {
				return y.GetSubtask() == x.GetSubtask() && slices.Contains(y.GetCheckpoints(), n)
			})
			common, all = common || in, all && in
		}
	}
	return common, all
}
