package worker

import (
	"sync"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/version"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/taskmanager/worker/task"
)

// reports turns what happens in the tasks into events of the worker.
type reports struct {
	send func(*workerv1.Event)
	*reported
}

// reported is what the worker has told.
type reported struct {
	mu sync.Mutex
	// since is one more than the newest checkpoint for which activity was told.
	since uint64
	// openSources is the number of source tasks whose input is not exhausted.
	openSources int
	// commits is the number of tasks that have not yet committed a checkpoint.
	commits map[uint64]int
}

func newReports(send func(*workerv1.Event)) reports {
	if send == nil {
		send = func(*workerv1.Event) {}
	}
	return reports{send, &reported{commits: make(map[uint64]int)}}
}

func (r reports) prepared(address string, committed int, lost []*jobv1.LostOutput) {
	r.send(&workerv1.Event{Event: &workerv1.Event_Prepared{Prepared: &workerv1.Prepared{
		DataAddress: address, Committed: uint32(max(0, committed)), Lost: lost, ProtocolMax: version.ProtocolMax,
	}}})
}

func (r reports) transactionsDone(done *workerv1.TransactionsDone) {
	r.send(&workerv1.Event{Event: &workerv1.Event_TransactionsDone{TransactionsDone: done}})
}

func (r reports) rewritten(replacements []*workerv1.Replacement) {
	r.send(&workerv1.Event{Event: &workerv1.Event_Rewritten{Rewritten: &workerv1.Rewritten{Replacements: replacements}}})
}

func (r reports) started() {
	r.send(&workerv1.Event{Event: &workerv1.Event_Started{Started: &workerv1.Started{}}})
}

func (r reports) closed() {
	r.send(&workerv1.Event{Event: &workerv1.Event_Closed{Closed: &workerv1.Closed{}}})
}

func (r reports) statistics(tasks []*jobv1.TaskStatistics) {
	r.send(&workerv1.Event{Event: &workerv1.Event_Statistics{Statistics: &workerv1.Statistics{Tasks: tasks}}})
}

// look tells the figures, or only that the process runs.
func (r reports) look(s *workerv1.Statistics) {
	if s == nil {
		r.send(&workerv1.Event{Event: &workerv1.Event_Heartbeat{Heartbeat: &workerv1.Heartbeat{}}})
		return
	}
	r.send(&workerv1.Event{Event: &workerv1.Event_Statistics{Statistics: s}})
}

func (r reports) failed(vertex string, subtask int, err error) {
	r.send(&workerv1.Event{Event: &workerv1.Event_TaskFailed{TaskFailed: &workerv1.TaskFailed{
		Vertex: vertex, Subtask: uint32(subtask), Class: class(err), Message: err.Error(), Stack: task.Stack(err),
		Lost: sinks.LossesOf(err), Consequence: lostPeer(err),
	}}})
}

func class(err error) workerv1.FailureClass {
	switch task.Class(err) {
	case operator.ClassFatal:
		return workerv1.FailureClass_FAILURE_CLASS_FATAL
	case operator.ClassDataLoss:
		return workerv1.FailureClass_FAILURE_CLASS_DATA_LOSS
	case operator.ClassStorage:
		return workerv1.FailureClass_FAILURE_CLASS_STORAGE
	case operator.ClassUnavailable:
		return workerv1.FailureClass_FAILURE_CLASS_UNAVAILABLE
	}
	return workerv1.FailureClass_FAILURE_CLASS_RESTART
}

func (r reports) activity(since uint64) {
	r.mu.Lock()
	news := since+1 > r.since
	r.since = max(r.since, since+1)
	r.mu.Unlock()
	if news {
		r.send(&workerv1.Event{Event: &workerv1.Event_Activity{Activity: &workerv1.Activity{SinceCheckpoint: since}}})
	}
}

func (r reports) expectSources(n int) {
	r.mu.Lock()
	r.openSources = n
	r.mu.Unlock()
}

// sourceEnded tells, when it was the last one, that all sources of the worker are exhausted.
func (r reports) sourceEnded() {
	r.mu.Lock()
	r.openSources--
	last, since := r.openSources == 0, r.since
	r.mu.Unlock()
	if last {
		r.send(&workerv1.Event{Event: &workerv1.Event_Activity{Activity: &workerv1.Activity{SinceCheckpoint: max(since, 1) - 1, Ended: true}}})
	}
}

// commitAsked notes that every task was asked to commit checkpoint n.
func (r reports) commitAsked(n uint64, tasks int) {
	r.mu.Lock()
	r.commits[n] += tasks
	r.mu.Unlock()
}

func (r reports) committed(n uint64) {
	r.mu.Lock()
	r.commits[n]--
	all := r.commits[n] == 0
	if all {
		delete(r.commits, n)
	}
	r.mu.Unlock()
	if all {
		r.send(&workerv1.Event{Event: &workerv1.Event_CommitAcked{CommitAcked: &workerv1.CommitAcked{Checkpoint: n}}})
	}
}

// taskReporter is the task.Reporter of one task.
type taskReporter struct {
	w       *Worker
	vertex  string
	subtask int
	source  bool
}

var _ task.Reporter = (*taskReporter)(nil)

func (r *taskReporter) Acked(ack *workerv1.CheckpointAck) {
	r.w.report.send(&workerv1.Event{Event: &workerv1.Event_CheckpointAck{CheckpointAck: ack}})
}

func (r *taskReporter) Declined(checkpoint uint64, reason string) {
	r.w.report.send(&workerv1.Event{Event: &workerv1.Event_CheckpointDeclined{CheckpointDeclined: &workerv1.CheckpointDeclined{
		Checkpoint: checkpoint, Vertex: r.vertex, Subtask: uint32(r.subtask), Reason: reason,
	}}})
}

func (r *taskReporter) Committed(checkpoint uint64) { r.w.report.committed(checkpoint) }

func (r *taskReporter) Activity(since uint64) { r.w.report.activity(since) }

func (r *taskReporter) Ended() {
	if r.source {
		r.w.report.sourceEnded()
	}
}

func (r *taskReporter) Failed(err error) { r.w.fail(r.vertex, r.subtask, err) }
