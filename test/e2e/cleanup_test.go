package e2e_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"github.com/weir-stream/weir/test/harness"
)

// retainedByDefault is how many completed checkpoints a job keeps.
const retainedByDefault = 3

// One old checkpoint cannot be deleted, others are given up half-way, leaders change: clean-up goes on around it and takes neither what
// a restore needs nor a savepoint. WEIR_CLEANUP_DURATION is about how long the test goes on, with twenty deaths in the middle of a
// checkpoint and one checkpoint a second.
func TestCleanUpGoesAroundWhatItCannotDelete(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 3, TaskManagers: 1, Slots: 2})
	in, out := c.Topic(2, nil), c.Topic(2, nil)
	span, err := time.ParseDuration(envOr("WEIR_CLEANUP_DURATION", "0"))
	require.NoError(t, err)
	interval, deaths, between := 300*time.Millisecond, 2, 1
	if span > 0 {
		interval, deaths = time.Second, 20
		between = max(1, int(span/interval)/deaths)
	}
	args := []string{"--shape", "count", "--in", in, "--out", out, "--interval", interval.String(), "--checkpoint-timeout", "10s", "--max-restarts", "1000", "--restart-delay", "1ms"}
	id := c.Submit([]string{"-p", "2"}, args...)
	c.WaitState(id, "RUNNING", 30*time.Second)
	// State that many checkpoints share.
	const many = 20
	for n := range many {
		c.Produce(&kgo.Record{Topic: in, Partition: int32(n % 2), Key: []byte(strings.Repeat(strconv.Itoa(n), 4<<10)), Value: []byte("0")})
	}
	f := startFeedOf(t, c, in, 1, 30*time.Millisecond)
	folders := func() []string {
		found, err := filepath.Glob(filepath.Join(c.Dir, "storage", "*", "jobs", id, "checkpoints", "*"))
		require.NoError(t, err)
		return found
	}
	goOn := func(more int) {
		t.Helper()
		before := completed(t, c, id)
		harness.Eventually(t, 40*time.Second+time.Duration(more)*interval, "checkpoints", func() error {
			if n := completed(t, c, id); n < before+more {
				return fmt.Errorf("%d are complete, %d before", n, before)
			}
			return nil
		})
	}
	goOn(2)
	savepoint := strings.TrimSpace(c.MustWeir("savepoint", id))
	var stuck string
	harness.Eventually(t, 20*time.Second, "a checkpoint to hold", func() error {
		all := folders()
		if len(all) == 0 {
			return fmt.Errorf("there is none")
		}
		stuck = newest(t, all)
		_, err := os.Stat(filepath.Join(stuck, "metadata"))
		return err
	})
	release := immutable(t, filepath.Join(stuck, "metadata"))
	// What an attempt that died in the middle of an upload leaves.
	orphan := filepath.Join(filepath.Dir(filepath.Dir(stuck)), "state", "1", "in-0", "gone", "1-99")
	require.NoError(t, os.MkdirAll(filepath.Dir(orphan), 0o700))
	require.NoError(t, os.WriteFile(orphan, []byte("half"), 0o600))
	goOn(retainedByDefault + 2)
	for n := range deaths {
		pid, tm, err := c.WorkerOf()
		require.NoError(t, err)
		awaitAnother(t, c, id)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		if n%2 == 0 {
			require.NoError(t, tm.Kill())
			require.NoError(t, tm.Start())
		}
		c.WaitState(id, "RUNNING", 30*time.Second)
		goOn(between)
		if all := folders(); len(all) > retainedByDefault+3 {
			t.Logf("%d checkpoints after %d deaths", len(all), n+1)
		}
	}
	for range 2 {
		killLeader(t, c)
		c.WaitWhole(30 * time.Second)
		goOn(1)
	}
	harness.Eventually(t, 30*time.Second, "the failed deletion to be counted", func() error {
		if n := cleanUpErrors(t, c); n == 0 {
			return fmt.Errorf("none is")
		}
		return nil
	})
	goOn(2 * retainedByDefault)
	require.FileExists(t, filepath.Join(stuck, "metadata"))
	harness.Eventually(t, time.Minute, "few checkpoints", func() error {
		// Beyond what is retained are the stuck one and one in progress; what was given up half-way is searched for after a while.
		if all := folders(); len(all) > retainedByDefault+2 {
			return fmt.Errorf("there are %d: %v", len(all), all)
		}
		return nil
	})
	require.Equal(t, "JOB_STATE_RUNNING", c.Job(id).State)
	release()
	harness.Eventually(t, 60*time.Second, "the stuck checkpoint to go", func() error {
		if _, err := os.Stat(filepath.Join(stuck, "metadata")); err == nil {
			return fmt.Errorf("it is there")
		}
		return nil
	})
	last := f.end()
	require.Len(t, c.AwaitCommitted(out, last+many, 40*time.Second), last+many)
	require.LessOrEqual(t, len(folders()), retainedByDefault+1)
	harness.Eventually(t, time.Minute, "storage to hold what the retained checkpoints need, and nothing else", func() error {
		return tidy(t, c, id)
	})
	sweepsWhatNobodyKnows(t, c, id)
	c.MustWeir("cancel", id)
	again := c.Topic(2, nil)
	args[5] = again
	next := c.Submit([]string{"-p", "1", "--from", savepoint}, args...)
	c.WaitState(next, "RUNNING", 30*time.Second)
	c.MustWeir("cancel", next)
	requireNoneOpen(t, c, next, again)
}

// awaitAnother waits until a checkpoint writes its first file.
func awaitAnother(t *testing.T, c *harness.Cluster, id string) {
	t.Helper()
	files := func() map[string]bool {
		found, err := filepath.Glob(filepath.Join(c.Dir, "storage", "*", "jobs", id, "state", "*", "*", "*", "*"))
		require.NoError(t, err)
		all := map[string]bool{}
		for _, f := range found {
			all[f] = true
		}
		return all
	}
	before := files()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for f := range files() {
			if !before[f] {
				return
			}
		}
	}
	require.Fail(t, "no checkpoint began")
}

// sweepsWhatNobodyKnows lays files of an unknown job beside those of one that runs.
func sweepsWhatNobodyKnows(t *testing.T, c *harness.Cluster, id string) {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(c.Dir, "storage", "*", "jobs"))
	require.NoError(t, err)
	require.Len(t, folders, 1)
	old, young := filepath.Join(folders[0], "unknown", "state", "1", "in-0", "in", "1-1"), filepath.Join(folders[0], "unknown", "state", "1", "in-0", "in", "2-1")
	require.NoError(t, os.MkdirAll(filepath.Dir(old), 0o700))
	for _, f := range []string{old, young} {
		require.NoError(t, os.WriteFile(f, []byte("left"), 0o600))
	}
	at := time.Now().Add(-25 * time.Hour)
	require.NoError(t, os.Chtimes(old, at, at))
	for _, swept := range []string{
		c.MustWeir("storage", "sweep", "--dry-run"),
		c.MustWeir("storage", "sweep"),
	} {
		require.Contains(t, swept, "unknown/state/1/in-0/in/1-1")
		require.Contains(t, swept, "\n1 file with 4 B ")
	}
	require.NoFileExists(t, old)
	require.FileExists(t, young)
	require.NoError(t, tidy(t, c, id))
	r := c.Weir("storage", "sweep", "--older-than", "1s")
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "less than 1m0s")
}

// tidy compares the files of an idle job with what its retained checkpoints refer to.
func tidy(t *testing.T, c *harness.Cluster, id string) error {
	t.Helper()
	var list struct {
		Checkpoints []struct{ Path, State string }
	}
	require.NoError(t, json.Unmarshal([]byte(c.MustWeir("checkpoints", id, "-o", "json")), &list))
	root := filepath.Join(c.Dir, "storage")
	needed := map[string]bool{}
	for _, cp := range list.Checkpoints {
		if cp.State != "completed" || !strings.Contains(cp.Path, "/jobs/"+id+"/checkpoints/") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, cp.Path))
		if err != nil {
			return err
		}
		md, err := checkpointfile.Decode(cp.Path, data)
		require.NoError(t, err)
		needed[cp.Path] = true
		for _, f := range checkpoint.Files(md.GetTasks()) {
			needed[f.GetName()] = true
		}
	}
	if len(needed) < 2*retainedByDefault {
		return fmt.Errorf("retained are %v only", needed)
	}
	folders, err := filepath.Glob(filepath.Join(root, "*", "jobs", id))
	require.NoError(t, err)
	var more []string
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			name, err := filepath.Rel(root, path)
			if !needed[name] {
				more = append(more, name)
			}
			delete(needed, name)
			return err
		})
		if err != nil {
			return err
		}
	}
	if len(more) > 0 || len(needed) > 0 {
		return fmt.Errorf("nobody needs %v, and missing are %v", more, needed)
	}
	return nil
}

// newest returns the folder of the checkpoint with the highest id.
func newest(t *testing.T, folders []string) (last string) {
	t.Helper()
	highest := -1
	for _, f := range folders {
		n, err := strconv.Atoi(filepath.Base(f))
		require.NoError(t, err)
		if n > highest {
			highest, last = n, f
		}
	}
	return last
}

// immutable makes a file one that not even root can delete, until release or the test's end.
func immutable(t *testing.T, file string) (release func()) {
	t.Helper()
	if out, err := exec.Command("chattr", "+i", file).CombinedOutput(); err != nil {
		t.Skipf("files cannot be made immutable here: %v: %s", err, out)
	}
	done := false
	release = func() {
		if !done {
			done = true
			out, err := exec.Command("chattr", "-i", file).CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
	}
	t.Cleanup(release)
	return release
}

var cleanUpErrorsLine = regexp.MustCompile(`(?m)^weir_jobmanager_cleanup_errors_total (\S+)$`)

// cleanUpErrors adds up what the JobManagers have counted since they began.
func cleanUpErrors(t *testing.T, c *harness.Cluster) (sum float64) {
	t.Helper()
	for _, p := range c.JobManagers() {
		body, _ := get(t, "http://"+p.Admin+"/metrics")
		m := cleanUpErrorsLine.FindStringSubmatch(body)
		require.NotNil(t, m, "%s", p.ID)
		n, err := strconv.ParseFloat(m[1], 64)
		require.NoError(t, err)
		sum += n
	}
	return sum
}
