package driver

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/scheduler"
)

const (
	// errandTimeout bounds a worker that is started for an ended job.
	errandTimeout = 2 * time.Minute
	// settleAgainFirst and settleAgainMost bound the pause before an ended job is tried to be settled again.
	settleAgainFirst = 5 * time.Second
	settleAgainMost  = 5 * time.Minute
)

var errNoTaskManager = errors.New("no TaskManager is connected that could start a worker for it")

// errand is a worker of an ended job: it opens the sinks to look at transactions or to end them, and runs nothing. What it does is
// idempotent, so that it stands beside all attempts and not in the log, and it does not matter if two leaders do it. One that may have to
// write lost output again is an attempt in the log.
type errand struct {
	m      *Manager
	rec    *raftv1.JobRecord
	number uint64 // of its attempt: larger than that of any real one, unless it is in the log
	tm     string
	token  string
	box    *mailbox
	queue  []any         // taken out of box and not looked at
	over   chan struct{} // closed when the errand has ended
}

// beginErrand registers an errand once the job's former one is over.
func (m *Manager) beginErrand(ctx context.Context, rec *raftv1.JobRecord) (*errand, error) {
	for {
		m.mu.Lock()
		former := m.errands[rec.GetId()]
		if former == nil {
			m.lastErrand = max(m.lastErrand+1, uint64(time.Now().UnixMilli()))
			e := &errand{m: m, rec: rec, number: m.lastErrand, box: newMailbox(), over: make(chan struct{})}
			m.errands[rec.GetId()] = e
			m.mu.Unlock()
			if now, ok := m.cfg.Log.View().Job(rec.GetId()); ok {
				e.rec = now // the former one may have changed it
			}
			return e, nil
		}
		m.mu.Unlock()
		select {
		case <-former.over:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (e *errand) send(msg *clusterv1.SessionResponse) error { return e.m.sessions.Send(e.tm, msg) }

func (e *errand) end() {
	if e.tm != "" {
		_ = e.send(&clusterv1.SessionResponse{Message: &clusterv1.SessionResponse_StopWorker{
			StopWorker: &clusterv1.StopWorker{JobId: e.rec.GetId(), Attempt: e.number, DeadlineMs: uint64(e.m.cfg.CancelDeadline.Milliseconds())},
		}})
	}
	e.m.mu.Lock()
	delete(e.m.errands, e.rec.GetId())
	e.m.mu.Unlock()
	close(e.over)
}

// errandOf returns the errand of an attempt number, nil when it is none.
func (m *Manager) errandOf(jobID string, attempt uint64) *errand {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.errands[jobID]; e != nil && e.number == attempt {
		return e
	}
	return nil
}

// place chooses the TaskManager with the most room, for all slots.
func (e *errand) place() ([]*raftv1.Placement, error) {
	tms := e.m.sessions.TaskManagers()
	best := -1
	for i, tm := range tms {
		if tm.Connected && !tm.Leaving && (best < 0 || tm.Slots > tms[best].Slots) {
			best = i
		}
	}
	if best < 0 {
		return nil, errNoTaskManager
	}
	tm := tms[best]
	var out []*raftv1.Placement
	for i := range scheduler.SlotsOf(e.rec.GetGraph()) {
		out = append(out, &raftv1.Placement{Slot: uint32(i), TaskmanagerId: tm.ID, Incarnation: tm.Incarnation, Host: tm.Host})
	}
	token := make([]byte, 16)
	_, _ = rand.Read(token)
	e.token = hex.EncodeToString(token)
	return out, nil
}

// intoLog makes the errand an attempt in the log, if its sinks may write lost output again.
func (e *errand) intoLog(ctx context.Context, placements []*raftv1.Placement) error {
	if !fsm.DurableOutput(e.rec.GetGraph()) {
		return nil
	}
	number := e.rec.GetAttempt() + 1
	res, err := e.m.cfg.Log.Propose(ctx, &raftv1.Command{Command: &raftv1.Command_SettleEnded{SettleEnded: &raftv1.SettleEnded{
		JobId: e.rec.GetId(), Attempt: number, Placements: placements, Token: e.token,
	}}})
	if err = cmp.Or(err, res.Err); err != nil {
		return err
	}
	e.m.mu.Lock()
	e.rec, e.number = res.Job, number
	e.m.mu.Unlock()
	return nil
}

// start orders the worker and waits until it is prepared, or has written lost output again.
func (e *errand) start(ctx context.Context, placements []*raftv1.Placement, inspect bool) (*workerv1.Event, error) {
	layout := &raftv1.JobRecord{Graph: e.rec.GetGraph(), Attempt: e.number, Placements: placements}
	host := placements[0].GetHost()
	e.tm = placements[0].GetTaskmanagerId()
	err := e.send(&clusterv1.SessionResponse{Message: &clusterv1.SessionResponse_StartWorker{StartWorker: &clusterv1.StartWorker{
		ArtifactSha256: e.rec.GetArtifactSha256(), Args: e.rec.GetArgs(), Prepare: &workerv1.Prepare{
			ClusterId: e.m.cfg.ClusterID, JobId: e.rec.GetId(), JobName: e.rec.GetName(), Attempt: e.number,
			Fingerprint: e.rec.GetGraph().GetFingerprint(), Parallelism: e.rec.GetParallelism(), Tasks: newAttempt(layout, true).workers[0].tasks,
			Restore: lossy(fsm.RestorePoint(e.rec)), Token: e.token, BindHost: host, AdvertiseHost: host,
			SettleOnly: true, InspectOnly: inspect,
		},
	}}})
	if err != nil {
		return nil, fmt.Errorf("start a worker on %s: %w", host, err)
	}
	return e.await(ctx, func(ev *workerv1.Event) bool { return ev.GetPrepared() != nil || ev.GetRewritten() != nil })
}

// settle starts a worker that commits what the last checkpoint lists, and returns what it says of that.
func (e *errand) settle(ctx context.Context) (*workerv1.Prepared, error) {
	placements, err := e.place()
	if err != nil {
		return nil, err
	}
	if err := e.intoLog(ctx, placements); err != nil {
		return nil, err
	}
	ev, err := e.start(ctx, placements, false)
	if again := ev.GetRewritten(); again != nil {
		var res fsm.Result
		res, err = e.m.cfg.Log.Propose(ctx, &raftv1.Command{Command: &raftv1.Command_ReplaceTransactions{ReplaceTransactions: &raftv1.ReplaceTransactions{
			JobId: e.rec.GetId(), Attempt: e.number, Checkpoint: fsm.RestorePoint(e.rec).GetCheckpoint(), Replacements: again.GetReplacements(),
		}}})
		if err = cmp.Or(err, res.Err); err != nil {
			return nil, fmt.Errorf("what was written again could not be put in the place of lost transactions: %w", err)
		}
		ev, err = e.ask(ctx, commitRewrittenCommand(), func(ev *workerv1.Event) bool { return ev.GetPrepared() != nil })
	}
	return ev.GetPrepared(), err
}

// lossy is a restore point that a worker which only settles goes on from when output is lost: it tells of that, and fences.
func lossy(restore *workerv1.RestorePoint) *workerv1.RestorePoint {
	if restore == nil {
		return nil
	}
	restore = proto.CloneOf(restore)
	restore.LossPolicy = workerv1.LossPolicy_LOSS_POLICY_ACCEPT_UNKNOWN
	return restore
}

// ask sends a command and waits for what answers it.
func (e *errand) ask(ctx context.Context, cmd *workerv1.Command, wanted func(*workerv1.Event) bool) (*workerv1.Event, error) {
	err := e.send(&clusterv1.SessionResponse{Message: &clusterv1.SessionResponse_WorkerCommand{
		WorkerCommand: &clusterv1.WorkerCommand{JobId: e.rec.GetId(), Attempt: e.number, Command: cmd},
	}})
	if err != nil {
		return nil, err
	}
	return e.await(ctx, wanted)
}

// await waits for an event of the worker. Its failure or end is the error.
func (e *errand) await(ctx context.Context, wanted func(*workerv1.Event) bool) (*workerv1.Event, error) {
	for {
		for len(e.queue) > 0 {
			next := e.queue[0]
			e.queue = e.queue[1:]
			switch ev := next.(type) {
			case workerEvent:
				if failed := ev.ev.GetEvent().GetTaskFailed(); failed != nil {
					return nil, errors.New(failed.GetMessage())
				}
				if wanted(ev.ev.GetEvent()) {
					return ev.ev.GetEvent(), nil
				}
			case workerExited:
				return nil, fmt.Errorf("the worker for it ended early, with exit code %d: %s", ev.ev.GetExitCode(), lastWords(ev.ev.GetOutputTail()))
			case tmChanged:
				if ev.tm.ID == e.tm && (ev.change == lost || ev.change == interrupted || ev.change == leaving) {
					return nil, fmt.Errorf("TaskManager %s on %s went away", ev.tm.ID, ev.tm.Host)
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the worker for it did not answer in time: %w", ctx.Err())
		case <-e.box.ready:
			e.queue = e.box.take()
		}
	}
}

// inspectEnded carries out a command about the transactions of an ended job.
func (m *Manager) inspectEnded(ctx context.Context, rec *raftv1.JobRecord, cmd *workerv1.Transactions) (a Answers, err error) {
	ctx, cancel := context.WithTimeout(ctx, errandTimeout)
	defer cancel()
	e, err := m.beginErrand(ctx, rec)
	if err != nil {
		return a, err
	}
	defer e.end()
	cmd.Request, cmd.Attempts = e.number, e.rec.GetUnfenced()
	placements, err := e.place()
	if err == nil {
		_, err = e.start(ctx, placements, true)
	}
	if err == nil {
		var ev *workerv1.Event
		ev, err = e.ask(ctx, &workerv1.Command{Command: &workerv1.Command_Transactions{Transactions: cmd}},
			func(ev *workerv1.Event) bool { return ev.GetTransactionsDone() != nil })
		if err == nil {
			a.add(e.tm, ev.GetTransactionsDone())
			return a, nil
		}
		a.Unanswered = true
	}
	a.Problems = append(a.Problems, err.Error())
	return a, nil
}

// SettleAgain has a job that ended with transactions left open settled soon.
func (m *Manager) SettleAgain(jobID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case m.unsettled[jobID] <- struct{}{}: // never ready for a job that is not there
	default:
	}
}

// settleEnded goes on, beside everything else, with the settling of a job that ended with transactions left open.
func (m *Manager) settleEnded(rec *raftv1.JobRecord) {
	m.mu.Lock()
	if rec.GetUnsettled() == "" || !rec.GetGraph().GetTransactionsCommand() || m.unsettled[rec.GetId()] != nil {
		m.mu.Unlock()
		return
	}
	wake := make(chan struct{}, 1)
	m.unsettled[rec.GetId()] = wake
	m.mu.Unlock()
	m.goDo(func() {
		for pause := m.cfg.SettleAgain; ; pause = min(2*pause, settleAgainMost) {
			timer := time.NewTimer(pause)
			select {
			case <-m.ctx.Done():
				timer.Stop()
				return
			case <-wake:
				timer.Stop()
			case <-timer.C:
			}
			done, err := m.settleEndedOnce(m.ctx, rec.GetId())
			if done {
				m.mu.Lock()
				delete(m.unsettled, rec.GetId())
				m.mu.Unlock()
				return
			}
			if m.ctx.Err() == nil {
				m.cfg.Logger.Warn("a job that has ended still has unsettled transactions", "job", rec.GetId(), "name", rec.GetName(), "error", err)
			}
		}
	})
}

// settleEndedOnce tries once; done tells that nothing is left to be tried.
func (m *Manager) settleEndedOnce(ctx context.Context, jobID string) (done bool, err error) {
	rec, ok := m.cfg.Log.View().Job(jobID)
	if !ok || rec.GetUnsettled() == "" {
		return true, nil
	}
	limited, cancel := context.WithTimeout(ctx, errandTimeout)
	defer cancel()
	e, err := m.beginErrand(limited, rec)
	if err != nil {
		return false, err
	}
	defer e.end()
	prepared, err := e.settle(limited)
	if err != nil {
		return false, err
	}
	rec = e.rec
	if lost := prepared.GetLost(); len(lost) > 0 {
		res, err := m.cfg.Log.Propose(ctx, LossCommand(m.cfg.Log, jobID, lost))
		if err = cmp.Or(err, res.Err); err != nil {
			return false, fmt.Errorf("lost output could not be recorded: %w", err)
		}
	}
	start := &workerv1.Command{Command: &workerv1.Command_Start{Start: &workerv1.Start{Fence: rec.GetUnfenced()}}}
	if _, err := e.ask(limited, start, func(ev *workerv1.Event) bool { return ev.GetStarted() != nil }); err != nil {
		return false, err
	}
	cmd := &raftv1.SettleResult{JobId: jobID}
	if last, ok := fsm.LastCheckpoint(rec); ok {
		cmd.Checkpoint = last.GetId()
	}
	for _, f := range rec.GetUnfenced() {
		cmd.Attempts = append(cmd.Attempts, f.GetAttempt())
	}
	res, err := m.cfg.Log.Propose(ctx, &raftv1.Command{Command: &raftv1.Command_SettleResult{SettleResult: cmd}})
	if err = cmp.Or(err, res.Err); err != nil {
		return false, err
	}
	m.cfg.Logger.Info("a job that had ended with unsettled transactions is settled", "job", jobID, "name", rec.GetName())
	if res.Job != nil {
		m.cleanEnded(res.Job)
	}
	return true, nil
}
