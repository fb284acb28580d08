package scheduler

import (
	"fmt"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
)

// TaskManager is one that can take work.
type TaskManager struct {
	ID, Incarnation, Host string
	// Free is the number of slots that no attempt holds.
	Free int
}

// Job is one that waits for slots.
type Job struct {
	ID, Name string
	// Slots is the number needed, see [SlotsOf].
	Slots int
	// Former is the placement of its last attempt, preferred slot by slot since the state is cached there; empty for a new job.
	Former []*raftv1.Placement
}

// Decision is the answer for one job: a placement of every slot, or what it waits for.
type Decision struct {
	JobID string
	// Placements are in the order of the slots; nil when the job waits.
	Placements []*raftv1.Placement
	// Waiting says in a sentence what is missing.
	Waiting string
}

// SlotsOf returns the number of slots that a job needs.
func SlotsOf(g *jobv1.Graph) int {
	n := 0
	for _, v := range g.GetVertices() {
		n = max(n, int(v.GetParallelism()))
	}
	return n
}

// Schedule decides about all waiting jobs, in their order. Its arguments are not modified, and the same arguments give the same
// answer.
func Schedule(taskManagers []TaskManager, waiting []Job) []Decision {
	p := newPool(taskManagers)
	held, holder := 0, ""
	decisions := make([]Decision, 0, len(waiting))
	for _, j := range waiting {
		d := Decision{JobID: j.ID}
		isNew := len(j.Former) == 0
		switch {
		case p.free < j.Slots:
			d.Waiting = p.missing(j.Slots)
			if !isNew {
				held += j.Slots
				holder = j.Name
			}
		case isNew && p.free-held < j.Slots:
			d.Waiting = fmt.Sprintf("needs %s, %s, held for job %s, which is restarting; start more TaskManagers or lower the parallelism",
				count(j.Slots, "slot"), p.summary(), holder)
		default:
			d.Placements = p.place(j)
		}
		decisions = append(decisions, d)
	}
	return decisions
}
