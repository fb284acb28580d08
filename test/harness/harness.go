package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness/wallclock"
)

// Binaries are the executables that the tests run.
type Binaries struct {
	Weir string
	// Job is test/harness/job: the jobs of the tests, with both Kafka clients.
	Job string
}

// Build builds the executables once per test binary; later calls return the same ones.
var Build = sync.OnceValues(func() (Binaries, error) { return build() })

// BuildWithWallclock is Build for executables whose wall clock a test can set; see package wallclock.
var BuildWithWallclock = sync.OnceValues(func() (Binaries, error) {
	dir, err := os.MkdirTemp("", "weir-test-overlay-")
	if err != nil {
		return Binaries{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := wallclock.Overlay(dir)
	if err != nil {
		return Binaries{}, err
	}
	return build("-overlay", overlay)
})

func build(flags ...string) (Binaries, error) {
	dir, err := os.MkdirTemp("", "weir-test-bin-")
	if err != nil {
		return Binaries{}, err
	}
	b := Binaries{Weir: filepath.Join(dir, "weir"), Job: filepath.Join(dir, "job")}
	for out, pkg := range map[string]string{b.Weir: "cmd/weir", b.Job: "test/harness/job"} {
		args := append(append([]string{"build"}, flags...), "-o", out, "github.com/weir-stream/weir/"+pkg)
		if text, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return Binaries{}, fmt.Errorf("build %s: %w\n%s", pkg, err, text)
		}
	}
	return b, nil
}

// Cluster is a running cluster with its broker and command line.
type Cluster struct {
	*localcluster.Cluster
	t        testing.TB
	Binaries Binaries
	Broker   *kafkatest.Broker
	Dir      string
}

// Start starts a cluster of processes for one test. When the test fails, the end of each node's log is printed.
func Start(t testing.TB, cfg localcluster.Config) *Cluster {
	t.Helper()
	return StartWith(t, cfg, kafkatest.Shared(t))
}

// StartWith is Start with a broker of the test's own.
func StartWith(t testing.TB, cfg localcluster.Config, broker *kafkatest.Broker) *Cluster {
	t.Helper()
	bin, err := Build()
	require.NoError(t, err)
	return start(t, cfg, broker, bin)
}

// StartBinaries is StartWith for executables of the caller's choice.
func StartBinaries(t testing.TB, cfg localcluster.Config, broker *kafkatest.Broker, bin Binaries) *Cluster {
	t.Helper()
	return start(t, cfg, broker, bin)
}

func start(t testing.TB, cfg localcluster.Config, broker *kafkatest.Broker, bin Binaries) *Cluster {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	cfg.Binary = bin.Weir
	var err error
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := &Cluster{t: t, Binaries: bin, Broker: broker, Dir: cfg.Dir}
	c.Cluster, err = localcluster.Start(ctx, cfg)
	t.Cleanup(func() {
		if c.Cluster == nil {
			return
		}
		if t.Failed() {
			c.printLogs()
		}
		_ = c.Close()
	})
	if err != nil {
		t.Fatalf("start the cluster: %v", err)
	}
	return c
}

// For returns the cluster as one subtest uses it, which then fails alone.
func (c *Cluster) For(t testing.TB) *Cluster {
	of := *c
	of.t = t
	return &of
}

func (c *Cluster) printLogs() {
	for _, args := range [][]string{{"list", "--all"}, {"list", "-o", "json"}} {
		r := c.Weir(args...)
		c.t.Logf("---- weir %s\n%s%s", strings.Join(args, " "), r.Stdout, r.Stderr)
	}
	for _, p := range append(c.JobManagers(), c.TaskManagers()...) {
		c.t.Logf("---- %s (pid %d, running %v)\n%s", p.ID, p.PID(), p.Running(), p.LogTail(60))
	}
	logs, _ := filepath.Glob(filepath.Join(c.Dir, "tm*", "logs", "*", "*.log"))
	for _, l := range logs {
		b, _ := os.ReadFile(l)
		lines := strings.Split(string(b), "\n")
		c.t.Logf("---- %s\n%s", l, strings.Join(lines[max(0, len(lines)-30):], "\n"))
	}
}

// Result is what a command printed and how it ended.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Weir runs the command line against the cluster, whatever the outcome.
func (c *Cluster) Weir(args ...string) Result {
	c.t.Helper()
	return c.WeirWith(nil, args...)
}

// WeirWith is Weir with more environment variables, which override others.
func (c *Cluster) WeirWith(env []string, args ...string) Result {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Binaries.Weir, args...)
	cmd.Env = append(append(os.Environ(), c.Environ()...), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		c.t.Fatalf("weir %s: %v", strings.Join(args, " "), err)
	}
	return Result{Stdout: out.String(), Stderr: errs.String(), Code: cmd.ProcessState.ExitCode()}
}

// MustWeir runs the command line and fails the test when it exits non-zero; it returns standard output.
func (c *Cluster) MustWeir(args ...string) string {
	c.t.Helper()
	r := c.Weir(args...)
	if r.Code != 0 {
		c.t.Fatalf("weir %s: exit code %d\n%s%s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// Submit submits the test job with the given arguments and returns its id. flags are those of weir submit.
func (c *Cluster) Submit(flags []string, args ...string) string {
	c.t.Helper()
	all := append([]string{"submit"}, flags...)
	all = append(all, c.Binaries.Job, "--", "--brokers", c.Broker.Addr())
	return strings.TrimSpace(c.MustWeir(append(all, args...)...))
}

// JobView is the part of `weir show -o json` that the tests look at.
type JobView struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	State      string `json:"state"`
	Attempt    string `json:"attempt"`
	Restarts   string `json:"restarts"`
	WaitingFor string `json:"waitingFor"`
	Unsettled  string `json:"unsettled"`
	Completed  string `json:"completedCheckpoints"`
	Savepoint  string `json:"savepointPath"`
	Failures   []struct {
		Message    string `json:"message"`
		Task       string `json:"task"`
		OutputTail string `json:"outputTail"`
	} `json:"failures"`
	Tasks []struct {
		Vertex     string         `json:"vertex"`
		Subtask    int            `json:"subtask"`
		Host       string         `json:"host"`
		Statistics map[string]any `json:"statistics"`
	} `json:"tasks"`
}

// Job returns the job's view.
func (c *Cluster) Job(id string) JobView {
	c.t.Helper()
	var v JobView
	require.NoError(c.t, json.Unmarshal([]byte(c.MustWeir("show", id, "-o", "json")), &v))
	return v
}

// Eventually waits until check returns nil, and fails the test with its last error otherwise.
func Eventually(t testing.TB, timeout time.Duration, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s: %v", timeout, what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// WaitState waits until the job is in the state, given without its prefix, for example "RUNNING".
func (c *Cluster) WaitState(id, state string, timeout time.Duration) JobView {
	c.t.Helper()
	var v JobView
	Eventually(c.t, timeout, "job "+id+" to be "+state, func() error {
		v = c.Job(id)
		if v.State != "JOB_STATE_"+state {
			return fmt.Errorf("it is %s (waiting for %q, failures %v)", v.State, v.WaitingFor, v.Failures)
		}
		return nil
	})
	return v
}

// WaitWhole waits until every node runs and belongs to the cluster.
func (c *Cluster) WaitWhole(timeout time.Duration) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	require.NoError(c.t, c.Cluster.WaitWhole(ctx))
}

// Platform returns GOOS/GOARCH of this machine.
func Platform() string { return runtime.GOOS + "/" + runtime.GOARCH }
