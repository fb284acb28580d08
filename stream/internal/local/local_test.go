package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-stream/weir/stream/internal/local"
)

const patience = 20 * time.Second

// TestMain also is the process that TestKilledProcess kills.
func TestMain(m *testing.M) {
	if out := os.Getenv("LOCAL_TEST_OUT"); out != "" {
		n, _ := strconv.Atoi(os.Getenv("LOCAL_TEST_N"))
		job := &testJob{name: "job", out: out, n: n, pace: time.Millisecond}
		if err := local.Run(context.Background(), local.Config{
			Plan: job.plan, Dir: os.Getenv("LOCAL_TEST_DIR"), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// committed returns how often each row is in the output.
func committed(t *testing.T, out string) map[string]int {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(out, "committed"))
	require.NoError(t, err)
	rows := make(map[string]int)
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(out, "committed", f.Name()))
		require.NoError(t, err)
		for _, row := range strings.Split(string(data), "\n") {
			rows[row]++
		}
	}
	return rows
}

// requireExact checks that the rows 0 to n of both subtasks are in the output, each as often as told, and nothing is left open.
func requireExact(t *testing.T, out string, n, times int) {
	t.Helper()
	rows := committed(t, out)
	for sub := range parallelism {
		for v := range n {
			row := fmt.Sprintf("%d:%d", sub, v)
			require.Equal(t, times, rows[row], "row %s", row)
			delete(rows, row)
		}
	}
	require.Empty(t, rows)
	open, err := os.ReadDir(filepath.Join(out, "prepared"))
	require.NoError(t, err)
	require.Empty(t, open)
}

// requireUnbroken checks that the output has no hole and nothing twice, and returns the number of rows of each subtask.
func requireUnbroken(t *testing.T, out string) (counts [parallelism]int) {
	t.Helper()
	rows := committed(t, out)
	for sub := range parallelism {
		for rows[fmt.Sprintf("%d:%d", sub, counts[sub])] == 1 {
			delete(rows, fmt.Sprintf("%d:%d", sub, counts[sub]))
			counts[sub]++
		}
	}
	require.Empty(t, rows)
	return counts
}

func newJob(t *testing.T) (*testJob, local.Config) {
	j := &testJob{name: "job", out: t.TempDir()}
	return j, local.Config{Plan: j.plan, Dir: filepath.Join(t.TempDir(), "state")}
}

func TestRunToTheEnd(t *testing.T) {
	j, cfg := newJob(t)
	j.n = 1000
	require.NoError(t, local.Run(t.Context(), cfg))
	requireExact(t, j.out, 1000, 1)
	storage, err := filepath.Glob(filepath.Join(cfg.Dir, "storage", "*"))
	require.NoError(t, err)
	require.Empty(t, storage, "a finished job leaves no state")

	require.NoError(t, local.Run(t.Context(), cfg), "the next run begins anew")
	requireExact(t, j.out, 1000, 2)
}

func TestStopAndResume(t *testing.T) {
	j, cfg := newJob(t)
	j.pace = time.Millisecond
	var before [parallelism]int
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		var seen atomic.Int64
		j.record = func(int, int) error {
			if seen.Add(1) == 500 {
				cancel()
			}
			return nil
		}
		require.NoError(t, local.Run(ctx, cfg))
		open, err := os.ReadDir(filepath.Join(j.out, "prepared"))
		require.NoError(t, err)
		require.Empty(t, open)
		counts := requireUnbroken(t, j.out)
		require.GreaterOrEqual(t, counts[0]+counts[1], before[0]+before[1]+500, "everything that was read is in the output")
		before = counts
	}
}

func TestRestartsAfterFailures(t *testing.T) {
	j, cfg := newJob(t)
	j.n, j.pace, j.restarts = 2000, time.Millisecond, 100
	var records, commits atomic.Int64
	j.record = func(int, int) error {
		switch records.Add(1) % 3000 {
		case 1111:
			panic("now and then")
		case 2222:
			return errors.New("now and then")
		}
		return nil
	}
	j.commit = func() error {
		if commits.Add(1)%20 == 7 {
			return errors.New("broker is away")
		}
		return nil
	}
	require.NoError(t, local.Run(t.Context(), cfg))
	require.Greater(t, records.Load(), int64(4000), "something was read twice, else nothing was tested")
	requireExact(t, j.out, 2000, 1)
}

func TestFailureIsSettled(t *testing.T) {
	j, cfg := newJob(t)
	j.pace = time.Millisecond
	var seen atomic.Int64
	j.record = func(int, int) error {
		if seen.Add(1) > 1000 {
			panic("cannot go on")
		}
		return nil
	}
	err := local.Run(t.Context(), cfg)
	var failed *local.Error
	require.ErrorAs(t, err, &failed)
	require.Contains(t, failed.Message, "cannot go on")
	require.Contains(t, failed.Task, "numbers[")
	require.Contains(t, failed.Stack, "job_test.go")
	require.Contains(t, failed.Reason, "no restart")
	require.Empty(t, failed.Unsettled)
	requireUnbroken(t, j.out)
	open, err := os.ReadDir(filepath.Join(j.out, "prepared"))
	require.NoError(t, err)
	require.Empty(t, open)

	j.record, j.n = nil, 1500
	require.NoError(t, local.Run(t.Context(), cfg))
	requireExact(t, j.out, 1500, 1)
}

// TestFailedCommitIsSettled fails the job while a transaction is prepared and its checkpoint complete.
func TestFailedCommitIsSettled(t *testing.T) {
	j, cfg := newJob(t)
	j.pace = time.Millisecond
	j.commit = func() error { return errors.New("broker is away") }
	err := local.Run(t.Context(), cfg)
	require.ErrorContains(t, err, "broker is away")
	counts := requireUnbroken(t, j.out)
	require.Positive(t, counts[0]+counts[1], "the settling attempt commits what the checkpoint has promised")
	open, err := os.ReadDir(filepath.Join(j.out, "prepared"))
	require.NoError(t, err)
	require.Empty(t, open)
}

// TestKilledProcess kills the process that runs the job again and again.
func TestKilledProcess(t *testing.T) {
	const n = 3000
	out, dir := t.TempDir(), filepath.Join(t.TempDir(), "state")
	start := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "LOCAL_TEST_OUT="+out, "LOCAL_TEST_DIR="+dir, "LOCAL_TEST_N="+strconv.Itoa(n))
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		return cmd
	}
	for round := range 6 {
		cmd := start()
		// A different moment each time: once the output has grown by so many transactions, few enough that the job does not come to its end.
		files := func() int {
			f, _ := os.ReadDir(filepath.Join(out, "committed"))
			return len(f)
		}
		before := files()
		require.Eventually(t, func() bool { return files() > before+round%3 }, patience, time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	require.NoError(t, start().Wait())
	requireExact(t, out, n, 1)
}

func TestDirectoryInUse(t *testing.T) {
	j, cfg := newJob(t)
	j.pace = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan struct{})
	var seen atomic.Int64
	j.record = func(int, int) error {
		if seen.Add(1) == 1 {
			close(running)
		}
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- local.Run(ctx, cfg) }()
	<-running
	err := local.Run(t.Context(), cfg)
	require.ErrorIs(t, err, local.ErrInUse)
	require.ErrorContains(t, err, cfg.Dir)
	cancel()
	require.NoError(t, <-done)
}

func TestOtherJob(t *testing.T) {
	j, cfg := newJob(t)
	j.n = 10
	require.NoError(t, local.Run(t.Context(), cfg))
	other := &testJob{name: "other", out: j.out, n: 10}
	cfg.Plan = other.plan
	require.ErrorIs(t, local.Run(t.Context(), cfg), local.ErrOtherJob)
}

// stoppedJob returns a job that was stopped with a checkpoint and has input left.
func stoppedJob(t *testing.T) (*testJob, local.Config) {
	t.Helper()
	j, cfg := newJob(t)
	j.pace = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var seen atomic.Int64
	j.record = func(int, int) error {
		if seen.Add(1) == 300 {
			cancel()
		}
		return nil
	}
	require.NoError(t, local.Run(ctx, cfg))
	j.record, j.n, j.restarts = nil, 1000, 5
	return j, cfg
}

// edit changes a file and returns what was in it.
func edit(t *testing.T, path string, change func([]byte) []byte) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, change(bytes.Clone(data)), 0o600))
	return data
}

func TestUnreadableRecord(t *testing.T) {
	j, cfg := stoppedJob(t)
	path := filepath.Join(cfg.Dir, "CURRENT")
	before := committed(t, j.out)
	refused := func(want error, change func([]byte) []byte) string {
		t.Helper()
		good := edit(t, path, change)
		err := local.Run(t.Context(), cfg)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, cfg.Dir)
		require.NoError(t, os.WriteFile(path, good, 0o600))
		return err.Error()
	}
	size := len(edit(t, path, func(b []byte) []byte { return b }))
	for i := range size {
		if i == len("weir-record ") {
			continue // the version
		}
		refused(local.ErrDamaged, func(b []byte) []byte { b[i] ^= 1; return b })
	}
	refused(local.ErrDamaged, func([]byte) []byte { return nil })
	refused(local.ErrDamaged, func(b []byte) []byte { return b[:len(b)/2] })
	refused(local.ErrDamaged, func(b []byte) []byte { return append(b, '\n') })
	require.Contains(t, refused(local.ErrFormat, func(b []byte) []byte {
		return bytes.Replace(b, []byte("weir-record 1 "), []byte("weir-record 99 "), 1)
	}), "99")
	body := []byte(`{"formatVersion": 1, "jobs": [{}], "surprise": 1}`)
	require.Contains(t, refused(local.ErrFormat, func([]byte) []byte {
		return append(fmt.Appendf(nil, "weir-record 1 %08x\n", crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))), body...)
	}), "surprise")

	require.NoError(t, os.Remove(path))
	err := local.Run(t.Context(), cfg)
	require.ErrorIs(t, err, local.ErrNoRecord)
	require.ErrorContains(t, err, cfg.Dir)
	require.ErrorContains(t, err, "delete the directory to start afresh")
	require.NoFileExists(t, path, "a refused start changes nothing")
	require.Equal(t, before, committed(t, j.out))
}

func TestLostCheckpointEndsTheRun(t *testing.T) {
	for what, change := range map[string]func(t *testing.T, path string){
		"flipped bit": func(t *testing.T, path string) {
			edit(t, path, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
		},
		"truncated": func(t *testing.T, path string) { edit(t, path, func(b []byte) []byte { return b[:len(b)/2] }) },
		"deleted":   func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
	} {
		t.Run(what, func(t *testing.T) {
			j, cfg := stoppedJob(t)
			files, err := filepath.Glob(filepath.Join(cfg.Dir, "storage", "*", "jobs", "*", "checkpoints", "*", "metadata"))
			require.NoError(t, err)
			require.NotEmpty(t, files)
			require.LessOrEqual(t, len(files), 2, "no more than are retained")
			for _, f := range files {
				change(t, f)
			}
			before := committed(t, j.out)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err = local.Run(ctx, cfg)
			require.ErrorContains(t, err, "is lost")
			require.ErrorContains(t, err, cfg.Dir)
			var failed *local.Error
			require.ErrorAs(t, err, &failed)
			require.Contains(t, failed.Reason, "data is proven lost", "no restart can help")
			require.Equal(t, 1, strings.Count(err.Error(), "/checkpoints/"), err.Error())
			require.Equal(t, before, committed(t, j.out))
		})
	}
}
