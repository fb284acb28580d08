package driver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/jobmanager/fsm"
)

// adoptable reports whether an attempt of a former leader can go on: the log says that it goes, and neither that it has failed nor
// that the job is ending. Starting it again is harmless, so that it does not matter how many workers were told.
func adoptable(rec *raftv1.JobRecord) bool {
	return rec.GetState() == jobv1.JobState_JOB_STATE_RUNNING && rec.GetStarted() && !rec.GetSettlingAttempt() && !stopDone(rec)
}

// lastWordWait bounds the wait for what a TaskManager has to tell of a worker that it does not have any more.
const lastWordWait = 500 * time.Millisecond

// takeOver waits for the workers of a former leader's attempt, of which their TaskManagers tell when they register.
func (j *job) takeOver() {
	j.att = newAttempt(j.rec, false)
	j.status.begin(j.rec, j.att)
	j.takingUp = true
	j.enter(phaseTakeover, j.m.cfg.RegisterGrace)
	j.readRetained()
}

// retainedRead tells the file lists of the checkpoints that the log retains.
type retainedRead struct {
	retained []*snapshotv1.CheckpointMetadata
}

// readRetained finds out beside the driver what the retained checkpoints protect, however long storage takes to tell. A checkpoint
// whose file list is lost protects nothing: at worst the next ones are refused and the job restarts.
func (j *job) readRetained() {
	ctx, rec, clean, box, logger := j.ctx, j.rec, j.clean, j.box, j.logger
	j.m.goDo(func() {
		var retained []*snapshotv1.CheckpointMetadata
		for _, cp := range rec.GetCheckpoints() {
			md, err := clean.filesOf(ctx, cp)
			for ; err != nil && !errors.Is(err, checkpointfile.ErrDamaged); md, err = clean.filesOf(ctx, cp) {
				logger.Warn("takeover waits for checkpoint storage", "checkpoint", cp.GetId(), "error", err)
				select {
				case <-time.After(resultRetry):
				case <-ctx.Done():
					return
				}
			}
			if md == nil {
				logger.Warn("a retained checkpoint has no usable metadata", "checkpoint", cp.GetId(), "error", err)
				continue
			}
			retained = append(retained, md)
		}
		box.put(retainedRead{retained})
	})
}

func (j *job) onRetainedRead(ev retainedRead) {
	if j.phase == phaseTakeover {
		j.att.adopted, j.att.retained = true, ev.retained
		j.takenOver()
	}
}

// onReport takes what a TaskManager that has registered tells about its worker.
func (j *job) onReport(w *worker, running []*clusterv1.RunningAttempt) {
	i := slices.IndexFunc(running, func(r *clusterv1.RunningAttempt) bool { return r.GetJobId() == j.id && r.GetAttempt() == j.att.number })
	if i < 0 {
		// Its TaskManager reports next how it ended; the deadline bounds the wait for that.
		w.missing = true
		if soon := time.Now().Add(lastWordWait); j.deadline.IsZero() || soon.Before(j.deadline) {
			j.deadline = soon
		}
		return
	}
	r := running[i]
	if r.GetDataAddress() == "" || !sameTasks(r.GetTasks(), w.tasks) {
		j.fail(failure{
			class: restartClass, origin: originHost, host: w.host, worker: w.tm,
			message: "TaskManager " + w.tm + " on " + w.host + " reports a worker that is not the one of this attempt",
		})
		return
	}
	w.reported, w.missing, w.prepared, w.started = true, false, true, w.started || r.GetStarted()
	w.dataAddress, w.inputEnded = r.GetDataAddress(), w.inputEnded || r.GetInputEnded()
	// What is completed is committed whatever else the takeover waits for: transactions have a timeout.
	if last := lastOfAttempt(j.rec); last != nil && w.started {
		j.command(w.tm, completeCommand(last.GetId()))
	}
	j.logger.Info("worker taken over", "attempt", j.att.number, "taskmanager", w.tm, "started", w.started, "tasks", len(w.tasks),
		"triggered", r.GetTriggered(), "completed", r.GetCompleted(), "committed", r.GetCommitted())
}

func sameTasks(a, b []*workerv1.TaskAssignment) bool {
	order := func(x, y *workerv1.TaskAssignment) int {
		return cmp.Or(strings.Compare(x.GetVertex(), y.GetVertex()), int(x.GetSubtask())-int(y.GetSubtask()))
	}
	a, b = slices.SortedFunc(slices.Values(a), order), slices.SortedFunc(slices.Values(b), order)
	return slices.EqualFunc(a, b, func(x, y *workerv1.TaskAssignment) bool { return proto.Equal(x, y) })
}

// startedAnew ends the attempt when a TaskManager comes back as another process: what ran there died with the former one.
func (j *job) startedAnew(tmID, incarnation string) {
	if j.phase != phaseTakeover {
		return
	}
	for _, w := range j.att.workers {
		if w.tm == tmID && w.incarnation != incarnation {
			w.ended = true
			j.fail(failure{
				class: restartClass, origin: originHost, host: w.host, worker: w.tm,
				message: "TaskManager " + w.tm + " on " + w.host + " was started anew while there was no leader",
			})
			return
		}
	}
}

// takenOver goes on once every worker of the attempt is known to live. Those that the former leader did not get to start are started.
func (j *job) takenOver() {
	if j.phase != phaseTakeover || !j.att.adopted || !j.att.every(func(w *worker) bool { return w.reported }) {
		return
	}
	faultpoint.Hit(faultpoint.TakenOver)
	j.enter(phaseStarting, j.m.cfg.PrepareTimeout)
	j.commandAll(j.startCommand(), func(w *worker) bool { return !w.started })
	j.startedWhenComplete()
}

// takeoverFailed ends the attempt when TaskManagers did not come back in time, and goes on waiting when only storage is missing.
func (j *job) takeoverFailed() {
	for _, w := range j.att.workers {
		if w.reported {
			continue
		}
		f := failure{class: restartClass, origin: originHost, host: w.host, worker: w.tm}
		f.message = fmt.Sprintf("TaskManager %s on %s did not come back to the new leader within %s", w.tm, w.host, j.m.cfg.RegisterGrace)
		if w.missing {
			w.ended = true
			f.origin, f.message = originProcess, unseenEnd(w)
		}
		j.fail(f)
		return
	}
}

// absent names what the job waits for after a leader change.
func (j *job) absent() []string {
	var names []string
	if j.phase == phaseTakeover {
		for _, w := range j.att.workers {
			if !w.reported {
				names = append(names, w.tm+" on "+w.host)
			}
		}
		if len(names) == 0 {
			names = append(names, "they are back; the files of the retained checkpoints are being read")
		}
		return names
	}
	for tm := range j.undead[j.rec.GetAttempt()] {
		if known, ok := j.tms[tm]; !ok || !known.Connected {
			names = append(names, tm)
		}
	}
	slices.Sort(names)
	return names
}

// clearFormer ends what the former leader had in flight in the workers: its checkpoints, whose ids are below those of this leader, and
// a stop that the log does not know any more.
func (j *job) clearFormer() {
	if next := j.rec.GetNextCheckpoint(); next > 0 {
		j.att.aborted = next - 1
		j.commandAll(abortCommand(j.att.aborted), nil)
	}
	if j.rec.GetStopRequestId() == "" {
		j.commandAll(resumeCommand(), nil)
	}
}

// lastOfAttempt returns the newest completed checkpoint if the current attempt has taken it.
func lastOfAttempt(rec *raftv1.JobRecord) *raftv1.CompletedCheckpoint {
	if last, ok := fsm.LastCheckpoint(rec); ok && last.GetAttempt() == rec.GetAttempt() {
		return last
	}
	return nil
}
