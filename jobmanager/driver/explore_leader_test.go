package driver

import (
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/registry"
)

// Connections as the leader knows them.
const (
	connGone uint8 = iota
	connBroken
	connUp
)

// leader is the log and, under one leadership, the driver of the job, which is the product's. A leader that is listed is never changed:
// each step works on a copy.
type leader struct {
	log  *memLog
	m    *Manager
	j    *job // nil when the job has ended
	conn [taskManagers]uint8
	at   time.Time // when the copy was made
	sent []sentMsg // in the present step
}

type sentMsg struct {
	tm  uint8
	msg downMsg
}

var _ Sessions = (*leader)(nil)

// inquiry numbers a question to the workers, with the leadership that asks: an answer to another one is nobody's.
func (l *leader) inquiry(request uint64) uint16 {
	return uint16(l.log.term)<<8 | uint16(request-uint64(time.Now().UnixNano()))
}

// request is the reverse; 0 is no question.
func (l *leader) request(inquiry uint16) uint64 {
	if inquiry>>8 != uint16(l.log.term) {
		return 0
	}
	return uint64(time.Now().UnixNano()) + uint64(inquiry&0xff)
}

func tmName(i uint8) string { return fmt.Sprintf("tm%d", i) }

func tmIndex(id string) uint8 { return id[2] - '0' }

func (l *leader) taskManager(i uint8) registry.TaskManager {
	return registry.TaskManager{ID: tmName(i), Incarnation: "i", Host: "h", Slots: l.log.x.tasks(), Connected: l.conn[i] == connUp}
}

// TaskManagers implements Sessions.
func (l *leader) TaskManagers() []registry.TaskManager {
	var out []registry.TaskManager
	for i, c := range l.conn {
		if c != connGone {
			out = append(out, l.taskManager(uint8(i)))
		}
	}
	return out
}

// Send implements Sessions.
func (l *leader) Send(tmID string, m *clusterv1.SessionResponse) error {
	i := tmIndex(tmID)
	if l.conn[i] != connUp {
		return grpcerr.ErrNoTaskManager
	}
	var d downMsg
	switch m := m.GetMessage().(type) {
	case *clusterv1.SessionResponse_StartWorker:
		p := m.StartWorker.GetPrepare()
		d = downMsg{kind: dPrepare, attempt: uint8(p.GetAttempt()), arg: l.log.x.prepareOf(p)}
	case *clusterv1.SessionResponse_StopWorker:
		d = downMsg{kind: dStop, attempt: uint8(m.StopWorker.GetAttempt())}
	case *clusterv1.SessionResponse_WorkerCommand:
		d.attempt = uint8(m.WorkerCommand.GetAttempt())
		switch c := m.WorkerCommand.GetCommand().GetCommand().(type) {
		case *workerv1.Command_Start:
			d.kind, d.arg = dStart, l.log.x.fencesOf(c.Start.GetFence())
		case *workerv1.Command_TriggerCheckpoint:
			d.kind, d.n = dTrigger, uint16(c.TriggerCheckpoint.GetCheckpoint())
		case *workerv1.Command_CompleteCheckpoint:
			d.kind, d.n = dComplete, uint16(c.CompleteCheckpoint.GetCheckpoint())
		case *workerv1.Command_AbortCheckpoint:
			d.kind, d.n = dAbort, uint16(c.AbortCheckpoint.GetCheckpoint())
		case *workerv1.Command_ResumeSources:
			d.kind = dResume
		case *workerv1.Command_Finish:
			d.kind = dFinish
		case *workerv1.Command_CommitRewritten:
			d.kind = dCommitRewritten
		case *workerv1.Command_Transactions:
			d.kind, d.arg = dFenceAgain, l.log.x.fencesOf(c.Transactions.GetAttempts())
			d.n = l.inquiry(c.Transactions.GetRequest())
		default:
			panic(fmt.Sprintf("explore: command %T", c))
		}
	default:
		panic(fmt.Sprintf("explore: message %T", m))
	}
	l.sent = append(l.sent, sentMsg{i, d})
	return nil
}

func (x *explorer) newManager(l *leader) *Manager {
	m := &Manager{
		cfg: Config{
			ClusterID: "c", Log: l.log, Bucket: x.bucket,
			RegisterGrace: 20 * time.Second, CancelDeadline: 4 * time.Second, PrepareWarning: 24 * time.Hour, PrepareTimeout: 60 * time.Second,
			SettleBudget: 24 * time.Hour, FenceEvery: 30 * time.Second, Metrics: x.metrics, Logger: x.logger,
		},
		sessions: l, slots: newSlots(l), jobs: map[string]*job{}, ctx: x.ctx, cancel: func() {},
	}
	return m
}

func newCleanerWithoutLife(m *Manager, j *job) *cleaner {
	return &cleaner{
		m: m, jobID: j.id, prefix: jobPrefix("c", j.id), box: j.box, logger: m.cfg.Logger, wake: make(chan struct{}, 1),
		known: map[uint64]*snapshotv1.CheckpointMetadata{},
	}
}

// takeUp makes the driver of a new leadership, like Manager.Start and job.run.
func (x *explorer) takeUp(former *leader) *leader {
	l := &leader{log: &memLog{x: x, state: former.log.state, term: former.log.term + 1}}
	l.m = x.newManager(l)
	if x.mutation == reuseIDs {
		l.log.forgetReserved()
	}
	rec := l.log.record()
	if fsm.Terminal(rec.GetState()) {
		return l
	}
	if adoptable(rec) {
		l.m.slots.hold(rec)
	}
	l.j = newJob(l.m, rec)
	l.j.ctx = x.ctx
	l.j.clean = newCleanerWithoutLife(l.m, l.j)
	l.m.jobs[exploredJob] = l.j
	l.j.begin()
	x.finishStep(l)
	return l
}

// copyLeader returns a copy that lives pass later.
func (x *explorer) copyLeader(l *leader, pass time.Duration) *leader {
	n := &leader{log: &memLog{x: x, state: l.log.state, term: l.log.term}, conn: l.conn}
	n.m = x.newManager(n)
	now := time.Now()
	if l.j == nil {
		return n
	}
	n.j = deepCopy(x.shapes, l.j, func(t time.Time) time.Time {
		a := age(t, l.at)
		t = now.Add(-time.Duration(a)*time.Second - pass)
		if a >= 0 {
			t = t.Add(-2 * time.Millisecond) // no two steps are at the same time
		}
		return t
	})
	n.j.m, n.j.clean = n.m, newCleanerWithoutLife(n.m, n.j)
	switch name := nameOf(reflect.ValueOf(l.j.after)); name[strings.LastIndexByte(name, '.')+1:] {
	case "":
	case "proceed-fm":
		n.j.after = n.j.proceed
	case "afterFailure-fm":
		n.j.after = n.j.afterFailure
	case "recordSettled-fm":
		n.j.after = n.j.recordSettled
	default:
		panic("explore: what follows a stop cannot be copied: " + name)
	}
	n.m.jobs[exploredJob] = n.j
	for id, p := range l.m.slots.held {
		n.m.slots.held[id] = p
	}
	for id, w := range l.m.slots.waiting {
		r := *w
		r.box = n.j.box
		n.m.slots.waiting[id] = &r
	}
	return n
}

// finishStep waits for what the driver does on the side, which is short here, and gives metadata files a name for their content.
func (x *explorer) finishStep(l *leader) {
	l.m.wg.Wait()
	l.at = time.Now()
	if l.j == nil {
		return
	}
	for _, ev := range l.j.box.queue {
		if c, ok := ev.(coordinatorEvent); ok {
			if w, ok := c.ev.(checkpoint.MetadataWritten); ok && !strings.Contains(w.Metadata.GetName(), "#") {
				w.Metadata.Name = x.bucket.last
			}
		}
	}
	if l.j.phase == phaseDone && fsm.Terminal(l.log.record().GetState()) {
		l.j = nil
		delete(l.m.jobs, exploredJob)
	}
}

// dead reports whether the leadership has ended.
func (l *leader) dead() bool { return l.j != nil && l.j.phase == phaseDone }

// key stands for the canonical form: its hash is long enough for no two to be the same.
func (l *leader) key() pair {
	k := keyer{shapes: l.log.x.shapes, now: l.at, buf: l.log.x.buf[:0]}
	defer func() { l.log.x.buf = k.buf }()
	k.number(int64(l.log.term))
	k.buf = append(k.buf, l.conn[:]...)
	k.message(l.log.record())
	if l.j == nil {
		return hashed(k.buf)
	}
	k.number(int64(l.j.status.live.Load()))
	k.number(int64(len(l.m.slots.held)*10 + len(l.m.slots.waiting)))
	k.shapes.of(reflect.TypeFor[job]()).write(&k, unsafe.Pointer(l.j))
	return hashed(k.buf)
}

func newMetricsForNobody() *Metrics { return NewMetrics(prometheus.NewRegistry()) }

func nobodyReads() *slog.Logger { return slog.New(slog.DiscardHandler) }
