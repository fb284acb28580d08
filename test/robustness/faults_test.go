package robustness_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// fault is one kind of trouble. It returns when the trouble is over, though not its consequences.
type fault struct {
	name   string
	weight int
	// alone says that no other fault happens meanwhile, and that it is called on the goroutine of the test.
	alone bool
	do    func(w *world, rnd *rand.Rand) error
}

var faults = []fault{
	{"kill a worker", 3, false, func(w *world, rnd *rand.Rand) error {
		if pid, _ := w.worker(rnd); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
		}
		return nil
	}},
	{"kill a TaskManager", 3, false, func(w *world, rnd *rand.Rand) error {
		return w.onNode(pick(rnd, w.c.TaskManagers()), func(p *localcluster.Process) error { return w.kill(rnd, p) })
	}},
	{"kill the leading JobManager", 2, false, func(w *world, rnd *rand.Rand) error {
		return w.onNode(w.leader(), func(p *localcluster.Process) error { return w.kill(rnd, p) })
	}},
	{"kill a JobManager", 1, false, func(w *world, rnd *rand.Rand) error {
		return w.onNode(pick(rnd, w.c.JobManagers()), func(p *localcluster.Process) error { return w.kill(rnd, p) })
	}},
	{"kill everything", 1, false, killEverything},
	{"freeze a TaskManager", 2, false, func(w *world, rnd *rand.Rand) error {
		return w.onNode(pick(rnd, w.c.TaskManagers()), func(p *localcluster.Process) error {
			freeze(rnd, p.PID(), 8*time.Second)
			return nil
		})
	}},
	{"freeze a worker", 2, false, func(w *world, rnd *rand.Rand) error {
		if pid, _ := w.worker(rnd); pid != 0 {
			freeze(rnd, pid, 8*time.Second)
		}
		return nil
	}},
	{"freeze a worker until it is replaced", 1, false, freezeUntilReplaced},
	{"freeze the leading JobManager", 1, false, func(w *world, rnd *rand.Rand) error {
		return w.onNode(w.leader(), func(p *localcluster.Process) error {
			freeze(rnd, p.PID(), 12*time.Second)
			return nil
		})
	}},

	{"kill the leading JobManager, nothing else", 1, true, func(w *world, rnd *rand.Rand) (err error) {
		w.unnoticed(func() {
			if p := w.leader(); p != nil {
				err = w.kill(rnd, p)
			}
		})
		return err
	}},
	{"freeze the leading JobManager, nothing else", 1, true, func(w *world, rnd *rand.Rand) error {
		w.unnoticed(func() {
			if p := w.leader(); p != nil {
				freeze(rnd, p.PID(), 12*time.Second)
			}
		})
		return nil
	}},
	{"isolate the leading JobManager, nothing else", 1, true, func(w *world, rnd *rand.Rand) error {
		w.unnoticed(func() {
			if p := w.leader(); p != nil {
				w.trouble(rnd, harness.Trouble{A: p.ID}, 12*time.Second)
			}
		})
		return nil
	}},
	{"isolate a JobManager, nothing else", 1, true, func(w *world, rnd *rand.Rand) error {
		w.unnoticed(func() { w.trouble(rnd, harness.Trouble{A: pick(rnd, w.c.JobManagers()).ID}, 12*time.Second) })
		return nil
	}},

	{"isolate a node", 2, false, func(w *world, rnd *rand.Rand) error {
		p := pick(rnd, w.nodes())
		w.note("    %s", p.ID)
		w.trouble(rnd, harness.Trouble{A: p.ID}, 10*time.Second)
		return nil
	}},
	{"silence between two", 3, false, func(w *world, rnd *rand.Rand) error {
		w.trouble(rnd, harness.Trouble{A: w.party(rnd), B: w.party(rnd)}, 8*time.Second)
		return nil
	}},
	{"no connections between two", 3, false, func(w *world, rnd *rand.Rand) error {
		w.trouble(rnd, harness.Trouble{A: w.party(rnd), B: w.party(rnd), Refuse: true}, 5*time.Second)
		return nil
	}},
	{"broken connections between two", 2, false, func(w *world, rnd *rand.Rand) error {
		a, b := w.party(rnd), w.party(rnd)
		w.note("    %s and %s", a, b)
		w.network.Break(a, b)
		return nil
	}},
	{"slow connections between two", 2, false, func(w *world, rnd *rand.Rand) error {
		w.trouble(rnd, harness.Trouble{A: w.party(rnd), B: w.party(rnd), Delay: upTo(rnd, 300*time.Millisecond)}, 5*time.Second)
		return nil
	}},
	{"slow network", 1, false, func(w *world, rnd *rand.Rand) error {
		w.trouble(rnd, harness.Trouble{Delay: upTo(rnd, 100*time.Millisecond)}, 5*time.Second)
		return nil
	}},

	{"slow broker", 2, false, func(w *world, rnd *rand.Rand) error {
		w.trouble(rnd, harness.Trouble{A: harness.BrokerParty, Delay: upTo(rnd, 300*time.Millisecond)}, 5*time.Second)
		return nil
	}},
	{"cut the broker off", 2, false, func(w *world, rnd *rand.Rand) error {
		w.trouble(rnd, harness.Trouble{A: harness.BrokerParty, Refuse: true}, 4*time.Second)
		return nil
	}},
	{"silence the broker", 1, false, func(w *world, rnd *rand.Rand) error {
		w.trouble(rnd, harness.Trouble{A: harness.BrokerParty}, 6*time.Second)
		return nil
	}},
	{"break the broker's connections", 2, false, func(w *world, _ *rand.Rand) error {
		w.network.Break(harness.BrokerParty, "")
		return nil
	}},
	{"freeze the broker", 1, false, func(w *world, rnd *rand.Rand) error {
		return w.onBroker(func() error {
			err := w.broker.Pause()
			last(upTo(rnd, 5*time.Second))
			return errors.Join(err, w.broker.Resume())
		})
	}},
	{"kill the broker", 1, false, func(w *world, _ *rand.Rand) error {
		return w.onBroker(func() (err error) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			w.quietly(func() { err = errors.Join(w.broker.Kill(), w.broker.Restart(ctx)) })
			return err
		})
	}},

	{"full disk", 2, false, fullDisk},
	{"slow storage", 1, false, slowStorage},
	{"fault point", 6, false, atPoint},
	{"end a job and go on from there", 4, false, func(w *world, rnd *rand.Rand) error { return pick(rnd, w.lives).succeed(rnd) }},
}

// next draws a fault by its weight.
func next(rnd *rand.Rand, alone bool) fault {
	total := 0
	for _, f := range faults {
		if alone || !f.alone {
			total += f.weight
		}
	}
	n := rnd.IntN(total)
	for _, f := range faults {
		if alone || !f.alone {
			if n -= f.weight; n < 0 {
				return f
			}
		}
	}
	panic("unreachable")
}

// onNode lets something happen to a node, unless something happens to it already.
func (w *world) onNode(p *localcluster.Process, do func(*localcluster.Process) error) error {
	if p == nil {
		return nil
	}
	release, ok := w.claim(p.ID)
	if !ok {
		return nil
	}
	defer release()
	w.note("    %s", p.ID)
	return do(p)
}

func (w *world) onBroker(do func() error) error {
	release, ok := w.claim(harness.BrokerParty)
	if !ok {
		return nil
	}
	defer release()
	return do()
}

func (w *world) trouble(rnd *rand.Rand, t harness.Trouble, limit time.Duration) {
	w.note("    %+v", t)
	end := w.network.Trouble(t)
	last(upTo(rnd, limit))
	end()
}

func (w *world) party(rnd *rand.Rand) string {
	return pick(rnd, append(ids(w.nodes()), harness.BrokerParty, harness.BrokerParty))
}

func killEverything(w *world, _ *rand.Rand) error {
	all := w.nodes()
	release, ok := w.claim(ids(all)...)
	if !ok {
		return nil
	}
	defer release()
	var errs []error
	for _, p := range all {
		if err := p.Kill(); err != nil && p.Running() {
			errs = append(errs, err)
		}
	}
	for _, p := range all {
		errs = append(errs, p.Start())
	}
	return errors.Join(errs...)
}

// freezeUntilReplaced stops a worker together with its TaskManager, waits until the cluster has given them up, and lets both wake.
func freezeUntilReplaced(w *world, rnd *rand.Rand) error {
	pid, tm := w.worker(rnd)
	for _, p := range w.c.TaskManagers() {
		if p.ID != tm || pid == 0 {
			continue
		}
		return w.onNode(p, func(p *localcluster.Process) error {
			_ = syscall.Kill(pid, syscall.SIGSTOP) // both may have ended meanwhile
			_ = p.Signal(syscall.SIGSTOP)
			last(7*time.Second + upTo(rnd, 5*time.Second))
			_ = syscall.Kill(pid, syscall.SIGCONT)
			last(upTo(rnd, 300*time.Millisecond)) // before it is killed
			_ = p.Signal(syscall.SIGCONT)
			return nil
		})
	}
	return nil
}

// fullDisk takes all space from checkpoint storage, or from a node's own directory.
func fullDisk(w *world, rnd *rand.Rand) error {
	if len(w.disks) == 0 {
		w.note("    skipped: small file systems cannot be mounted")
		return nil
	}
	disk := pick(rnd, w.disks)
	release, ok := w.claim(disk)
	if !ok {
		return nil
	}
	defer release()
	w.note("    %s", filepath.Base(disk))
	w.excused()
	name := filepath.Join(disk, "somebody-elses-file")
	f, err := os.Create(name)
	if err != nil {
		return nil // full of something else
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4 << 10} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	last(upTo(rnd, 5*time.Second))
	w.excused()
	return os.Remove(name)
}

// slowStorage delays everything that is written to checkpoint storage.
func slowStorage(w *world, rnd *rand.Rand) error {
	nodes := w.nodes()
	release, ok := w.claim(string(faultpoint.PutDue))
	if !ok {
		return nil
	}
	defer release()
	action := "delay:" + upTo(rnd, 3*time.Second).String()
	w.note("    %s", action)
	for _, p := range nodes {
		w.c.Arm(p, faultpoint.PutDue, action)
	}
	last(upTo(rnd, 8*time.Second))
	for _, p := range nodes {
		w.c.Disarm(p, faultpoint.PutDue)
	}
	return nil
}

// atPoint lets whoever comes by one of the fault points die, freeze, hang, be slow or go on with an error.
func atPoint(w *world, rnd *rand.Rand) error {
	point := faultpoint.Point(pick(rnd, w.points))
	role, nodes := "worker", w.c.TaskManagers()
	switch {
	case strings.HasPrefix(string(point), "jm."):
		role, nodes = "JobManager", w.c.JobManagers()
	case strings.HasPrefix(string(point), "tm."):
		role = "TaskManager"
	case strings.HasPrefix(string(point), "storage."):
		role, nodes = "node", pick(rnd, [][]*localcluster.Process{w.c.TaskManagers(), w.c.JobManagers()})
	}
	release, ok := w.claim(append(ids(nodes), string(point))...)
	if !ok {
		return nil
	}
	defer release()
	action := pick(rnd, []string{"kill", "kill", "stop", "hang", "error", "delay:" + upTo(rnd, 3*time.Second).String()})
	if nth := 1 + rnd.IntN(4); rnd.IntN(2) == 0 {
		action += fmt.Sprintf("@%d", nth)
	}
	w.note("    %s at %s: %s", role, point, action)
	w.excused()
	for _, p := range nodes {
		w.c.Arm(p, point, action)
	}
	defer func() {
		for _, p := range nodes {
			w.c.Disarm(p, point)
		}
	}()
	deadline := time.Now().Add(6 * time.Second)
	for time.Now().Before(deadline) && !w.anyFired(nodes, point) {
		last(50 * time.Millisecond)
	}
	last(upTo(rnd, 6*time.Second))
	var errs []error
	for _, p := range nodes {
		if !w.c.Fired(p, point) {
			continue
		}
		w.note("    %s was there", p.ID)
		for _, pid := range append(harness.Workers(p), p.PID()) {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
		switch {
		case !p.Running():
			errs = append(errs, p.Start())
		case !strings.HasPrefix(action, "hang"):
		case role == "worker":
			for _, pid := range harness.Workers(p) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		default:
			errs = append(errs, w.kill(rnd, p))
		}
	}
	w.excused()
	return errors.Join(errs...)
}

func (w *world) anyFired(nodes []*localcluster.Process, point faultpoint.Point) bool {
	for _, p := range nodes {
		if w.c.Fired(p, point) {
			return true
		}
	}
	return false
}
