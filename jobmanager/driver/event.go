package driver

import (
	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"github.com/weir-stream/weir/jobmanager/explain"
	"github.com/weir-stream/weir/jobmanager/registry"
)

// What a driver's mailbox holds.
type (
	// tmChanged tells of a TaskManager: joined, interrupted, resumed, leaving or lost.
	tmChanged struct {
		tm      registry.TaskManager
		change  tmChange
		running []*clusterv1.RunningAttempt
		reason  string
		dead    bool
	}
	workerEvent struct {
		tm registry.TaskManager
		ev *clusterv1.WorkerEvent
	}
	workerExited struct {
		tm registry.TaskManager
		ev *clusterv1.WorkerExited
	}
	slotsGranted struct{ placements []*raftv1.Placement }
	// cancelRequest, stopRequest and savepointRequest come from users; each is answered once.
	cancelRequest struct {
		requestID string
		reply     chan<- error
	}
	stopRequest struct {
		requestID, dir string
		reply          chan<- error
	}
	savepointRequest struct {
		requestID, dir string
		reply          chan<- savepointReply
	}
	// coordinatorEvent is the answer to a slow effect of the coordinator of an attempt.
	coordinatorEvent struct {
		attempt uint64
		ev      checkpoint.Event
	}
	exported struct {
		attempt uint64
		effect  checkpoint.Export
		results []exportResult
	}
	// cleaned tells which dropped checkpoints have no files any more, and whether something is left to be tried again.
	cleaned struct {
		checkpoints []uint64
		again       bool
	}
	// statusRequest asks for what only the driver knows; the reply has room for the answer.
	statusRequest struct {
		reply chan<- Progress
		held  []*jobv1.HeldOutput // what was found of the job's output
	}
)

// Progress is what a driver is doing.
type Progress struct {
	// Explanation says why the job does not get on, or that it does.
	Explanation explain.Explanation
	// Checkpoints are those of the current attempt: the one in progress, if any, and then finished ones, newest first.
	Checkpoints []*jobv1.Checkpoint
}

type savepointReply struct {
	path       string
	checkpoint uint64
	err        error
}

type tmChange uint8

const (
	joined tmChange = iota + 1
	interrupted
	resumed
	leaving
	lost
)
