package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker/exchange"
	"github.com/weir-stream/weir/taskmanager/worker/snapshot"
	"github.com/weir-stream/weir/taskmanager/worker/task"
)

// prepare is deployment phase one.
func (w *Worker) prepare(ctx context.Context, p *workerv1.Prepare) error {
	if faultpoint.Enabled {
		faultpoint.Is("job", p.GetJobName())
		faultpoint.Is("attempt", strconv.FormatUint(p.GetAttempt(), 10))
	}
	w.restored.begin()
	program, err := w.plan(p)
	if err != nil {
		return err
	}
	w.restored.ends(planned)
	point, err := w.restorePoint(ctx, p, program)
	if err != nil {
		return err
	}
	w.restored.ends(pointRead)
	if err := os.MkdirAll(w.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("create the scratch directory: %w", err)
	}
	dir, err := os.MkdirTemp(w.cfg.Dir, "attempt-"+strconv.FormatUint(p.GetAttempt(), 10)+"-")
	if err != nil {
		return fmt.Errorf("create the scratch directory: %w", err)
	}
	d := &deployment{prepare: p, settleOnly: p.GetSettleOnly(), dir: dir}
	w.deployment = d
	address := ""
	if !d.settleOnly {
		identity := exchange.Attempt{Job: p.GetJobId(), Attempt: p.GetAttempt(), Token: p.GetToken(), Encrypt: p.GetEncrypt()}
		ports := exchange.Ports{First: uint16(p.GetFirstPort()), Last: uint16(p.GetLastPort())}
		if d.server, err = exchange.Listen(orLoopback(p.GetBindHost()), ports, identity); err != nil {
			return err
		}
		d.dialer = exchange.NewDialer(identity)
		address = net.JoinHostPort(orLoopback(p.GetAdvertiseHost()), strconv.Itoa(d.server.Port()))
	}
	b := &builder{w: w, d: d, program: program, point: point}
	if err := b.build(); err != nil {
		return operator.Fatal(err)
	}
	w.report.expectSources(b.sources)
	if !w.forEach(ctx, d, func(ctx context.Context, r *runner) error { return r.task.Open(ctx, d.settleOnly) }) {
		return nil
	}
	d.address = address
	if rewritten := d.rewritten(); len(rewritten) > 0 {
		w.report.rewritten(rewritten)
		return nil // CommitRewritten goes on
	}
	w.prepared(d)
	return nil
}

// prepared tells that phase one is done.
func (w *Worker) prepared(d *deployment) {
	committed := 0
	for _, r := range d.runners {
		committed += r.committable
	}
	faultpoint.Hit(faultpoint.PreparedDue)
	lost := d.lost()
	d.prepared = true
	w.restored.ends(opened)
	w.restored.tell()
	w.report.prepared(d.address, committed-len(lost), lost)
}

// commitRewritten commits what was written again, of which the log knows now. Repeating it is harmless.
func (w *Worker) commitRewritten(ctx context.Context) {
	d := w.deployment
	if !d.prepared && !w.forEach(ctx, d, func(ctx context.Context, r *runner) error { return r.task.CommitRewritten(ctx) }) {
		return
	}
	w.prepared(d)
}

// orLoopback keeps a listener from opening on every address for want of one.
func orLoopback(host string) string {
	if host == "" {
		return "127.0.0.1"
	}
	return host
}

// plan compiles the job and compares it with the one that was submitted.
func (w *Worker) plan(p *workerv1.Prepare) (program *operator.Program, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = operator.Fatal(&task.PanicError{Value: r, Stack: string(debug.Stack())})
		}
	}()
	program, err = w.cfg.Plan(int(p.GetParallelism()))
	if err != nil {
		return nil, operator.Fatal(fmt.Errorf("plan the job: %w", err))
	}
	if got, want := program.Graph.Fingerprint, p.GetFingerprint(); got != want {
		return nil, operator.Fatal(fmt.Errorf("%w: %s here, %s submitted; a job must plan the same graph from the same arguments everywhere",
			ErrFingerprint, got, want))
	}
	return program, nil
}

func (w *Worker) restorePoint(ctx context.Context, p *workerv1.Prepare, program *operator.Program) (*snapshot.Point, error) {
	restore := p.GetRestore()
	if restore.GetMetadata() == nil {
		return snapshot.Empty(), nil
	}
	faultpoint.Hit(faultpoint.RestoreDue)
	point, err := snapshot.Read(ctx, w.cfg.Store, restore.GetMetadata())
	if err != nil {
		return nil, err
	}
	faultpoint.Hit(faultpoint.RestoreRead)
	if err := point.Replace(restore.GetReplacements()); err != nil {
		return nil, err
	}
	if !p.GetSettleOnly() {
		if err := point.Check(program.Graph, restore.GetAllowDroppedState(), restore.GetSettled()); err != nil {
			return nil, err
		}
	}
	return point, nil
}

// start is deployment phase two. Repeating it is harmless.
func (w *Worker) start(ctx context.Context, s *workerv1.Start) error {
	d := w.deployment
	if d.started {
		w.report.started()
		return nil
	}
	w.restored.begin()
	done := w.forEach(ctx, d, func(ctx context.Context, r *runner) error {
		return r.task.Fence(ctx, func(uid string) operator.Scope { return scope(s.GetFence(), uid, r.task) })
	})
	w.restored.ends(fenced)
	if !done || !d.settleOnly && !w.connect(ctx, s) {
		return nil
	}
	w.restored.ends(connected)
	w.restored.tell()
	d.started = true
	faultpoint.Hit(faultpoint.StartedDue)
	// Before the tasks run, so that nothing that they report comes before it.
	w.report.started()
	if !d.settleOnly {
		for _, r := range d.runners {
			r.run(ctx)
		}
	}
	return nil
}

// forEach runs fn for all tasks at once and reports whether all went well. A failure has been told, with its task.
func (w *Worker) forEach(ctx context.Context, d *deployment, fn func(context.Context, *runner) error) bool {
	var g errgroup.Group
	for _, r := range d.runners {
		g.Go(func() error {
			r.busy.Store(true)
			err := fn(ctx, r)
			r.busy.Store(false)
			if err != nil {
				w.fail(r.task.Vertex(), r.task.Subtask(), err)
			}
			return err
		})
	}
	return w.wait(ctx, &g) == nil
}

// wait waits for a group, but no longer than a canceled worker may take. Meanwhile it tells what the tasks are at, since nobody else
// does before they run.
func (w *Worker) wait(ctx context.Context, g *errgroup.Group) error {
	done := make(chan error, 1)
	go func() { done <- g.Wait() }()
	tell := time.NewTicker(statisticsEvery)
	defer tell.Stop()
	for ctx.Err() == nil {
		select {
		case err := <-done:
			return err
		case <-tell.C:
			w.report.statistics(w.deployment.statistics())
		case <-ctx.Done():
		}
	}
	patience := time.NewTimer(cancelDeadline)
	defer patience.Stop()
	select {
	case err := <-done:
		return errors.Join(err, ctx.Err())
	case <-patience.C:
		return ErrStuck
	}
}

// scope returns the share of a task's sink in fencing former attempts.
func scope(attempts []*workerv1.FencedAttempt, uid string, t *task.Task) operator.Scope {
	sc := operator.Scope{Subtask: t.Subtask(), Parallelism: t.Parallelism()}
	for _, f := range attempts {
		for _, sink := range f.GetSinks() {
			if sink.GetUid() == uid {
				sc.Attempts = append(sc.Attempts, operator.FormerAttempt{
					Attempt: f.GetAttempt(), Parallelism: int(sink.GetParallelism()), Slots: int(sink.GetSlots()),
				})
			}
		}
	}
	return sc
}

// connect connects the channels to other workers and reports whether all went well, like forEach.
func (w *Worker) connect(ctx context.Context, s *workerv1.Start) bool {
	d := w.deployment
	addresses := make(map[int]string)       // by slot
	for _, task := range s.GetAddresses() { // an older leader tells no more
		addresses[int(task.GetSubtask())] = task.GetAddress()
	}
	for _, other := range s.GetWorkers() {
		for _, slot := range other.GetSlots() {
			addresses[int(slot)] = other.GetAddress()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, connectDeadline)
	defer cancel()
	var g errgroup.Group
	for _, rs := range d.remote {
		g.Go(func() error {
			addr, ok := addresses[rs.to.subtask]
			err := fmt.Errorf("no address of %s[%d] among those to start with", rs.to.vertex, rs.to.subtask)
			if ok {
				err = d.dialer.Connect(ctx, addr, rs.sender)
			}
			if err != nil {
				w.fail(rs.owner.task.Vertex(), rs.owner.task.Subtask(), err)
			}
			return err
		})
	}
	return w.wait(ctx, &g) == nil
}
