package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/statebackend"
)

var (
	// ErrDroppedState is wrapped by the error about state that finds no operator.
	ErrDroppedState = errors.New("the restore point has state that the job does not take")
	// ErrMaxParallelism is wrapped by the error about a changed number of key groups.
	ErrMaxParallelism = errors.New("maximum parallelism differs from the restore point's")
)

// Point is a restore point: the snapshots of all operators of a completed checkpoint.
type Point struct {
	meta      *snapshotv1.CheckpointMetadata
	operators map[string]*former
	// replacements take the place of committables.
	replacements []*workerv1.Replacement
}

// former is what all subtasks of one operator left.
type former struct {
	parallelism int
	snapshots   map[int]*snapshotv1.OperatorSnapshot // by subtask
}

// Empty returns the restore point of a start from nothing.
func Empty() *Point {
	return &Point{meta: &snapshotv1.CheckpointMetadata{}, operators: make(map[string]*former)}
}

// Read reads a restore point by its metadata file.
func Read(ctx context.Context, store statebackend.SegmentStore, metadata *snapshotv1.Segment) (*Point, error) {
	p := Empty()
	data, err := read(ctx, store, metadata)
	if err != nil {
		return nil, fmt.Errorf("read checkpoint metadata: %w", err)
	}
	p.meta, err = checkpointfile.Decode(metadata.GetName(), data)
	switch {
	case errors.Is(err, checkpointfile.ErrDamaged):
		return nil, operator.DataLoss(err)
	case err != nil:
		return nil, operator.Fatal(err)
	}
	checkpointfile.Place(metadata.GetName(), p.meta)
	for _, h := range p.meta.GetTasks() {
		task := &snapshotv1.TaskSnapshot{}
		data := h.GetSnapshot()
		if h.GetSpilled() != nil {
			data, err = read(ctx, store, h.GetSpilled())
		}
		if err == nil {
			err = proto.Unmarshal(data, task)
		}
		if err != nil {
			return nil, fmt.Errorf("read the snapshot of %s[%d] in checkpoint %d: %w", h.GetVertex(), h.GetSubtask(), p.meta.GetCheckpoint(), err)
		}
		checkpointfile.PlaceTask(metadata.GetName(), p.meta, task)
		p.add(task)
	}
	return p, nil
}

func read(ctx context.Context, store statebackend.SegmentStore, seg *snapshotv1.Segment) ([]byte, error) {
	if seg.GetName() == "" {
		return seg.GetInline(), nil
	}
	path, err := store.Fetch(ctx, seg)
	var lost *statebackend.LostError
	if errors.As(err, &lost) {
		return nil, operator.DataLoss(err)
	}
	if err != nil {
		return nil, operator.Storage(err)
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = statebackend.Release(ctx, store, seg.GetName())
	}
	if err != nil {
		return nil, operator.Storage(err)
	}
	return data, nil
}

func (p *Point) add(task *snapshotv1.TaskSnapshot) {
	for _, op := range task.GetOperators() {
		f := p.operators[op.GetUid()]
		if f == nil {
			f = &former{parallelism: int(task.GetParallelism()), snapshots: make(map[int]*snapshotv1.OperatorSnapshot)}
			p.operators[op.GetUid()] = f
		}
		f.snapshots[int(task.GetSubtask())] = op
	}
}

// Check reports everything in the restore point that the job cannot take. Transactions without their sink are refused even where
// state may be dropped, unless the restore point is settled, since their output would be lost.
func (p *Point) Check(g *graph.Graph, allowDropped, settled bool) error {
	if m := int(p.meta.GetMaxParallelism()); m != 0 && m != g.MaxParallelism {
		return operator.Fatal(fmt.Errorf("%w: the job has %d, the restore point %d; it cannot change while state is kept", ErrMaxParallelism, g.MaxParallelism, m))
	}
	takes := make(map[string]bool)
	for _, v := range g.Vertices {
		for _, op := range v.Operators {
			takes[op.UID] = op.Stateful || op.Source || op.TransactionSlots > 0
		}
	}
	var dropped, open []string
	for uid, f := range p.operators {
		if takes[uid] {
			continue
		}
		transactions, state := 0, false
		for _, s := range f.snapshots {
			transactions += len(s.GetCommittables())
			state = state || hasState(s)
		}
		if transactions > 0 && !settled {
			open = append(open, fmt.Sprintf("%s (%d transactions)", uid, transactions))
		} else if state {
			dropped = append(dropped, uid)
		}
	}
	slices.Sort(open)
	slices.Sort(dropped)
	var errs []error
	if len(open) > 0 {
		errs = append(errs, fmt.Errorf("%w: prepared but uncommitted output of %s; start the job with these sinks once, or from a savepoint",
			ErrDroppedState, strings.Join(open, ", ")))
	}
	if len(dropped) > 0 && !allowDropped {
		errs = append(errs, fmt.Errorf("%w: operators %s; give the operators these uids, or allow dropped state with --allow-dropped-state, or WEIR_ALLOW_DROPPED_STATE=1 in a local run", ErrDroppedState, strings.Join(dropped, ", ")))
	}
	if err := errors.Join(errs...); err != nil {
		return operator.Fatal(err)
	}
	return nil
}

// hasState reports whether a snapshot holds more than a watermark.
func hasState(s *snapshotv1.OperatorSnapshot) bool {
	entries := len(s.GetKeyed().GetSegments())
	for _, state := range s.GetOperatorStates() {
		entries += len(state.GetEntries())
	}
	return entries > 0
}

// Operator returns what subtask of an operator with the given parallelism starts from: its own former snapshot when the parallelism
// has not changed, else those of all former subtasks, and the committables it has to finish. What belongs to nobody in particular,
// committables and operator state without a key, goes from former subtask s to subtask s mod parallelism.
func (p *Point) Operator(uid string, subtask, parallelism int) (restored []*snapshotv1.OperatorSnapshot, committables []*snapshotv1.Committable) {
	f := p.operators[uid]
	if f == nil {
		return nil, nil
	}
	for _, group := range p.Transactions(uid, subtask, parallelism) {
		for _, tx := range group {
			committables = append(committables, tx.Committable)
		}
	}
	slices.SortStableFunc(committables, func(a, b *snapshotv1.Committable) int {
		return cmp.Compare(a.GetCheckpoint(), b.GetCheckpoint())
	})
	if f.parallelism == parallelism {
		if s := f.snapshots[subtask]; s != nil {
			restored = append(restored, s)
		}
		return restored, committables
	}
	for _, from := range slices.Sorted(maps.Keys(f.snapshots)) {
		s := f.snapshots[from]
		if from%parallelism != subtask {
			s = withoutUnkeyed(s)
		}
		restored = append(restored, s)
	}
	return restored, committables
}

// withoutUnkeyed returns a copy of s that lacks what only one subtask may take.
func withoutUnkeyed(s *snapshotv1.OperatorSnapshot) *snapshotv1.OperatorSnapshot {
	c := &snapshotv1.OperatorSnapshot{Uid: s.GetUid(), Keyed: s.GetKeyed(), Watermark: s.Watermark, Ended: s.GetEnded()}
	for _, state := range s.GetOperatorStates() {
		kept := &snapshotv1.OperatorState{Name: state.GetName(), Version: state.GetVersion()}
		for _, e := range state.GetEntries() {
			if e.GetKey() != "" {
				kept.Entries = append(kept.Entries, e)
			}
		}
		c.OperatorStates = append(c.OperatorStates, kept)
	}
	return c
}
