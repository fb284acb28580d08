package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// exitWithin is how long any node may take to stop, whatever the brokers do.
const exitWithin = 30 * time.Second

// terminate sends SIGTERM and waits for the end.
func terminate(t *testing.T, p *localcluster.Process) (err error) {
	t.Helper()
	begin := time.Now()
	require.NoError(t, p.Signal(syscall.SIGTERM))
	done := make(chan error, 1)
	go func() { done <- p.Wait() }()
	select {
	case err = <-done:
	case <-time.After(exitWithin):
		require.NoError(t, p.Kill())
		t.Fatalf("%s did not stop within %s; its last output:\n%s", p.ID, exitWithin, p.LogTail(20))
	}
	t.Logf("%s stopped in %s: %v", p.ID, time.Since(begin).Round(time.Millisecond), err)
	for _, word := range []string{"panic:", "fatal error:", "SIGSEGV"} {
		require.NotContains(t, p.LogTail(200), word)
	}
	return err
}

// busy returns a TaskManager that runs a worker.
func busy(t *testing.T, c *harness.Cluster) *localcluster.Process {
	t.Helper()
	_, tm, err := c.WorkerOf()
	require.NoError(t, err)
	return tm
}

func TestTaskManagerThatStopsUnderLoadHandsOver(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 3, Slots: 1})
	run := c.StartOrders(80_000, 5000)
	id := c.Submit([]string{"-p", "2"}, run.Args("--interval", "500ms")...)
	run.AwaitOutput(time.Now(), 30*time.Second)
	pids := map[string]int{}
	for _, tm := range c.TaskManagers() {
		pids[tm.ID] = tm.PID()
	}
	gone := busy(t, c)
	stopped := time.Now()
	err := terminate(t, gone)
	require.NoError(t, err, "exit code 0")
	run.AwaitOutput(stopped.Add(time.Second), 10*time.Second)
	v := c.WaitState(id, "RUNNING", 10*time.Second)
	require.Equal(t, "2", v.Attempt, "one hand-over and no more")
	require.Contains(t, v.Failures[len(v.Failures)-1].Message, "shuts down", "not after the heartbeat timeout")
	for _, tm := range c.TaskManagers() {
		if tm != gone {
			require.True(t, tm.Running())
			require.Equal(t, pids[tm.ID], tm.PID())
		}
	}
	run.RequireExactlyOnce(90 * time.Second)
	c.MustWeir("cancel", id)
	require.NoError(t, c.Broker.WaitNoOpenTransactions(t.Context(), run.Topics.Totals))
}

func TestTaskManagerStopsAlthoughTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	broker := kafkatest.StartFor(t, kafkatest.Config{})
	c := harness.StartWith(t, localcluster.Config{JobManagers: 1, TaskManagers: 2, Slots: 1}, broker)
	in, out := c.Topic(1, nil), c.Topic(1, nil)
	last := 0
	for _, test := range []struct {
		name, interval string
		open           bool // a transaction is open when the broker goes away, and no checkpoint near
	}{
		{"a transaction open", "20s", true},
		{"commits in flight", "100ms", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			id := c.Submit([]string{"--name", strings.ReplaceAll(test.name, " ", "-")}, "--shape", "keyed", "--in", in, "--out", out, "--interval", test.interval,
				"--group", "g", "--start", map[bool]string{true: "earliest", false: "latest"}[last == 0])
			c.WaitState(id, "RUNNING", 20*time.Second)
			if test.open {
				harness.Eventually(t, 20*time.Second, "the first checkpoint", func() error {
					if completed(t, c, id) == 0 {
						return fmt.Errorf("there is none")
					}
					return nil
				})
			}
			feeding, stop := context.WithCancel(t.Context())
			fed := make(chan int, 1)
			go func() {
				n := last
				defer func() { fed <- n }()
				for feeding.Err() == nil {
					if err := broker.Produce(context.WithoutCancel(feeding), harness.Numbered(in, 1, n+1, n+50)...); err != nil {
						return
					}
					n += 50
				}
			}()
			harness.Eventually(t, 20*time.Second, "what shall be under way", func() error {
				open, err := broker.OpenTransactions(t.Context(), out)
				if err == nil && test.open && len(open) == 0 || !test.open && completed(t, c, id) < 5 {
					err = fmt.Errorf("not yet")
				}
				return err
			})
			require.NoError(t, broker.Pause())
			if test.open {
				explained(t, c, id, "external", 30*time.Second, "Kafka")
			} else {
				// A task waits for it in a commit or in the next checkpoint, which then is what is explained first.
				harness.Eventually(t, 30*time.Second, "an explanation that names the broker", func() error {
					text := c.MustWeir("explain", id)
					if flat := strings.Join(strings.Fields(text), " "); !strings.Contains(flat, "waits for Kafka at "+broker.Addr()) {
						return fmt.Errorf("it says:\n%s", text)
					}
					require.NotEmpty(t, c.Job(id).WaitingFor, "weir show says it in short")
					return nil
				})
			}
			tm := busy(t, c)
			err := terminate(t, tm)
			require.NoError(t, err)
			if test.open {
				require.Contains(t, tm.LogTail(30), "given_up", "the log says what was given up")
			}
			require.NoError(t, broker.Resume())
			stop()
			last = <-fed
			require.NoError(t, tm.Start())
			harness.Eventually(t, 2*time.Minute, "all of the output", func() error {
				records, err := broker.ReadCommitted(t.Context(), out) // a broker that has been away elects leaders first
				if err == nil && len(records) < last {
					err = fmt.Errorf("there are %d of %d records", len(records), last)
				}
				return err
			})
			harness.RequireNumbers(t, c.Committed(out), 1, last)
			c.MustWeir("cancel", id)
			require.NoError(t, broker.WaitNoOpenTransactions(t.Context(), out))
		})
	}
}

func TestSecondSignalEndsANodeAtOnce(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 1})
	in, out := c.Topic(1, nil), c.Topic(1, nil)
	c.Submit(nil, "--shape", "slow", "--delay", "1m", "--in", in, "--out", out)
	records := harness.Numbered(in, 1, 1, 1)
	records[0].Key = []byte("slow") // its task does not stop by itself
	c.Produce(records...)
	tm := busy(t, c)
	worker, _, err := c.WorkerOf()
	require.NoError(t, err)
	time.Sleep(2 * time.Second)
	require.NoError(t, tm.Signal(syscall.SIGTERM))
	time.Sleep(500 * time.Millisecond)
	require.True(t, tm.Running(), "it waits for its worker")
	begin := time.Now()
	require.NoError(t, tm.Signal(syscall.SIGTERM))
	require.ErrorContains(t, tm.Wait(), "exit status 130")
	require.Less(t, time.Since(begin), time.Second)
	harness.Eventually(t, 5*time.Second, "its worker to be gone with it", func() error {
		if syscall.Kill(worker, 0) == nil && !reaped(worker) {
			return fmt.Errorf("process %d is there", worker)
		}
		return nil
	})
}

// reaped reports whether a process is dead and only waits to be collected by its parent.
func reaped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// TestRollingRestarts stops and starts every node in order, one after the other, under load, several times: for the robustness suite.
func TestRollingRestarts(t *testing.T) {
	t.Parallel()
	if numberOr(t, "WEIR_ROUNDS", "0") == 0 {
		t.Skip("TestRollingRestartLosesNothing makes one round; for more set WEIR_ROUNDS")
	}
	c := harness.Start(t, localcluster.Config{JobManagers: 3, TaskManagers: 3, Slots: 1})
	n := numberOr(t, "WEIR_ROUNDS", "0")
	run := c.StartOrders(uint64(n)*120_000, 2500)
	id := c.Submit([]string{"-p", "2"}, run.Args("--interval", "500ms")...)
	run.AwaitOutput(time.Now(), 30*time.Second)
	for range n {
		leader, err := c.Leader(t.Context())
		require.NoError(t, err)
		before := c.WaitState(id, "RUNNING", 20*time.Second)
		for _, p := range append([]*localcluster.Process{leader}, c.JobManagers()...) { // the leading one twice
			begin := time.Now()
			err := terminate(t, p)
			require.NoError(t, err)
			run.AwaitOutput(begin, 15*time.Second)
			require.NoError(t, p.Start())
			c.WaitWhole(30 * time.Second)
		}
		require.Equal(t, before.Attempt, c.WaitState(id, "RUNNING", 20*time.Second).Attempt, "no task was restarted for a JobManager")
		for _, p := range c.TaskManagers() {
			begin := time.Now()
			err := terminate(t, p)
			require.NoError(t, err)
			run.AwaitOutput(begin.Add(time.Second), 15*time.Second)
			require.NoError(t, p.Start())
			c.WaitWhole(30 * time.Second)
		}
	}
	run.RequireExactlyOnce(2 * time.Minute)
	c.MustWeir("cancel", id)
	require.NoError(t, c.Broker.WaitNoOpenTransactions(t.Context(), run.Topics.Totals))
}

// TestJobRunByHandStopsInOrder runs a job binary without a cluster.
func TestJobRunByHandStopsInOrder(t *testing.T) {
	t.Parallel()
	bin, err := harness.Build()
	require.NoError(t, err)
	broker := kafkatest.Shared(t)
	in, out := broker.Topic(t, 1, nil), broker.Topic(t, 1, nil)
	dir := t.TempDir()
	begin := func() (*exec.Cmd, string) {
		log := filepath.Join(t.TempDir(), "log")
		f, err := os.Create(log)
		require.NoError(t, err)
		defer f.Close()
		cmd := exec.Command(bin.Job, "--shape", "keyed", "--brokers", broker.Addr(), "--in", in, "--out", out, "--interval", "1m")
		cmd.Env = append(os.Environ(), "WEIR_STATE_DIR="+dir)
		cmd.Stdout, cmd.Stderr = f, f
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		return cmd, log
	}
	last := 0
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		cmd, log := begin()
		harness.Eventually(t, 20*time.Second, "an open transaction", func() error {
			// What comes before the first checkpoint is committed with it.
			if err := broker.Produce(t.Context(), harness.Numbered(in, 1, last+1, last+100)...); err != nil {
				return err
			}
			last += 100
			open, err := broker.OpenTransactions(t.Context(), out)
			if err == nil && len(open) == 0 {
				err = fmt.Errorf("there is none")
			}
			return err
		})
		require.NoError(t, cmd.Process.Signal(signal))
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case err := <-done:
			text, _ := os.ReadFile(log)
			require.NoError(t, err, "%s", text)
		case <-time.After(exitWithin):
			t.Fatal("it does not stop")
		}
		require.NoError(t, broker.WaitNoOpenTransactions(t.Context(), out))
		records, err := broker.ReadCommitted(t.Context(), out)
		require.NoError(t, err)
		harness.RequireNumbers(t, records, 1, last) // a last checkpoint was taken and committed
	}
}
