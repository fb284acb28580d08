package e2e_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/internal/loopback"
	"github.com/weir-stream/weir/test/harness"
)

// reconfigure replaces texts in a node's configuration file.
func reconfigure(t *testing.T, file string, oldnew ...string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(strings.NewReplacer(oldnew...).Replace(string(text))), 0o644))
}

func configFile(c *harness.Cluster, p *localcluster.Process) string {
	return filepath.Join(c.Dir, p.ID+".yaml")
}

// wipe empties the data directory of a JobManager that does not run.
func wipe(t *testing.T, c *harness.Cluster, p *localcluster.Process) {
	t.Helper()
	require.False(t, p.Running())
	require.NoError(t, os.RemoveAll(filepath.Join(c.Dir, p.ID)))
}

// move gives a JobManager that does not run another Raft address.
func move(t *testing.T, c *harness.Cluster, p *localcluster.Process) (from, to string) {
	t.Helper()
	for _, m := range members(t, c) {
		if m.ID == p.ID {
			from = m.RaftAddress
		}
	}
	to = freeAddresses(t, 1)[0]
	reconfigure(t, configFile(c, p), from, to)
	return from, to
}

func freeAddresses(t *testing.T, n int) []string {
	t.Helper()
	ports, err := loopback.FreePorts(n)
	require.NoError(t, err)
	var out []string
	for _, p := range ports {
		out = append(out, loopback.Address(p))
	}
	return out
}

// startFourth starts a JobManager jm4 that is not in the list of the others, and returns its Raft address.
func startFourth(t *testing.T, c *harness.Cluster) string {
	t.Helper()
	addresses := freeAddresses(t, 4)
	file := filepath.Join(c.Dir, "jm4.yaml")
	var list []string
	for _, m := range members(t, c) {
		if m.Reachable {
			list = append(list, m.ID+"="+m.RaftAddress)
		}
	}
	list = append(list, "jm4="+addresses[1])
	require.Len(t, list, 3)
	require.NoError(t, os.WriteFile(file, []byte(strings.Join([]string{
		"id: jm4", "data_dir: " + filepath.Join(c.Dir, "jm4"), "listen: " + addresses[0], "raft_listen: " + addresses[1],
		"members: [" + strings.Join(list, ", ") + "]", "storage_url: " + c.StorageURL(), "admin_address: ''", "",
	}, "\n")), 0o644))
	log, err := os.Create(filepath.Join(c.Dir, "jm4.log"))
	require.NoError(t, err)
	cmd := exec.Command(c.Binaries.Weir, "jobmanager", "--config", file)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("---- jm4\n%s", text)
		}
		_ = log.Close()
	})
	harness.Eventually(t, 10*time.Second, "jm4 to listen", func() error {
		conn, err := net.Dial("tcp", addresses[1])
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	return addresses[1]
}

func TestMembersComeGoAndMoveWhileAJobRuns(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 3, TaskManagers: 1, Slots: 2})
	u := startUndisturbed(t, c, 40*2000, 2000, 2)

	// One loses its data and is started again: it gets its vote back by itself.
	lost := follower(t, c)
	require.NoError(t, lost.Kill())
	wipe(t, c, lost)
	require.NoError(t, lost.Start())
	awaitMember(t, c, lost.ID, 30*time.Second, "a voter again", healthy)
	u.awaitCheckpoint(t, time.Now())
	r := c.Weir("members", "replace", lost.ID)
	require.NotZero(t, r.Code)
	require.Contains(t, r.Stderr, "nothing to be replaced")

	// One loses its data and comes back at another port.
	require.NoError(t, lost.Kill())
	wipe(t, c, lost)
	from, to := move(t, c, lost)
	require.NoError(t, lost.Start())
	harness.Eventually(t, 20*time.Second, "it to be there", func() error {
		if r := c.Weir("members", "replace", lost.ID, to); r.Code != 0 {
			return fmt.Errorf("%s", r.Stderr)
		}
		return nil
	})
	awaitMember(t, c, lost.ID, 30*time.Second, "at its new port", func(m memberView) bool { return healthy(m) && m.RaftAddress == to })
	for _, p := range c.JobManagers() {
		reconfigure(t, configFile(c, p), from, to)
	}
	u.awaitCheckpoint(t, time.Now())

	// One moves to another port; only its own file is changed.
	moved := follower(t, c)
	require.NoError(t, moved.Stop(20*time.Second))
	from, to = move(t, c, moved)
	require.NoError(t, moved.Start())
	awaitMember(t, c, moved.ID, 30*time.Second, "at its new port", func(m memberView) bool { return healthy(m) && m.RaftAddress == to })
	for _, p := range c.JobManagers() {
		reconfigure(t, configFile(c, p), from, to)
	}

	// One is gone for good, and a new one takes its place.
	gone := follower(t, c)
	require.NoError(t, gone.Kill())
	r = c.Weir("members", "remove", otherThan(t, c, gone).ID)
	require.NotZero(t, r.Code)
	require.Contains(t, r.Stderr, "majority")
	raft := startFourth(t, c)
	c.MustWeir("members", "add", "jm4", raft)
	c.MustWeir("members", "add", "jm4", raft)
	awaitMember(t, c, "jm4", 30*time.Second, "a voter", healthy)
	c.MustWeir("members", "remove", gone.ID)
	c.MustWeir("members", "remove", gone.ID)
	r = c.Weir("members", "add", "jm5", freeAddresses(t, 1)[0])
	require.NotZero(t, r.Code)
	require.Contains(t, r.Stderr, "start it first")
	require.Len(t, members(t, c), 3)
	u.awaitCheckpoint(t, time.Now())

	// A removed leader hands over; the two that are left go on.
	leader, err := c.WaitLeader(t.Context())
	require.NoError(t, err)
	at := time.Now()
	c.MustWeir("members", "remove", leader.ID)
	u.awaitCheckpoint(t, at)
	require.Len(t, members(t, c), 2)
	harness.Eventually(t, 20*time.Second, "the removed one to know", func() error {
		if text := leader.LogTail(100); !strings.Contains(text, "has been removed from the cluster") {
			return fmt.Errorf("it says\n%s", leader.LogTail(5))
		}
		return nil
	})
	u.require(t)
	u.end(t)
}

// otherThan returns a follower that is not p.
func otherThan(t *testing.T, c *harness.Cluster, p *localcluster.Process) *localcluster.Process {
	t.Helper()
	leader, err := c.WaitLeader(t.Context())
	require.NoError(t, err)
	all := c.JobManagers()
	return all[slices.IndexFunc(all, func(o *localcluster.Process) bool { return o != leader && o != p })]
}

func TestAllJobManagersMoveAtOnce(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 3, TaskManagers: 1, Slots: 2})
	u := startUndisturbed(t, c, 15*2000, 2000, 2)
	var change []string
	to := freeAddresses(t, 3)
	for i, m := range members(t, c) {
		change = append(change, m.RaftAddress, to[i])
	}
	for _, p := range c.JobManagers() {
		require.NoError(t, p.Stop(20*time.Second))
		reconfigure(t, configFile(c, p), change...)
	}
	at := time.Now()
	for _, p := range c.JobManagers() {
		require.NoError(t, p.Start())
	}
	for _, p := range c.JobManagers() {
		awaitMember(t, c, p.ID, 30*time.Second, "healthy", func(m memberView) bool { return healthy(m) && slices.Contains(to, m.RaftAddress) })
	}
	u.awaitCheckpoint(t, at)
	u.run.RequireExactlyOnce(time.Minute)
}

func TestMajorityLostForGoodTakesAnExplicitAct(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 3, TaskManagers: 1, Slots: 2})
	u := startUndisturbed(t, c, 25*2000, 2000, 2)
	raft := map[string]string{}
	for _, m := range members(t, c) {
		raft[m.ID] = m.RaftAddress
	}
	survivor, err := c.WaitLeader(t.Context())
	require.NoError(t, err)
	lost := slices.DeleteFunc(c.JobManagers(), func(p *localcluster.Process) bool { return p == survivor })
	for _, p := range c.JobManagers() {
		require.NoError(t, p.Kill())
	}
	for _, p := range lost {
		wipe(t, c, p)
		require.NoError(t, p.Start())
	}
	require.NoError(t, survivor.Start())
	for _, p := range lost {
		harness.Eventually(t, 10*time.Second, p.ID+" to say what it waits for", func() error {
			if text := p.LogTail(20); !strings.Contains(text, "has no data although it is a member") {
				return fmt.Errorf("it says\n%s", text)
			}
			return nil
		})
	}
	r := c.Weir("list", "--patience", "3s")
	require.NotZero(t, r.Code, "somebody leads: %s", r.Stdout)

	dir := filepath.Join(c.Dir, survivor.ID)
	act := []string{"members", "recover", survivor.ID, raft[survivor.ID], "--data-dir", dir}
	r = c.Weir(act...)
	require.NotZero(t, r.Code)
	require.Contains(t, r.Stderr, "in use")
	require.NoError(t, survivor.Stop(20*time.Second))
	require.Contains(t, c.MustWeir(act...), "with 1 jobs")
	require.Contains(t, c.MustWeir(append(act, "--yes")...), survivor.ID+" is the only member now")
	require.NoError(t, survivor.Start())
	at := time.Now()
	harness.Eventually(t, 20*time.Second, "the survivor to lead", func() error {
		if r := c.Weir("list", "--patience", "3s"); r.Code != 0 || !strings.Contains(r.Stdout, u.id) {
			return fmt.Errorf("%s%s", r.Stdout, r.Stderr)
		}
		return nil
	})
	for _, p := range lost {
		c.MustWeir("members", "add", p.ID, raft[p.ID])
		awaitMember(t, c, p.ID, 30*time.Second, "a voter", healthy)
	}
	u.awaitCheckpoint(t, at)
	require.NoError(t, survivor.Kill())
	u.awaitCheckpoint(t, time.Now())
	u.run.RequireExactlyOnce(time.Minute)
}
