package robustness_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/jobmanager"
	"github.com/weir-stream/weir/taskmanager"
	"github.com/weir-stream/weir/test/harness"
)

const (
	defaultDuration = 30 * time.Second
	// longRun is the duration from which there are several windows, and time for the checks that take some.
	longRun = 90 * time.Second
	// longFault is what a fault may take without being mentioned.
	longFault = 10 * time.Second
	rate      = 600 // records per second of each job
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// settings reads how long to run and the seed from the environment.
func settings(t *testing.T) (time.Duration, uint64) {
	t.Helper()
	d, err := time.ParseDuration(cmp.Or(os.Getenv("WEIR_ROBUSTNESS_DURATION"), defaultDuration.String()))
	require.NoError(t, err)
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("WEIR_ROBUSTNESS_SEED"), "0"), 10, 64)
	require.NoError(t, err)
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	return d, seed
}

func TestRobustness(t *testing.T) {
	duration, seed := settings(t)
	tls := seed%2 == 1
	t.Logf("seed %d, %s, TLS %v: repeat with make test-robustness DURATION=%s SEED=%d", seed, duration, tls, duration, seed)
	dir := runDirectory(t, seed)
	disks := smallDisks(t, dir)
	network := harness.NewNetwork(t, 3)
	broker := kafkatest.StartFor(t, kafkatest.Config{Advertise: network.Broker(), Properties: map[string]string{
		// A broker that is frozen for longer than its session has no leaders for a moment when it is back, and takes a transaction that is
		// to be committed then for one of deleted partitions: it tells that it is committed, and leaves it open in each of them for ever.
		"broker.session.timeout.ms": "9000",
	}})
	network.SetBroker(broker.Listen())
	t.Cleanup(func() {
		if t.Failed() {
			_ = os.WriteFile(filepath.Join(dir, "broker.log"), []byte(broker.LogTail(20000)), 0o644)
		}
	})
	c := harness.StartOnWithFaultPoints(t, localcluster.Config{
		Dir: dir, JobManagers: 3, TaskManagers: 3, Slots: 5, TLS: tls,
		ConfigureJobManager:  func(cfg *jobmanager.Config) { network.Configure(cfg) },
		ConfigureTaskManager: func(cfg *taskmanager.Config) { network.ConfigureTaskManager(cfg) },
	}, broker)
	network.Of(c)
	points, err := knownPoints()
	require.NoError(t, err)

	rnd := rand.New(rand.NewPCG(seed, 0))
	begin, count := time.Now(), 0
	for n := 1; time.Since(begin) < duration; n++ {
		length, jobs := duration, 3
		if duration >= longRun {
			length, jobs = min(45*time.Second+upTo(rnd, 45*time.Second), max(20*time.Second, duration-time.Since(begin))), 2+rnd.IntN(2)
		}
		ok := t.Run(fmt.Sprintf("window-%d", n), func(t *testing.T) {
			w := &world{
				t: t, c: c.For(t), broker: broker, network: network, disks: disks, points: points, clients: []string{"native", "confluent"},
				begin: time.Now(), busy: make(map[string]bool),
			}
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("seed %d: before the failure\n%s", seed, strings.Join(w.past, "\n"))
				}
			})
			count += w.live(rnd, length, jobs, duration >= longRun)
		})
		if !ok {
			t.Fatalf("seed %d: failed in window %d, %s after the start", seed, n, time.Since(begin).Round(time.Second))
		}
	}
	t.Logf("seed %d: %d faults: nothing lost, nothing repeated, nothing left", seed, count)
}

// live lets jobs run under faults for a time, and then checks everything that they leave.
func (w *world) live(rnd *rand.Rand, length time.Duration, jobs int, thorough bool) (count int) {
	for _, s := range rnd.Perm(len(shapes))[:jobs] {
		w.lives = append(w.lives, w.bear(rnd, shapes[s], length))
	}
	begin := time.Now()
	for time.Since(begin) < length {
		last(upTo(rnd, 2*time.Second))
		count += w.step(rnd)
	}
	w.c.WaitWhole(time.Minute)
	if thorough {
		for _, l := range w.lives {
			w.requireTidyWhileRunning(l)
		}
	}
	var results []string
	for _, l := range w.lives {
		l.input.settle(2 * time.Minute)
		job := w.c.WaitState(l.id, "RUNNING", time.Minute)
		results = append(results, fmt.Sprintf("%s restarted %s times", l, cmp.Or(job.Restarts, "0")))
	}
	for _, l := range w.lives {
		verb, state := "cancel", "JOB_STATE_CANCELED"
		if rnd.IntN(2) == 0 {
			verb, state = "stop", "JOB_STATE_STOPPED"
		}
		w.c.MustWeir(verb, l.id)
		job := w.c.Job(l.id)
		require.Equal(w.t, state, job.State)
		require.Empty(w.t, job.Unsettled)
	}
	w.requireNothingOpen()
	for _, l := range w.lives {
		w.requireTidy(l.id)
		require.NoError(w.t, l.input.problem(), "after the end")
		for _, topic := range l.input.topics() {
			require.NoError(w.t, w.broker.DeleteTopic(context.Background(), topic))
		}
	}
	w.note("right: %d faults, %s", count, strings.Join(results, ", "))
	return count
}

// step lets one fault happen, or several at once, and looks at the output.
func (w *world) step(rnd *rand.Rand) int {
	drawn := []fault{next(rnd, true)}
	for n := rnd.IntN(10); n >= 5 && len(drawn) < 3 && !drawn[0].alone; n -= 3 {
		drawn = append(drawn, next(rnd, false))
	}
	errs := make(chan error, len(drawn))
	var wg sync.WaitGroup
	for _, f := range drawn {
		w.note("%s", f.name)
		do := func(rnd *rand.Rand) {
			begin := time.Now()
			if err := f.do(w, rnd); err != nil {
				errs <- fmt.Errorf("%s: %w", f.name, err)
			}
			if d := time.Since(begin); d > longFault {
				w.note("%s took %s", f.name, d.Round(100*time.Millisecond))
			}
		}
		own := rand.New(rand.NewPCG(rnd.Uint64(), 0))
		if f.alone {
			do(own)
		} else {
			wg.Go(func() { do(own) })
		}
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(w.t, err)
	}
	w.revive()
	for _, l := range w.lives {
		require.NoError(w.t, l.input.problem(), l.String())
	}
	return len(drawn)
}

// requireNothingOpen checks that ended jobs have left no transaction, neither in their output nor at the coordinator.
func (w *world) requireNothingOpen() {
	for _, l := range w.lives {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		err := w.broker.WaitNoOpenTransactions(ctx, l.input.output())
		cancel()
		require.NoError(w.t, err, l.String())
	}
	harness.Eventually(w.t, 20*time.Second, "no transaction at the broker", func() error {
		states, err := w.broker.TransactionalIDs(context.Background(), "")
		if err != nil {
			return err
		}
		for id, state := range states {
			switch state {
			case "Empty", "CompleteCommit", "CompleteAbort", "Dead":
			default:
				return fmt.Errorf("%s is in state %s", id, state)
			}
		}
		return nil
	})
}

// runDirectory returns the directory of the run. It is removed at the end; what nodes have logged stays after a failure.
func runDirectory(t *testing.T, seed uint64) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-robustness-")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			kept := filepath.Join(cmp.Or(os.Getenv("WEIR_ROBUSTNESS_LOGS"), os.TempDir()), fmt.Sprintf("weir-robustness-seed-%d-%d", seed, os.Getpid()))
			if err := keepLogs(dir, kept); err != nil {
				t.Logf("logs are not kept: %v", err)
			} else {
				t.Logf("seed %d: logs are in %s", seed, kept)
			}
		}
		_ = exec.Command("umount", "-l", "-R", dir).Run()
		_ = os.RemoveAll(dir)
	})
	return dir
}

// keepLogs copies logs and configurations, and lists all files.
func keepLogs(dir, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	script := `cd "$0" && find . -type f -printf '%p %s %t\n' >"$1/files" &&
		find . \( -name '*.log' -o -name '*.yaml' \) -print0 | xargs -0 cp --parents -t "$1"`
	if out, err := exec.Command("sh", "-c", script, dir, to).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// smallDisks mounts file systems that can be filled: checkpoint storage and the nodes' own directories.
func smallDisks(t *testing.T, dir string) []string {
	t.Helper()
	var disks []string
	for _, name := range []string{"storage", "tm1", "tm2", "tm3", "jm1", "jm2", "jm3"} {
		disk, megabytes := filepath.Join(dir, name), 384
		if strings.HasPrefix(name, "jm") {
			megabytes = 64
		}
		require.NoError(t, os.MkdirAll(disk, 0o755))
		if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
			t.Logf("no disk will be full: mounting small file systems takes the rights of root: %v", err)
			return nil
		}
		t.Cleanup(func() { _ = syscall.Unmount(disk, 2) }) // MNT_DETACH
		disks = append(disks, disk)
	}
	return disks
}
