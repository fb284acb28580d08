package robustness_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// world is what faults happen to, during one window.
type world struct {
	t       *testing.T
	c       *harness.Cluster
	broker  *kafkatest.Broker
	network *harness.Network
	lives   []*life
	disks   []string // mount points of small file systems
	clients []string // of producers, those that may be chosen
	points  []string // fault points of the executables
	begin   time.Time

	mu     sync.Mutex
	busy   map[string]bool // what a fault has to itself
	past   []string        // faults of this window
	excuse time.Time       // a process may end by itself before
}

// claim takes things that no other fault may touch meanwhile, all or none.
func (w *world) claim(names ...string) (release func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range names {
		if w.busy[n] {
			return nil, false
		}
	}
	for _, n := range names {
		w.busy[n] = true
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, n := range names {
			delete(w.busy, n)
		}
	}, true
}

// note remembers and prints what happens.
func (w *world) note(format string, args ...any) {
	line := fmt.Sprintf("%6.1fs ", time.Since(w.begin).Seconds()) + fmt.Sprintf(format, args...)
	w.mu.Lock()
	w.past = append(w.past, line)
	w.mu.Unlock()
	w.t.Log(line)
}

// pick returns one of several.
func pick[T any](rnd *rand.Rand, of []T) T { return of[rnd.IntN(len(of))] }

// upTo returns a random duration.
func upTo(rnd *rand.Rand, d time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(d))) }

// last lets trouble go on; it is the test's load, not a wait for a condition.
func last(d time.Duration) { time.Sleep(d) }

func (w *world) leader() *localcluster.Process {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	leader, err := w.c.WaitLeader(ctx)
	if err != nil {
		return nil // an election is going on; there will be other faults
	}
	return leader
}

func (w *world) nodes() []*localcluster.Process {
	return append(w.c.JobManagers(), w.c.TaskManagers()...)
}

func ids(ps []*localcluster.Process) []string {
	var out []string
	for _, p := range ps {
		out = append(out, p.ID)
	}
	return out
}

// kill ends a process that may have ended already, and starts it again a little later.
func (w *world) kill(rnd *rand.Rand, p *localcluster.Process) error {
	if err := p.Kill(); err != nil && p.Running() {
		return err
	}
	last(upTo(rnd, 2*time.Second))
	return p.Start()
}

func freeze(rnd *rand.Rand, pid int, limit time.Duration) {
	if syscall.Kill(pid, syscall.SIGSTOP) != nil {
		return // it has ended
	}
	last(upTo(rnd, limit))
	_ = syscall.Kill(pid, syscall.SIGCONT)
}

// worker returns the process id of a random worker, 0 when there is none.
func (w *world) worker(rnd *rand.Rand) (pid int, tm string) {
	by := w.c.WorkersByTaskManager()
	if len(by) == 0 {
		return 0, ""
	}
	var all []string
	for id := range by {
		all = append(all, id)
	}
	slices.Sort(all)
	tm = pick(rnd, all)
	return pick(rnd, by[tm]), tm
}

// quietly calls do while no input of any job is on its way to the broker.
func (w *world) quietly(do func()) {
	for _, l := range w.lives {
		inner := do
		do = func() { l.input.whileQuiet(inner) }
	}
	do()
}

// mostStalled is how long the machine may stand still without being an excuse for a heartbeat that comes late.
const mostStalled = 300 * time.Millisecond

// unnoticed lets a fault happen to a minority of the JobManagers while nothing else is wrong, and requires that no task notices.
func (w *world) unnoticed(do func()) {
	before := w.calm()
	workers := w.c.WorkersByTaskManager()
	stalled := harness.WatchStalls(w.t)
	do()
	after := w.calm()
	if d := stalled(); d > mostStalled {
		w.note("    whether it went unnoticed is not judged: the machine stood still for %s", d.Round(time.Millisecond))
		return
	}
	for i, b := range before {
		require.Equal(w.t, b.Attempt, after[i].Attempt, "a fault of a JobManager alone restarted job %s: %v", b.ID, after[i].Failures)
	}
	require.Equal(w.t, workers, w.c.WorkersByTaskManager(), "worker processes")
}

// calm waits until every node is there and every job has completed a checkpoint that began now.
func (w *world) calm() []harness.JobView {
	w.c.WaitWhole(time.Minute)
	var out []harness.JobView
	now := time.Now()
	for _, l := range w.lives {
		harness.Eventually(w.t, time.Minute, "a checkpoint of "+l.String()+" begun now", func() error {
			if last := l.checkpoints.Last(); !last.Triggered.After(now) && !l.input.finished() {
				return fmt.Errorf("the last one is %d, begun %s before", last.ID, now.Sub(last.Triggered))
			}
			return nil
		})
		out = append(out, w.c.WaitState(l.id, "RUNNING", time.Minute))
	}
	return out
}

// ask runs a change until its outcome is known, always with the same request id.
func (w *world) ask(request string, args ...string) (harness.Result, error) {
	if at := slices.Index(args, "--"); at >= 0 {
		args = slices.Concat(args[:at], []string{"--request-id", request}, args[at:])
	} else {
		args = append(args, "--request-id", request)
	}
	deadline := time.Now().Add(4 * time.Minute)
	for {
		r := w.c.Weir(args...)
		switch {
		case r.Code == 3, r.Code == 4 && args[0] != "submit", r.Code < 0:
		case r.Code == 1 && strings.Contains(r.Stderr, "no leading JobManager"):
		default:
			return r, nil
		}
		if time.Now().After(deadline) {
			return r, fmt.Errorf("weir %v has had no definite answer for long: %d %s%s", args, r.Code, r.Stdout, r.Stderr)
		}
	}
}

// revive starts what has ended by itself, which only a full disk or an injected error excuses.
func (w *world) revive() {
	for _, p := range w.nodes() {
		if p.Running() {
			continue
		}
		w.mu.Lock()
		excused := time.Now().Before(w.excuse)
		w.mu.Unlock()
		if !excused {
			w.t.Fatalf("%s has ended by itself: %v\n%s", p.ID, p.Wait(), p.LogTail(30))
		}
		w.note("%s has ended by itself, and is started again", p.ID)
		require.NoError(w.t, p.Start())
	}
}

// excused lets processes end by themselves for a while.
func (w *world) excused() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.excuse = time.Now().Add(30 * time.Second)
}

// knownPoints reads the names of the fault points from their source.
func knownPoints() ([]string, error) {
	text, err := os.ReadFile("../../internal/faultpoint/points.go")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range regexp.MustCompile(`Point = "([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
		if !strings.HasPrefix(m[1], "local.") { // of programs that run their job by themselves
			out = append(out, m[1])
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no fault points are found")
	}
	return out, nil
}
