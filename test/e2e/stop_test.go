package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// answered runs a command that must have a definite answer in time: done, or refused.
func answered(t *testing.T, c *harness.Cluster, args ...string) harness.Result {
	t.Helper()
	begin := time.Now()
	r := c.Weir(args...)
	t.Logf("%5.1fs  weir %s: %d %s%s", time.Since(begin).Seconds(), strings.Join(args, " "), r.Code, strings.TrimSpace(r.Stdout), strings.TrimSpace(r.Stderr))
	require.Less(t, time.Since(begin), time.Minute, "weir %v", args)
	require.Contains(t, []int{0, 1}, r.Code, "weir %v: no definite answer: %s%s", args, r.Stdout, r.Stderr)
	if r.Code != 0 {
		require.NotEmpty(t, r.Stderr)
	}
	return r
}

// feed writes numbers from next on until it is stopped, with records that take a while among them, so that checkpoints take a while too.
type feed struct {
	stop context.CancelFunc
	done chan struct{}
	last int
}

func startFeed(t *testing.T, c *harness.Cluster, topic string, next int) *feed {
	return startFeedOf(t, c, topic, next, 600*time.Millisecond)
}

// startFeedOf writes 20 numbers after each pause.
func startFeedOf(t *testing.T, c *harness.Cluster, topic string, next int, pause time.Duration) *feed {
	ctx, cancel := context.WithCancel(t.Context())
	f := &feed{stop: cancel, done: make(chan struct{}), last: next - 1}
	go func() {
		defer close(f.done)
		for ctx.Err() == nil {
			records := harness.Numbered(topic, 2, f.last+1, f.last+20)
			records[0].Key = []byte("slow")
			if err := c.Broker.Produce(context.WithoutCancel(ctx), records...); err != nil {
				return
			}
			f.last += 20
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}()
	t.Cleanup(func() { f.end() })
	return f
}

// end returns the last number written.
func (f *feed) end() int {
	f.stop()
	<-f.done
	return f.last
}

// numberOr returns the number that a variable of the environment holds, or another one without. The robustness suite sets larger ones.
func numberOr(t *testing.T, name, otherwise string) int {
	t.Helper()
	n, err := strconv.Atoi(envOr(name, otherwise))
	require.NoError(t, err, name)
	return n
}

// TestStopsInTheMiddleOfCheckpoints: stops asked for twice, with a cancel behind them, at any moment of a checkpoint.
func TestStopsInTheMiddleOfCheckpoints(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 2})
	in, out := c.Topic(2, nil), c.Topic(2, nil)
	job := []string{"--shape", "slow", "--delay", "400ms", "--in", in, "--out", out, "--interval", "500ms"}
	rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	dir := "file://" + filepath.Join(c.Dir, "savepoints")
	from, next := []string(nil), 1
	for round := range numberOr(t, "WEIR_ROUNDS", "3") {
		id := c.Submit(append([]string{"--name", fmt.Sprintf("round-%d", round)}, from...), job...)
		c.WaitState(id, "RUNNING", 20*time.Second)
		f := startFeed(t, c, in, next)
		time.Sleep(500*time.Millisecond + time.Duration(rnd.Int64N(int64(1500*time.Millisecond))))
		var results [2]harness.Result
		var both sync.WaitGroup
		for i := range results {
			both.Go(func() { results[i] = answered(t, c, "stop", id, "--savepoint", dir) })
		}
		both.Wait()
		next = f.end() + 1
		v := c.Job(id)
		require.Equal(t, "JOB_STATE_STOPPED", v.State)
		require.NotEmpty(t, v.Savepoint)
		for _, r := range results {
			if r.Code == 0 {
				require.Equal(t, v.Savepoint, strings.TrimSpace(r.Stdout), "one savepoint")
			} else {
				require.Regexp(t, "already stopping|is going to be stopped|job has ended", r.Stderr)
			}
		}
		require.True(t, results[0].Code == 0 || results[1].Code == 0, "one of them stopped it")
		require.NoError(t, c.Broker.WaitNoOpenTransactions(t.Context(), out))
		from = []string{"--from", v.Savepoint}
	}
	// Where the last round stopped the next one goes on: nothing is missing, nothing came twice.
	id := c.Submit(append([]string{"--name", "last"}, from...), job...)
	harness.RequireNumbers(t, c.AwaitCommitted(out, next-1, 40*time.Second), 1, next-1)

	// A stop with a cancel 100 ms behind it: whichever counts, both answers agree with the outcome.
	f := startFeed(t, c, in, next)
	time.Sleep(time.Second)
	var stop, cancel harness.Result
	var both sync.WaitGroup
	both.Go(func() { stop = answered(t, c, "stop", id, "--savepoint", dir) })
	time.Sleep(100 * time.Millisecond)
	both.Go(func() { cancel = answered(t, c, "cancel", id) })
	both.Wait()
	f.end()
	switch v := c.Job(id); v.State {
	case "JOB_STATE_CANCELED":
		require.Zero(t, cancel.Code)
		require.Equal(t, 1, stop.Code)
		require.Contains(t, stop.Stderr, "canceled")
	case "JOB_STATE_STOPPED":
		require.Zero(t, stop.Code)
		require.Equal(t, v.Savepoint, strings.TrimSpace(stop.Stdout))
		require.Contains(t, cancel.Stderr, "job has ended")
	default:
		t.Fatalf("the job is %s", v.State)
	}
	require.NoError(t, c.Broker.WaitNoOpenTransactions(t.Context(), out))
	requireNoRepeats(t, c.Committed(out))
}

func requireNoRepeats(t *testing.T, records []*kgo.Record) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range records {
		require.False(t, seen[string(r.Value)], "%s came twice", r.Value)
		seen[string(r.Value)] = true
	}
}

func TestSavepointsThatCannotBe(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 1})
	in, out := c.Topic(2, nil), c.Topic(2, nil)
	id := c.Submit(nil, "--shape", "slow", "--delay", "200ms", "--in", in, "--out", out, "--interval", "300ms")
	c.WaitState(id, "RUNNING", 20*time.Second)
	f := startFeed(t, c, in, 1)

	goesOn := func() {
		t.Helper()
		before := completed(t, c, id)
		harness.Eventually(t, 20*time.Second, "checkpoints to go on", func() error {
			if v := c.Job(id); v.State != "JOB_STATE_RUNNING" || completed(t, c, id) < before+2 {
				return fmt.Errorf("the job is %s, %s checkpoints completed, %d before", v.State, v.Completed, before)
			}
			return nil
		})
	}
	// A directory that cannot be one.
	file := filepath.Join(c.Dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	bad := []string{"file://" + filepath.Join(file, "sub")}
	// One that is there and takes nothing, where this user may make such.
	if full := filepath.Join(c.Dir, "full"); os.Mkdir(full, 0o755) == nil && syscall.Mount("none", full, "tmpfs", syscall.MS_RDONLY, "size=4k") == nil {
		t.Cleanup(func() { _ = syscall.Unmount(full, syscall.MNT_DETACH) })
		bad = append(bad, "file://"+full)
	}
	for _, dir := range bad {
		for _, args := range [][]string{{"savepoint", id, "--dir", dir}, {"stop", id, "--savepoint", dir}} {
			r := answered(t, c, args...)
			require.Equal(t, 1, r.Code, "weir %v", args)
			require.Contains(t, r.Stderr, strings.TrimPrefix(dir, "file://"))
			goesOn()
		}
	}
	for _, args := range [][]string{{"savepoint", "nobody"}, {"stop", "nobody"}, {"cancel", "nobody"}} {
		r := answered(t, c, args...)
		require.Equal(t, 1, r.Code)
		require.Contains(t, r.Stderr, `"nobody"`)
	}
	// While the job restarts a savepoint is refused or taken, and a stop waits for its checkpoint.
	kill := func() {
		t.Helper()
		pid, _, err := c.WorkerOf()
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	kill()
	if r := answered(t, c, "savepoint", id); r.Code != 0 {
		require.Contains(t, r.Stderr, "savepoint failed")
	}
	goesOn()
	kill()
	r := answered(t, c, "stop", id, "--savepoint", "file://"+filepath.Join(c.Dir, "savepoints"))
	require.Zero(t, r.Code, r.Stderr)
	require.Equal(t, "JOB_STATE_STOPPED", c.Job(id).State)
	last := f.end()
	again := c.Submit([]string{"--name", "again", "--from", strings.TrimSpace(r.Stdout)}, "--shape", "slow", "--in", in, "--out", out)
	harness.RequireNumbers(t, c.AwaitCommitted(out, last, 40*time.Second), 1, last)
	c.MustWeir("cancel", again)
	require.NoError(t, c.Broker.WaitNoOpenTransactions(t.Context(), out))
}
