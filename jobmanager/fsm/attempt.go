package fsm

import (
	"fmt"
	"slices"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"google.golang.org/protobuf/proto"
)

func newAttempt(c *raftv1.NewAttempt) change {
	return func(r *raftv1.JobRecord) error {
		settling := r.GetState() == jobv1.JobState_JOB_STATE_SETTLING
		switch {
		case c.GetSettleOnly() && !settling && !Terminal(r.GetState()):
			return ErrNotEnding
		case settling && c.GetSettleOnly():
			// The one kind of attempt that an ending job may have.
		default:
			if err := live(r); err != nil {
				return err
			}
		}
		switch {
		case c.GetAttempt() != r.GetAttempt()+1:
			return fmt.Errorf("attempt %d does not follow %d: %w", c.GetAttempt(), r.GetAttempt(), ErrStaleAttempt)
		case len(c.GetPlacements()) == 0:
			return fmt.Errorf("attempt %d has no placement: %w", c.GetAttempt(), ErrInvalid)
		}
		if x := r.GetRescale(); x != nil && !c.GetSettleOnly() && len(c.GetPlacements()) != int(Slots(x.GetGraph())) {
			return fmt.Errorf("attempt %d has %d placements and needs %d: %w", c.GetAttempt(), len(c.GetPlacements()), Slots(x.GetGraph()), ErrInvalid)
		}
		retire(r)
		if !c.GetSettleOnly() {
			planned := r.GetRescale() != nil && r.GetState() == jobv1.JobState_JOB_STATE_RUNNING
			r.State = jobv1.JobState_JOB_STATE_DEPLOYING
			if r.GetAttempt() > 0 && !planned {
				r.Restarts++
			}
			if x := r.GetRescale(); x != nil {
				applyRescale(r, x, c.GetAttempt())
			}
		}
		r.Attempt = c.GetAttempt()
		r.Placements = c.GetPlacements()
		r.Token = c.GetToken()
		r.Started = false
		r.SettlingAttempt = c.GetSettleOnly()
		r.Restore = restorePoint(r)
		collect(r)
		return nil
	}
}

// retire puts the current attempt on the list of those whose transactional ids may be in use. Ids are used only after Start, which
// is sent only after StartAttempt is in the log, or to write lost output again; a settling attempt uses none of its own but for that.
func retire(r *raftv1.JobRecord) {
	if (!r.GetStarted() || r.GetSettlingAttempt()) && !mayHaveRewritten(r) {
		return
	}
	if sinks := sinkExtents(r.GetGraph()); len(sinks) > 0 {
		r.Unfenced = append(r.Unfenced, &workerv1.FencedAttempt{Attempt: r.GetAttempt(), Sinks: sinks})
		r.UnfencedWorkers = append(r.UnfencedWorkers, &raftv1.AttemptWorkers{Attempt: r.GetAttempt(), Workers: workerHosts(r.GetPlacements())})
	}
}

// workerHosts returns the TaskManagers of the placements, each once.
func workerHosts(placements []*raftv1.Placement) []*raftv1.WorkerHost {
	var hosts []*raftv1.WorkerHost
	for _, p := range placements {
		if !slices.ContainsFunc(hosts, func(h *raftv1.WorkerHost) bool { return h.GetTaskmanagerId() == p.GetTaskmanagerId() }) {
			hosts = append(hosts, &raftv1.WorkerHost{TaskmanagerId: p.GetTaskmanagerId(), Incarnation: p.GetIncarnation()})
		}
	}
	return hosts
}

func sinkExtents(g *jobv1.Graph) []*workerv1.SinkExtent {
	var sinks []*workerv1.SinkExtent
	for _, v := range g.GetVertices() {
		for _, op := range v.GetOperators() {
			if op.GetTransactionSlots() > 0 {
				sinks = append(sinks, &workerv1.SinkExtent{
					Uid: op.GetUid(), Parallelism: v.GetParallelism(), Slots: op.GetTransactionSlots(),
				})
			}
		}
	}
	return sinks
}

// restorePoint is decided here because only the log's order can tell which completion came first.
func restorePoint(r *raftv1.JobRecord) *workerv1.RestorePoint {
	if last, ok := LastCheckpoint(r); ok {
		return &workerv1.RestorePoint{
			Metadata: last.GetMetadata(), Checkpoint: last.GetId(), Settled: last.GetSettled(),
			AllowDroppedState: r.GetAllowDroppedState(), Replacements: replacements(r),
		}
	}
	if r.GetFrom() == nil {
		return nil
	}
	from := proto.CloneOf(r.GetFrom())
	from.AllowDroppedState = from.GetAllowDroppedState() || r.GetAllowDroppedState()
	if own := replacements(r); own != nil {
		from.Replacements = own
	}
	return from
}

func startAttempt(c *raftv1.StartAttempt) change {
	return func(r *raftv1.JobRecord) error {
		if c.GetAttempt() != r.GetAttempt() || c.GetAttempt() == 0 {
			return fmt.Errorf("attempt %d, current is %d: %w", c.GetAttempt(), r.GetAttempt(), ErrStaleAttempt)
		}
		settling := r.GetState() == jobv1.JobState_JOB_STATE_SETTLING && r.GetSettlingAttempt()
		if !settling {
			if err := live(r); err != nil {
				return err
			}
		}
		switch {
		case r.GetState() == jobv1.JobState_JOB_STATE_RESTARTING:
			return fmt.Errorf("attempt %d has failed: %w", c.GetAttempt(), ErrStaleAttempt)
		case r.GetStarted():
			return errRepeated
		}
		r.Started = true
		r.Prepared = r.GetPrepared() || !r.GetSettlingAttempt()
		if !settling {
			r.State = jobv1.JobState_JOB_STATE_RUNNING
			r.LastRecoveryMs = c.GetRecoveryMs()
		}
		settleRestored(r)
		return nil
	}
}

// settleRestored records that the committables of the attempt's restore point are committed.
func settleRestored(r *raftv1.JobRecord) {
	if r.GetRestore() == nil {
		return
	}
	r.Restore = proto.CloneOf(r.GetRestore())
	r.Restore.Settled, r.Restore.Replacements = true, nil
	r.Replaced = nil
	if len(r.GetCheckpoints()) > 0 {
		settleUpTo(r, r.GetRestore().GetCheckpoint())
	} else if r.GetFrom() != nil {
		r.From = proto.CloneOf(r.GetFrom())
		r.From.Settled, r.From.Replacements = true, nil
		committed(r, r.From.GetCheckpoint())
	}
}

func failAttempt(c *raftv1.FailAttempt) change {
	return func(r *raftv1.JobRecord) error {
		if Terminal(r.GetState()) {
			return live(r)
		}
		if c.GetAttempt() != r.GetAttempt() || c.GetAttempt() == 0 {
			return fmt.Errorf("attempt %d, current is %d: %w", c.GetAttempt(), r.GetAttempt(), ErrStaleAttempt)
		}
		switch r.GetState() {
		case jobv1.JobState_JOB_STATE_RESTARTING:
			return errRepeated
		case jobv1.JobState_JOB_STATE_SETTLING:
			// The job's way is settled; only the reason is worth keeping.
		default:
			r.State = jobv1.JobState_JOB_STATE_RESTARTING
			addRestart(r, &raftv1.RestartEntry{AtMs: c.GetFailure().GetAtMs(), Counted: c.GetCounted(), Host: c.GetHost()})
		}
		recordFailure(r, c.GetFailure())
		return nil
	}
}

// maxUncounted bounds the failures kept that only lengthen the delay.
const maxUncounted = 20

// addRestart keeps what the restart policy can still look at: counted failures up to one more than the budget, and some others.
func addRestart(r *raftv1.JobRecord, entry *raftv1.RestartEntry) {
	history := append(r.RestartHistory, entry)
	left := map[bool]int{true: int(r.GetGraph().GetRestarts().GetMaxRestarts()) + 1, false: maxUncounted}
	kept := make([]*raftv1.RestartEntry, 0, len(history))
	for _, e := range slices.Backward(history) {
		if left[e.GetCounted()] > 0 {
			left[e.GetCounted()]--
			kept = append(kept, e)
		}
	}
	slices.Reverse(kept)
	r.RestartHistory = kept
}

func fencedAttempts(c *raftv1.FencedAttempts) change {
	return func(r *raftv1.JobRecord) error {
		before := len(r.GetUnfenced())
		r.Unfenced = slices.DeleteFunc(r.Unfenced, func(f *workerv1.FencedAttempt) bool {
			return slices.Contains(c.GetAttempts(), f.GetAttempt())
		})
		if len(r.GetUnfenced()) == before {
			return errRepeated
		}
		r.UnfencedWorkers = slices.DeleteFunc(r.UnfencedWorkers, func(w *raftv1.AttemptWorkers) bool {
			return slices.Contains(c.GetAttempts(), w.GetAttempt())
		})
		return nil
	}
}
