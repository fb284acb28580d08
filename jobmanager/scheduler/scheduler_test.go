package scheduler_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/jobmanager/scheduler"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"
)

func tm(id string, free int) scheduler.TaskManager {
	return scheduler.TaskManager{ID: id, Incarnation: id + "-now", Host: "host-" + id, Free: free}
}

func job(name string, slots int, former ...string) scheduler.Job {
	j := scheduler.Job{ID: "id-" + name, Name: name, Slots: slots}
	for i, id := range former {
		j.Former = append(j.Former, &raftv1.Placement{Slot: uint32(i), TaskmanagerId: id, Incarnation: id + "-before"})
	}
	return j
}

// where returns the TaskManagers by slot.
func where(d scheduler.Decision) []string {
	var ids []string
	for _, p := range d.Placements {
		ids = append(ids, p.GetTaskmanagerId())
	}
	return ids
}

func TestPlacementNamesTheTaskManager(t *testing.T) {
	got := scheduler.Schedule([]scheduler.TaskManager{tm("a", 1)}, []scheduler.Job{job("j", 1)})
	want := []scheduler.Decision{{
		JobID:      "id-j",
		Placements: []*raftv1.Placement{{Slot: 0, TaskmanagerId: "a", Incarnation: "a-now", Host: "host-a"}},
	}}
	require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))
}

func TestJobIsSpreadOverTaskManagers(t *testing.T) {
	got := scheduler.Schedule([]scheduler.TaskManager{tm("a", 4), tm("b", 4), tm("c", 1)}, []scheduler.Job{job("j", 5)})
	require.Equal(t, []string{"a", "b", "c", "a", "b"}, where(got[0]))
}

func TestRoomiestTaskManagerComesFirst(t *testing.T) {
	got := scheduler.Schedule([]scheduler.TaskManager{tm("a", 1), tm("b", 3)}, []scheduler.Job{job("j", 1)})
	require.Equal(t, []string{"b"}, where(got[0]))
}

func TestFormerPlacementIsPreferred(t *testing.T) {
	got := scheduler.Schedule([]scheduler.TaskManager{tm("a", 4), tm("b", 4)}, []scheduler.Job{job("j", 3, "b", "b", "gone")})
	require.Equal(t, []string{"b", "b", "a"}, where(got[0]))
	require.Equal(t, "b-now", got[0].Placements[0].GetIncarnation())
}

func TestFormerPlacementIsGivenUpWhenTaken(t *testing.T) {
	got := scheduler.Schedule([]scheduler.TaskManager{tm("a", 1), tm("b", 1)}, []scheduler.Job{job("j", 2, "b", "b")})
	require.Equal(t, []string{"b", "a"}, where(got[0]))
}

func TestFewerSlotsThanBefore(t *testing.T) {
	got := scheduler.Schedule([]scheduler.TaskManager{tm("a", 2)}, []scheduler.Job{job("j", 1, "a", "a")})
	require.Equal(t, []string{"a"}, where(got[0]))
}

func TestAllOrNothing(t *testing.T) {
	got := scheduler.Schedule([]scheduler.TaskManager{tm("a", 1), tm("b", 0)}, []scheduler.Job{job("j", 4)})
	require.Nil(t, got[0].Placements)
	require.Equal(t, "needs 4 slots, 1 free on 1 TaskManager; start more TaskManagers or lower the parallelism", got[0].Waiting)
}

func TestWaitingTexts(t *testing.T) {
	text := func(tms ...scheduler.TaskManager) string {
		return scheduler.Schedule(tms, []scheduler.Job{job("j", 8)})[0].Waiting
	}
	require.Equal(t, "needs 8 slots, and no TaskManager is connected; start TaskManagers", text())
	require.Equal(t, "needs 8 slots, 0 free on 2 TaskManagers; start more TaskManagers or lower the parallelism", text(tm("a", 0), tm("b", 0)))
	require.Equal(t, "needs 8 slots, 5 free on 2 TaskManagers; start more TaskManagers or lower the parallelism", text(tm("a", 2), tm("b", 3)))
}

func TestEarlierJobIsServedFirst(t *testing.T) {
	got := scheduler.Schedule([]scheduler.TaskManager{tm("a", 2)}, []scheduler.Job{job("first", 2), job("second", 1)})
	require.Len(t, got[0].Placements, 2)
	require.Nil(t, got[1].Placements)
}

func TestJobTooBigLetsOthersPass(t *testing.T) {
	got := scheduler.Schedule([]scheduler.TaskManager{tm("a", 2)},
		[]scheduler.Job{job("huge", 100), job("restarting", 1, "a"), job("new", 1)})
	require.Nil(t, got[0].Placements)
	require.Len(t, got[1].Placements, 1)
	require.Len(t, got[2].Placements, 1)
}

func TestSlotsAreHeldForARestartingJob(t *testing.T) {
	got := scheduler.Schedule([]scheduler.TaskManager{tm("a", 2)},
		[]scheduler.Job{job("big", 4, "a", "a", "lost", "lost"), job("new", 2), job("small", 2, "a", "a")})
	require.Nil(t, got[0].Placements)
	require.Nil(t, got[1].Placements)
	require.Contains(t, got[1].Waiting, "held for job big, which is restarting")
	require.Len(t, got[2].Placements, 2, "a job that has run is not kept from restarting")
}

func TestSlotsOfIsTheWidestVertex(t *testing.T) {
	require.Equal(t, 3, scheduler.SlotsOf(pipeline()))
	require.Zero(t, scheduler.SlotsOf(nil))
}

func pipeline() *jobv1.Graph {
	return &jobv1.Graph{Vertices: []*jobv1.Vertex{{Id: "in", Parallelism: 1}, {Id: "work", Parallelism: 3}, {Id: "out", Parallelism: 2}}}
}

func TestScheduleInvariants(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	rapid.Check(t, func(t *rapid.T) {
		free := make(map[string]int)
		total := 0
		var tms []scheduler.TaskManager
		for _, id := range names[:rapid.IntRange(0, len(names)).Draw(t, "taskmanagers")] {
			free[id] = rapid.IntRange(0, 4).Draw(t, "free")
			total += free[id]
			tms = append(tms, tm(id, free[id]))
		}
		var jobs []scheduler.Job
		for i := range rapid.IntRange(0, 5).Draw(t, "jobs") {
			former := rapid.SliceOfN(rapid.SampledFrom(names), 0, 4).Draw(t, "former")
			jobs = append(jobs, job(string(rune('p'+i)), rapid.IntRange(1, 6).Draw(t, "slots"), former...))
		}
		got := scheduler.Schedule(tms, jobs)
		require.Len(t, got, len(jobs))
		reversed := slices.Clone(tms)
		slices.Reverse(reversed)
		require.Empty(t, cmp.Diff(got, scheduler.Schedule(reversed, jobs), protocmp.Transform()), "order of TaskManagers matters")

		restarting := false
		for i, d := range got {
			require.Equal(t, jobs[i].ID, d.JobID)
			require.Equal(t, d.Waiting == "", d.Placements != nil)
			if d.Placements == nil {
				fits := total >= jobs[i].Slots
				require.False(t, fits && (len(jobs[i].Former) > 0 || !restarting), "job %s would fit", d.JobID)
				restarting = restarting || len(jobs[i].Former) > 0
				continue
			}
			require.Len(t, d.Placements, jobs[i].Slots)
			for slot, p := range d.Placements {
				require.Equal(t, uint32(slot), p.GetSlot())
				free[p.GetTaskmanagerId()]--
				total--
				require.GreaterOrEqual(t, free[p.GetTaskmanagerId()], 0, "slot given twice")
			}
		}
	})
}
