package robustness_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// world is what faults happen to.
type world struct {
	t      *testing.T
	rnd    *rand.Rand
	c      *harness.Cluster
	broker *kafkatest.Broker
	proxy  *kafkatest.Proxy
	// network is between the JobManagers, and between them and everybody else.
	network     *harness.Network
	job         string
	run         *harness.OrderRun
	checkpoints *harness.CheckpointWatch
}

// fault is one kind of trouble. It returns when the trouble is over, though not its consequences.
type fault struct {
	name   string
	weight int
	do     func(w *world)
}

var faults = []fault{
	{"kill a worker", 3, func(w *world) {
		if pid, _, err := w.c.WorkerOf(); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
		}
	}},
	{"kill a TaskManager", 3, func(w *world) { w.restart(w.pick(w.c.TaskManagers())) }},
	{"kill the leading JobManager", 2, killLeader},
	{"kill the leading JobManager, nothing else", 2, func(w *world) { w.unnoticed(killLeader) }},
	{"kill a JobManager", 2, func(w *world) { w.restart(w.pick(w.c.JobManagers())) }},
	{"kill everything", 1, func(w *world) {
		all := append(w.c.TaskManagers(), w.c.JobManagers()...)
		for _, p := range all {
			require.NoError(w.t, p.Kill())
		}
		for _, p := range all {
			require.NoError(w.t, p.Start())
		}
	}},
	{"freeze a TaskManager", 2, func(w *world) { w.freeze(w.pick(w.c.TaskManagers()).PID(), 8*time.Second) }},
	{"freeze a worker", 2, func(w *world) {
		if pid, _, err := w.c.WorkerOf(); err == nil {
			w.freeze(pid, 8*time.Second)
		}
	}},
	{"freeze the leading JobManager", 1, freezeLeader},
	{"freeze the leading JobManager, nothing else", 2, func(w *world) { w.unnoticed(freezeLeader) }},
	{"isolate the leading JobManager", 1, isolateLeader},
	{"isolate the leading JobManager, nothing else", 2, func(w *world) { w.unnoticed(isolateLeader) }},
	{"isolate a JobManager, nothing else", 1, func(w *world) { w.unnoticed(isolateAny) }},
	{"slow broker", 2, func(w *world) {
		w.proxy.Delay(w.upTo(300 * time.Millisecond))
		w.sleep(w.upTo(5 * time.Second))
		w.proxy.Delay(0)
	}},
	{"cut the broker off", 2, func(w *world) {
		w.proxy.Cut()
		w.sleep(w.upTo(4 * time.Second))
		w.proxy.Restore()
	}},
	{"break the broker's connections", 2, func(w *world) { w.proxy.Break() }},
	{"kill the broker", 1, func(w *world) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		var err error
		w.run.WhileQuiet(func() { err = errors.Join(w.broker.Kill(), w.broker.Restart(ctx)) })
		require.NoError(w.t, err)
	}},
}

func killLeader(w *world) {
	if leader := w.leader(); leader != nil {
		w.restart(leader)
	}
}

func freezeLeader(w *world) {
	if leader := w.leader(); leader != nil {
		w.freeze(leader.PID(), 12*time.Second)
	}
}

func isolateLeader(w *world) {
	if leader := w.leader(); leader != nil {
		w.isolate(leader)
	}
}

func isolateAny(w *world) { w.isolate(w.pick(w.c.JobManagers())) }

func (w *world) isolate(p *localcluster.Process) {
	w.network.Isolate(p)
	w.sleep(w.upTo(12 * time.Second))
	w.network.Heal()
}

// unnoticed lets a fault happen to a minority of the JobManagers while nothing else is wrong, and requires that no task notices.
func (w *world) unnoticed(do func(*world)) {
	before := w.calm()
	workers := w.c.WorkersByTaskManager()
	do(w)
	after := w.calm()
	require.Equal(w.t, before.Attempt, after.Attempt, "a fault of a JobManager alone restarted the job: %v", after.Failures)
	require.Equal(w.t, workers, w.c.WorkersByTaskManager(), "worker processes")
}

// calm waits until every node is there and the job has completed a checkpoint that began now, if there is still input for one.
func (w *world) calm() harness.JobView {
	w.c.WaitWhole(time.Minute)
	now := time.Now()
	harness.Eventually(w.t, time.Minute, "a checkpoint begun now", func() error {
		if last := w.checkpoints.Last(); !last.Triggered.After(now) && !w.run.Finished() {
			return fmt.Errorf("the last one is %d, begun %s before", last.ID, now.Sub(last.Triggered))
		}
		return nil
	})
	return w.c.WaitState(w.job, "RUNNING", time.Minute)
}

// next draws a fault by its weight.
func (w *world) next() fault {
	total := 0
	for _, f := range faults {
		total += f.weight
	}
	n := w.rnd.IntN(total)
	for _, f := range faults {
		if n -= f.weight; n < 0 {
			return f
		}
	}
	panic("unreachable")
}

func (w *world) pick(ps []*localcluster.Process) *localcluster.Process {
	return ps[w.rnd.IntN(len(ps))]
}

func (w *world) leader() *localcluster.Process {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	leader, err := w.c.WaitLeader(ctx)
	if err != nil {
		return nil // an election is going on; there will be other faults
	}
	return leader
}

func (w *world) restart(p *localcluster.Process) {
	require.NoError(w.t, p.Kill())
	w.sleep(w.upTo(2 * time.Second))
	require.NoError(w.t, p.Start())
}

func (w *world) freeze(pid int, limit time.Duration) {
	if syscall.Kill(pid, syscall.SIGSTOP) != nil {
		return // it has ended
	}
	w.sleep(w.upTo(limit))
	_ = syscall.Kill(pid, syscall.SIGCONT)
}

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rnd.Int64N(int64(d))) }

// sleep lets trouble last; it is the test's load, not a wait for a condition.
func (w *world) sleep(d time.Duration) { time.Sleep(d) }
