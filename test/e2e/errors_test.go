package e2e_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/taskmanager"
	"github.com/weir-stream/weir/test/harness"
)

// refused runs `weir submit` with the job arguments and requires one clear error that holds every part, within 40 seconds, and no job
// left behind in a live state.
func refused(t *testing.T, c *harness.Cluster, flags, args []string, parts ...string) {
	t.Helper()
	begin := time.Now()
	r := c.Weir(append(append([]string{"submit"}, flags...), args...)...)
	require.NotZero(t, r.Code, "stdout %q stderr %q", r.Stdout, r.Stderr)
	require.Less(t, time.Since(begin), 40*time.Second)
	for _, part := range parts {
		require.Contains(t, r.Stderr, part)
	}
	for _, line := range strings.Split(c.MustWeir("list"), "\n") {
		for _, state := range []string{"CREATED", "DEPLOYING", "RUNNING", "RESTARTING", "SETTLING"} {
			require.NotContains(t, line, state, "a job was left behind")
		}
	}
}

func TestBadJobsAreRefusedWithOneClearError(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 1})
	in, out := c.Topic(1, nil), c.Topic(1, nil)
	job := c.Binaries.Job
	args := func(brokers, in, out string, more ...string) []string {
		return append([]string{job, "--", "--shape", "pass", "--brokers", brokers, "--in", in, "--out", out}, more...)
	}
	addr := c.Broker.Addr()

	t.Run("unknown broker", func(t *testing.T) {
		refused(t, c, nil, args("127.0.0.1:1", in, out), "127.0.0.1:1")
	})
	t.Run("broker address that does not resolve", func(t *testing.T) {
		refused(t, c, nil, args("nobody.invalid:9092", in, out), "nobody.invalid:9092")
	})
	t.Run("missing input topic", func(t *testing.T) {
		refused(t, c, nil, args(addr, "no-such-input", out), "no-such-input")
	})
	t.Run("missing output topic", func(t *testing.T) {
		refused(t, c, nil, args(addr, in, "no-such-output"), "no-such-output")
	})
	t.Run("transaction timeout above the broker's limit", func(t *testing.T) {
		refused(t, c, nil, args(addr, in, out, "--transaction-timeout", "2h"), "2h0m0s", "15m0s", "transaction.max.timeout.ms")
	})
	t.Run("transaction timeout below what recovery needs", func(t *testing.T) {
		refused(t, c, nil, args(addr, in, out, "--transaction-timeout", "10s"), "10s")
	})
	t.Run("negative transaction timeout", func(t *testing.T) {
		refused(t, c, nil, args(addr, in, out, "--transaction-timeout", "-1s"), "-1s")
	})
	t.Run("invalid graph, all errors at once", func(t *testing.T) {
		refused(t, c, nil, args(addr, in, out, "--shape", "badplan"), "twin", "impossible", "broker")
	})
	t.Run("unknown flag of the job", func(t *testing.T) {
		refused(t, c, nil, args(addr, in, out, "--no-such-flag"), "no-such-flag")
	})
	t.Run("not an executable", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "job")
		require.NoError(t, os.WriteFile(path, []byte("hello"), 0o755))
		refused(t, c, nil, []string{path}, path)
	})
	t.Run("an executable that is no job", func(t *testing.T) {
		path, err := exec.LookPath("true")
		require.NoError(t, err)
		refused(t, c, nil, []string{path}, "stream.Main")
	})
	t.Run("another architecture", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "job")
		cmd := exec.Command("go", "build", "-o", path, "github.com/weir-stream/weir/examples/wordcount")
		cmd.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", text)
		refused(t, c, nil, []string{path}, "arm64", harness.Platform())
	})
	t.Run("unknown savepoint", func(t *testing.T) {
		refused(t, c, []string{"--from", "file:///no/such/savepoint"}, args(addr, in, out), "/no/such/savepoint")
	})
	t.Run("missing file", func(t *testing.T) {
		refused(t, c, nil, []string{"/no/such/job"}, "/no/such/job")
	})
}

func TestTaskManagerThatCannotSeeTheStorageIsRefused(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, Slots: 1, ConfigureTaskManager: func(cfg *taskmanager.Config) {
		cfg.StorageURL = "file://" + filepath.Join(filepath.Dir(cfg.DataDir), "elsewhere")
	}})
	require.NoError(t, os.MkdirAll(filepath.Join(c.Dir, "elsewhere"), 0o755))
	tm, err := c.AddTaskManager()
	require.NoError(t, err)
	harness.Eventually(t, 20*time.Second, "the TaskManager to end", func() error {
		if tm.Running() {
			return errors.New(tm.LogTail(20))
		}
		return nil
	})
	require.Error(t, tm.Wait(), "exit code")
	for _, part := range []string{"elsewhere", "does not see the cluster's checkpoint storage"} {
		require.Contains(t, tm.LogTail(20), part)
	}
	require.Contains(t, c.MustWeir("members"), "jm1")
	require.NotContains(t, c.MustWeir("members"), "tm1")
}

type missingError struct{ part, text string }

func (e *missingError) Error() string { return e.part + " is not in: " + e.text }

func TestNodesRefuseAWrongConfiguration(t *testing.T) {
	t.Parallel()
	bin, err := harness.Build()
	require.NoError(t, err)
	run := func(t *testing.T, role, yaml string) (string, int) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "config.yaml")
		require.NoError(t, os.WriteFile(path, []byte(yaml), 0o644))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, bin.Weir, role, "--config", path)
		text, _ := cmd.CombinedOutput()
		require.NoError(t, ctx.Err(), "weir %s runs on\n%s", role, text)
		return string(text), cmd.ProcessState.ExitCode()
	}
	t.Run("unknown key, with its line", func(t *testing.T) {
		text, code := run(t, "jobmanager", "id: a\ndata_dir: "+t.TempDir()+"\nstorag_url: file:///tmp/x\n")
		require.NotZero(t, code)
		require.Contains(t, text, "storag_url")
		require.Contains(t, text, "3")
	})
	t.Run("all problems at once", func(t *testing.T) {
		text, code := run(t, "taskmanager", "slots: 0\nbind_host: 0.0.0.0\nstorage_url: nowhere\n")
		require.NotZero(t, code)
		for _, part := range []string{"slots", "bind_host", "storage_url"} {
			require.Contains(t, text, part)
		}
	})
	t.Run("storage of an unknown kind", func(t *testing.T) {
		text, code := run(t, "jobmanager", "id: a\ndata_dir: "+t.TempDir()+"\nstorage_url: ftp://host/x\nlisten: 127.0.0.1:0\nraft_listen: 127.0.0.1:0\nadmin_address: \"\"\n")
		require.NotZero(t, code)
		require.Contains(t, text, "ftp")
		require.Contains(t, text, "file")
	})
	t.Run("storage that cannot be written", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, nil, 0o644))
		text, code := run(t, "jobmanager", "id: a\ndata_dir: "+t.TempDir()+"\nstorage_url: file://"+file+"\nlisten: 127.0.0.1:0\nraft_listen: 127.0.0.1:0\nadmin_address: \"\"\n")
		require.NotZero(t, code)
		require.Contains(t, text, file)
	})
}

func TestDataDirectoryInUse(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 1})
	for _, args := range [][]string{
		{"jobmanager", "--config", filepath.Join(c.Dir, "jm1.yaml"), "--listen", "127.0.0.1:0", "--raft-listen", "127.0.0.1:0", "--admin-address", ""},
		{"taskmanager", "--config", filepath.Join(c.Dir, "tm1.yaml"), "--admin-address", ""},
	} {
		begin := time.Now()
		r := c.Weir(args...)
		require.NotZero(t, r.Code, "%v", args)
		require.Contains(t, r.Stderr, "in use", "%v", args)
		require.Less(t, time.Since(begin), 5*time.Second)
	}
}

// A checkpoint directory that cannot be written makes checkpoints fail with the reason, and the job go on when it can be written again.
func TestUnwritableCheckpointStorage(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Log("running as root: permissions bind nobody, so a file takes the place of the job's directory")
	}
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 1})
	in, out := c.Topic(1, nil), c.Topic(1, nil)
	id := c.Submit(nil, "--shape", "count", "--in", in, "--out", out, "--interval", "200ms", "--max-restarts", "3")
	c.WaitState(id, "RUNNING", 20*time.Second)
	c.Produce(harness.Numbered(in, 1, 1, 10)...)
	c.AwaitCommitted(out, 10, 20*time.Second)

	dirs, err := filepath.Glob(filepath.Join(c.Dir, "storage", "*", "jobs", id, "checkpoints"))
	require.NoError(t, err)
	require.Len(t, dirs, 1)
	require.NoError(t, os.Rename(dirs[0], dirs[0]+".away"))
	require.NoError(t, os.WriteFile(dirs[0], nil, 0o644))
	c.Produce(harness.Numbered(in, 1, 11, 20)...)
	harness.Eventually(t, 30*time.Second, "the failed checkpoint with its reason", func() error {
		text := c.MustWeir("checkpoints", id) + c.MustWeir("show", id)
		if !strings.Contains(text, "not a directory") {
			return &missingError{"the reason", text}
		}
		return nil
	})
	require.NoError(t, os.Remove(dirs[0]))
	require.NoError(t, os.Rename(dirs[0]+".away", dirs[0]))
	c.AwaitCommitted(out, 20, 60*time.Second)
	require.Len(t, c.Committed(out), 20)
}

func TestUndecodableRecords(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 4})
	feed := func(in string) {
		records := harness.Numbered(in, 1, 1, 10)
		records[4].Value = []byte("malformed")
		c.Produce(records...)
	}
	t.Run("fail", func(t *testing.T) {
		in, out := c.Topic(1, nil), c.Topic(1, nil)
		feed(in)
		id := c.Submit([]string{"--detach"}, "--shape", "pass", "--in", in, "--out", out, "--max-restarts", "1")
		v := c.WaitState(id, "FAILED", 40*time.Second)
		last := v.Failures[len(v.Failures)-1].Message
		for _, part := range []string{in, "offset 4", "malformed"} {
			require.Contains(t, last, part)
		}
		require.NoError(t, c.Broker.WaitNoOpenTransactions(t.Context(), out))
	})
	t.Run("skip", func(t *testing.T) {
		in, out := c.Topic(1, nil), c.Topic(1, nil)
		feed(in)
		id := c.Submit(nil, "--shape", "pass", "--in", in, "--out", out, "--policy", "skip")
		require.Len(t, c.AwaitCommitted(out, 9, 30*time.Second), 9)
		harness.Eventually(t, 10*time.Second, "the skipped record to be counted", func() error {
			for _, task := range c.Job(id).Tasks {
				if task.Statistics["skippedRecords"] == "1" {
					return nil
				}
			}
			return &missingError{"skippedRecords 1", c.MustWeir("show", id, "-o", "json")}
		})
		c.MustWeir("cancel", id)
	})
	t.Run("dead letter", func(t *testing.T) {
		in, out, dead := c.Topic(1, nil), c.Topic(1, nil), c.Topic(1, nil)
		feed(in)
		id := c.Submit(nil, "--shape", "pass", "--in", in, "--out", out, "--policy", "dead-letter", "--dead-letters", dead)
		require.Len(t, c.AwaitCommitted(out, 9, 30*time.Second), 9)
		require.NotEmpty(t, c.AwaitCommitted(dead, 1, 10*time.Second))
		c.MustWeir("cancel", id)
	})
}
