package driver

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/scheduler"
)

const (
	// followEvery is how often the driver of a job whose parallelism the cluster chooses looks at its share of the slots.
	followEvery = time.Second
	// replanTimeout bounds the planning of a job for another parallelism.
	replanTimeout = time.Minute
)

// planned is a job's graph for its share of the slots.
type planned struct {
	share uint32
	graph *jobv1.Graph
	err   error
}

// Share returns how many slots a job has or would have if the cluster chose its parallelism; most is its maximum parallelism. The id of a
// job that is not in the log stands for one that comes last.
func (m *Manager) Share(jobID string, most uint32) int {
	_, total := m.slots.totals()
	own := scheduler.Claim{ID: jobID, Auto: true, Most: int(most)}
	known := false
	var claims []scheduler.Claim
	for _, rec := range m.cfg.Log.View().Jobs() {
		switch {
		case rec.GetId() == jobID:
			known = true
			claims = append(claims, own)
		case fsm.Terminal(rec.GetState()), rec.GetState() == jobv1.JobState_JOB_STATE_SETTLING:
		case rec.GetAutoParallelism():
			claims = append(claims, scheduler.Claim{ID: rec.GetId(), Auto: true, Most: int(rec.GetGraph().GetMaxParallelism())})
		default:
			claims = append(claims, scheduler.Claim{ID: rec.GetId(), Slots: int(fsm.Slots(fsm.Next(rec))), Holds: !m.slots.waits(rec.GetId())})
		}
	}
	if !known {
		claims = append(claims, own)
	}
	return scheduler.Shares(total, claims)[jobID]
}

// follow looks whether a job whose parallelism the cluster chooses has another share of the slots by now, and has it planned for that.
func (j *job) follow(now time.Time) {
	if now.Before(j.followAt) {
		return
	}
	j.followAt = now.Add(followEvery)
	steady := j.phase == phaseRunning || j.phase == phaseSlots
	if !j.rec.GetAutoParallelism() || !steady || j.planning || j.rec.GetRescale() != nil || j.rec.GetStopRequestId() != "" || j.m.cfg.Plan == nil {
		return
	}
	current, most := int(fsm.Slots(j.rec.GetGraph())), j.rec.GetGraph().GetMaxParallelism()
	share := j.follower.Decide(now, current, j.m.Share(j.id, most), j.phase == phaseSlots)
	if share == 0 || share == int(j.rec.GetParallelism()) { // its operators need more than their share, whatever is planned
		return
	}
	j.planning = true
	ctx, box, rec := j.ctx, j.box, j.rec
	j.m.goDo(func() {
		ctx, cancel := context.WithTimeout(ctx, replanTimeout)
		defer cancel()
		graph, err := j.m.cfg.Plan(ctx, &clusterv1.PlanJob{
			ArtifactSha256: rec.GetArtifactSha256(), Args: rec.GetArgs(), Parallelism: uint32(share), Name: rec.GetName(),
			OperatorParallelism: rec.GetOperatorParallelism(),
		})
		box.put(planned{uint32(share), graph, err})
	})
}

// onPlanned rescales the job to its share. What does not succeed is tried again after the settling time.
func (j *job) onPlanned(p planned) {
	j.planning = false
	if p.err != nil {
		j.logger.Warn("the job cannot be planned for its share of the slots", "share", p.share, "error", p.err)
		j.followLater()
		return
	}
	if !j.rec.GetAutoParallelism() || j.phase != phaseRunning && j.phase != phaseSlots {
		return
	}
	reply := make(chan rescaleReply, 1) // nobody waits: the record tells
	j.requestRescale(rescaleRequest{&raftv1.Rescale{
		RequestId: "auto-" + ulid.Make().String(), Graph: p.graph, Parallelism: p.share, Operators: j.rec.GetOperatorParallelism(), Auto: true,
		Base: j.rec.GetGraph().GetFingerprint(),
	}, reply})
	select {
	case r := <-reply:
		if r.err != nil {
			j.logger.Info("the job does not go to its share of the slots", "share", p.share, "reason", r.err)
			j.followLater()
		}
	default:
	}
}

func (j *job) followLater() {
	now := time.Now()
	j.follower.Again(now)
	j.followAt = now.Add(max(followEvery, j.m.cfg.AutoSettle))
}
