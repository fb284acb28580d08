package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/jobmanager"
	"github.com/weir-stream/weir/test/harness"
)

// smallDisk mounts a file system in memory at dir, and skips the test where that is not allowed.
func smallDisk(t *testing.T, dir string, megabytes int) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		t.Skipf("mounting a small file system takes the rights of root: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 2) }) // MNT_DETACH
}

// fill takes all space that is left, and returns what gives it back.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "somebody-elses-file")
	f, err := os.Create(name)
	require.NoError(t, err)
	defer f.Close()
	for _, size := range []int{1 << 20, 4 << 10} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
	}
	return func() { require.NoError(t, os.Remove(name)) }
}

// memberView is a JobManager as "weir members" shows it.
type memberView struct {
	ID          string `json:"id"`
	RaftAddress string `json:"raftAddress"`
	Voter       bool   `json:"voter"`
	Leader      bool   `json:"leader"`
	Reachable   bool   `json:"reachable"`
	Trouble     string `json:"trouble"`
}

func members(t *testing.T, c *harness.Cluster) []memberView {
	t.Helper()
	var list struct {
		Members []memberView `json:"members"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.MustWeir("members", "-o", "json")), &list))
	return list.Members
}

// awaitMember waits until a member is as wanted.
func awaitMember(t *testing.T, c *harness.Cluster, id string, timeout time.Duration, what string, ok func(memberView) bool) {
	t.Helper()
	harness.Eventually(t, timeout, id+" to be "+what, func() error {
		all := members(t, c)
		i := slices.IndexFunc(all, func(m memberView) bool { return m.ID == id })
		if i < 0 || !ok(all[i]) {
			return fmt.Errorf("the members are %+v", all)
		}
		return nil
	})
}

func healthy(m memberView) bool { return m.Voter && m.Reachable && m.Trouble == "" }

func follower(t *testing.T, c *harness.Cluster) *localcluster.Process {
	t.Helper()
	leader, err := c.WaitLeader(t.Context())
	require.NoError(t, err)
	all := c.JobManagers()
	return all[slices.IndexFunc(all, func(p *localcluster.Process) bool { return p != leader })]
}

// Every JobManager has its data on a disk of 16 MiB.
func TestJobManagerWhoseDiskIsFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	disk := func(id string) string { return filepath.Join(dir, "disks", id) }
	for _, id := range []string{"jm1", "jm2", "jm3"} {
		smallDisk(t, disk(id), 16)
	}
	c := harness.Start(t, localcluster.Config{
		Dir: dir, JobManagers: 3, TaskManagers: 1, Slots: 2,
		ConfigureJobManager: func(cfg *jobmanager.Config) { cfg.DataDir = filepath.Join(disk(cfg.ID), "data") },
	})
	u := startUndisturbed(t, c, 45*2000, 2000, 2)

	// A follower: nobody notices.
	leader, err := c.WaitLeader(t.Context())
	require.NoError(t, err)
	full := follower(t, c)
	free := fill(t, disk(full.ID))
	awaitMember(t, c, full.ID, 30*time.Second, "out of space", func(m memberView) bool { return strings.Contains(m.Trouble, "no space left in "+disk(full.ID)) })
	at := time.Now()
	u.awaitCheckpoint(t, at)
	require.True(t, c.Leads(t.Context(), leader))
	require.True(t, full.Running())
	free()
	awaitMember(t, c, full.ID, time.Minute, "healthy", healthy)
	require.Contains(t, full.LogTail(1000), "no space left")

	// The leader: another one leads, and it follows when there is space.
	free = fill(t, disk(leader.ID))
	filled := time.Now()
	next := awaitOtherLeader(t, c, leader)
	t.Logf("another leader %s after the disk was full", time.Since(filled).Round(time.Millisecond))
	require.Less(t, time.Since(filled), 30*time.Second)
	u.awaitCheckpoint(t, time.Now())
	awaitMember(t, c, leader.ID, 10*time.Second, "out of space", func(m memberView) bool { return strings.Contains(m.Trouble, "no space left") && !m.Leader })
	require.Contains(t, leader.LogTail(1000), "no space left")
	free()
	awaitMember(t, c, leader.ID, time.Minute, "healthy", healthy)
	require.True(t, c.Leads(t.Context(), next))

	// Killed while full.
	free = fill(t, disk(leader.ID))
	awaitMember(t, c, leader.ID, 30*time.Second, "out of space", func(m memberView) bool { return m.Trouble != "" })
	require.NoError(t, leader.Kill())
	free()
	require.NoError(t, leader.Start())
	awaitMember(t, c, leader.ID, time.Minute, "healthy", healthy)

	// It counts: without the third one it is needed for every entry.
	all := c.JobManagers()
	third := all[slices.IndexFunc(all, func(p *localcluster.Process) bool { return p != leader && p != next })]
	require.NoError(t, third.Kill())
	u.awaitCheckpoint(t, time.Now())
	u.require(t)
	u.end(t)
}

func TestCheckpointStorageThatIsFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	storage := filepath.Join(dir, "storage")
	smallDisk(t, storage, 64)
	c := harness.Start(t, localcluster.Config{Dir: dir, JobManagers: 1, TaskManagers: 1, Slots: 2})
	u := startUndisturbed(t, c, 15*2000, 2000, 2)
	free := fill(t, storage)
	harness.Eventually(t, 30*time.Second, "a checkpoint that fails for want of space", func() error {
		if text := c.MustWeir("checkpoints", u.id); !strings.Contains(text, "no space left") {
			return fmt.Errorf("the checkpoints are\n%s", text)
		}
		return nil
	})
	u.require(t)
	last, at := u.watch.Last(), time.Now()
	free()
	next := u.awaitCheckpoint(t, at)
	require.Greater(t, next.ID, last.ID)
	u.end(t)
}

// supervise starts a process again whenever it has ended, until the test ends.
func supervise(t *testing.T, p *localcluster.Process) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if !p.Running() {
				_ = p.Start()
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// TestLeaderWhoseDiskHangs freezes the file system of the leader's data, so that its writes and syncs do not come back, as with a dead
// network disk; its log goes to the same file system. The process cannot even end before the disk comes back, since the kernel lets no
// thread go that waits for a disk, so what is to be seen is that nobody hears of it any more.
func TestLeaderWhoseDiskHangs(t *testing.T) {
	dir := t.TempDir()
	disk := func(id string) string { return filepath.Join(dir, "disks", id) }
	for _, id := range []string{"jm1", "jm2", "jm3"} {
		freezable(t, disk(id))
		require.NoError(t, os.Symlink(filepath.Join(disk(id), "log"), filepath.Join(dir, id+".log")))
	}
	c := harness.Start(t, localcluster.Config{
		Dir: dir, JobManagers: 3, TaskManagers: 1, Slots: 2,
		ConfigureJobManager: func(cfg *jobmanager.Config) { cfg.DataDir = filepath.Join(disk(cfg.ID), "data") },
	})
	u := startUndisturbed(t, c, 25*2000, 2000, 2)
	leader, err := c.WaitLeader(t.Context())
	require.NoError(t, err)
	thaw := freezeDisk(t, disk(leader.ID))
	at := time.Now()
	awaitOtherLeader(t, c, leader)
	t.Logf("another leader %s after the disk hung", time.Since(at).Round(time.Millisecond))
	require.Less(t, time.Since(at), 10*time.Second)
	u.awaitCheckpoint(t, time.Now())
	u.require(t)
	thaw()
	// It ends by itself. Its last words are lost when it was told to end before the disk came back, since they wait for that disk.
	harness.Eventually(t, 10*time.Second, "the end of the former leader", func() error {
		if leader.Running() {
			return errors.New("it is running")
		}
		return nil
	})
	supervise(t, leader)
	awaitMember(t, c, leader.ID, 30*time.Second, "healthy", healthy)

	// Also when nothing is written.
	u.end(t)
	time.Sleep(time.Second)
	leader, err = c.WaitLeader(t.Context())
	require.NoError(t, err)
	thaw = freezeDisk(t, disk(leader.ID))
	at = time.Now()
	awaitOtherLeader(t, c, leader)
	t.Logf("another leader %s after the disk of an idle one hung", time.Since(at).Round(time.Millisecond))
	thaw()
}

// freezable mounts a file system with a journal at dir, and skips the test where that cannot be had.
func freezable(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	image := dir + ".img"
	require.NoError(t, os.WriteFile(image, nil, 0o644))
	require.NoError(t, os.Truncate(image, 32<<20))
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, dir}, {"fsfreeze", "--help"}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("a file system that can be frozen takes root, loop devices and e2fsprogs: %v: %v: %s", args, err, bytes.TrimSpace(out))
		}
		if args[0] == "mount" {
			t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
		}
	}
}

// freezeDisk stops every write to the file system until thaw.
func freezeDisk(t *testing.T, dir string) (thaw func()) {
	t.Helper()
	out, err := exec.Command("fsfreeze", "--freeze", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	var once sync.Once
	thaw = func() { once.Do(func() { _ = exec.Command("fsfreeze", "--unfreeze", dir).Run() }) }
	t.Cleanup(thaw)
	return thaw
}
