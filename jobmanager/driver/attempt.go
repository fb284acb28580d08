package driver

import (
	"slices"
	"strings"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/version"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
)

// attempt is one attempt as its driver knows it.
type attempt struct {
	number  uint64
	settle  bool
	workers []*worker // sorted by TaskManager id
	tasks   []checkpoint.Task
	// fencing lists the former attempts that Start asks to fence and whose workers were all dead then.
	fencing     []uint64
	coordinator *checkpoint.Coordinator
	// notified and aborted are the highest checkpoints that workers were told to be complete or aborted.
	notified, aborted uint64
	// adopted is set when a former leader has begun the attempt and everything needed to go on with it is known.
	adopted bool
	// retained are the file lists of the retained checkpoints of an adopted attempt.
	retained []*snapshotv1.CheckpointMetadata
}

// worker is the process of an attempt on one TaskManager.
type worker struct {
	tm, incarnation, host    string
	tasks                    []*workerv1.TaskAssignment
	sources                  bool
	dataAddress              string
	protocol                 uint32 // the highest version that it speaks, where it has told this leader
	prepared, started, ended bool
	// replacing tells that the log has what the worker has written again in the place of lost transactions.
	replacing bool
	closed    bool
	// lost is what it could not commit of the restore point.
	lost []*jobv1.LostOutput
	// inputEnded and changed are what the worker says only once, changed being one more than the newest checkpoint after whose snapshot
	// something changed there.
	inputEnded bool
	changed    uint64
	// reported tells that the TaskManager has told this leader of the worker; it counts while the attempt is taken over.
	reported bool
	// missing tells that the TaskManager has come back to this leader without the worker.
	missing bool
}

// newAttempt lays the tasks of a graph out over the placements: slot i runs subtask i of every vertex. A settling attempt has the
// tasks with transactional sinks only.
func newAttempt(rec *raftv1.JobRecord, settle bool) *attempt {
	a := &attempt{number: rec.GetAttempt(), settle: settle}
	byTM := make(map[string]*worker)
	for _, v := range rec.GetGraph().GetVertices() {
		if settle && !transactional(v) {
			continue
		}
		for _, p := range rec.GetPlacements() {
			if p.GetSlot() >= v.GetParallelism() {
				continue
			}
			w := byTM[p.GetTaskmanagerId()]
			if w == nil {
				w = &worker{tm: p.GetTaskmanagerId(), incarnation: p.GetIncarnation(), host: p.GetHost()}
				byTM[w.tm] = w
				a.workers = append(a.workers, w)
			}
			w.tasks = append(w.tasks, &workerv1.TaskAssignment{Vertex: v.GetId(), Subtask: p.GetSlot()})
			w.sources = w.sources || v.GetSource()
			a.tasks = append(a.tasks, checkpoint.Task{
				ID:     checkpoint.TaskID{Vertex: v.GetId(), Subtask: p.GetSlot()},
				Source: v.GetSource(), Worker: w.tm,
			})
		}
	}
	slices.SortFunc(a.workers, func(x, y *worker) int { return strings.Compare(x.tm, y.tm) })
	return a
}

func transactional(v *jobv1.Vertex) bool {
	return slices.ContainsFunc(v.GetOperators(), func(o *jobv1.Operator) bool { return o.GetTransactionSlots() > 0 })
}

func hasTransactions(g *jobv1.Graph) bool { return slices.ContainsFunc(g.GetVertices(), transactional) }

// every reports whether all workers satisfy a condition.
func (a *attempt) every(ok func(*worker) bool) bool {
	return !slices.ContainsFunc(a.workers, func(w *worker) bool { return !ok(w) })
}

// taskAddresses lists where the tasks listen for data, for workers that don't know of slots; nil when there are none.
func (a *attempt) taskAddresses() []*workerv1.TaskAddress {
	if a.every(func(w *worker) bool { return w.protocol >= version.ProtocolSlots }) {
		return nil
	}
	var out []*workerv1.TaskAddress
	for _, w := range a.workers {
		for _, t := range w.tasks {
			out = append(out, &workerv1.TaskAddress{Vertex: t.GetVertex(), Subtask: t.GetSubtask(), Address: w.dataAddress})
		}
	}
	return out
}

// addresses lists where the slots listen for data.
func (a *attempt) addresses() []*workerv1.WorkerAddress {
	var out []*workerv1.WorkerAddress
	for _, w := range a.workers {
		at := &workerv1.WorkerAddress{Address: w.dataAddress}
		for _, t := range w.tasks {
			at.Slots = append(at.Slots, t.GetSubtask())
		}
		slices.Sort(at.Slots)
		at.Slots = slices.Compact(at.Slots)
		out = append(out, at)
	}
	return out
}

// worker returns the current attempt's worker on one incarnation of a TaskManager.
func (j *job) worker(tmID, incarnation string) *worker {
	if j.att == nil {
		return nil
	}
	at, found := slices.BinarySearchFunc(j.att.workers, tmID, func(w *worker, tm string) int { return strings.Compare(w.tm, tm) })
	if !found || j.att.workers[at].incarnation != incarnation {
		return nil
	}
	return j.att.workers[at]
}
