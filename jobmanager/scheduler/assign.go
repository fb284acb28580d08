package scheduler

import (
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
)

// Share is what one TaskManager runs of an attempt.
type Share struct {
	TaskManagerID, Incarnation, Host string
	Tasks                            []*workerv1.TaskAssignment
}

// Shares spreads the tasks of a job over its placements: slot i takes subtask i of every vertex. There is one share per
// TaskManager, in the order of their first slots.
func Shares(g *jobv1.Graph, placements []*raftv1.Placement) []Share {
	var shares []Share
	index := make(map[string]int)
	for _, p := range placements {
		i, ok := index[p.GetTaskmanagerId()]
		if !ok {
			i = len(shares)
			index[p.GetTaskmanagerId()] = i
			shares = append(shares, Share{TaskManagerID: p.GetTaskmanagerId(), Incarnation: p.GetIncarnation(), Host: p.GetHost()})
		}
		for _, v := range g.GetVertices() {
			if p.GetSlot() < v.GetParallelism() {
				shares[i].Tasks = append(shares[i].Tasks, &workerv1.TaskAssignment{Vertex: v.GetId(), Subtask: p.GetSlot()})
			}
		}
	}
	return shares
}
