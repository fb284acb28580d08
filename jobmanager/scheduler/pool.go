package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
)

// pool is what is still free.
type pool struct {
	taskManagers []TaskManager // sorted by id
	free         int
}

func newPool(taskManagers []TaskManager) *pool {
	p := &pool{taskManagers: slices.Clone(taskManagers)}
	slices.SortFunc(p.taskManagers, func(a, b TaskManager) int { return cmp.Compare(a.ID, b.ID) })
	for i := range p.taskManagers {
		p.taskManagers[i].Free = max(0, p.taskManagers[i].Free)
		p.free += p.taskManagers[i].Free
	}
	return p
}

// place takes the job's slots; there must be enough.
func (p *pool) place(j Job) []*raftv1.Placement {
	placements := make([]*raftv1.Placement, j.Slots)
	taken := make([]int, len(p.taskManagers)) // by this job
	take := func(slot, i int) {
		tm := &p.taskManagers[i]
		tm.Free--
		p.free--
		taken[i]++
		placements[slot] = &raftv1.Placement{
			Slot: uint32(slot), TaskmanagerId: tm.ID, Incarnation: tm.Incarnation, Host: tm.Host,
		}
	}
	for _, f := range j.Former {
		i := slices.IndexFunc(p.taskManagers, func(tm TaskManager) bool { return tm.ID == f.GetTaskmanagerId() && tm.Free > 0 })
		if slot := int(f.GetSlot()); i >= 0 && slot < j.Slots && placements[slot] == nil {
			take(slot, i)
		}
	}
	for slot := range placements {
		if placements[slot] == nil {
			take(slot, p.roomiest(taken))
		}
	}
	return placements
}

// roomiest spreads: the TaskManager with the fewest slots of the job, then with the most free ones.
func (p *pool) roomiest(taken []int) int {
	best := -1
	for i, tm := range p.taskManagers {
		if tm.Free == 0 {
			continue
		}
		if best < 0 || cmp.Or(cmp.Compare(taken[i], taken[best]), cmp.Compare(p.taskManagers[best].Free, tm.Free)) < 0 {
			best = i
		}
	}
	return best
}

func (p *pool) missing(slots int) string {
	if len(p.taskManagers) == 0 {
		return fmt.Sprintf("needs %s, and no TaskManager is connected; start TaskManagers", count(slots, "slot"))
	}
	return fmt.Sprintf("needs %s, %s; start more TaskManagers or lower the parallelism", count(slots, "slot"), p.summary())
}

func (p *pool) summary() string {
	on := 0
	for _, tm := range p.taskManagers {
		if tm.Free > 0 {
			on++
		}
	}
	if on == 0 {
		return fmt.Sprintf("0 free on %s", count(len(p.taskManagers), "TaskManager"))
	}
	return fmt.Sprintf("%d free on %s", p.free, count(on, "TaskManager"))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
