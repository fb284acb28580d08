package jobmanager_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	"github.com/weir-stream/weir/jobmanager"
)

func TestDataDirectoryOfAnotherMemberIsRefused(t *testing.T) {
	c := newCluster(t, 1)
	cfg := c.members[0].cfg
	c.members[0].stop()
	cfg.ID = "somebody-else"
	_, err := jobmanager.Start(cfg, testLogger(t))
	require.ErrorContains(t, err, `belongs to JobManager "jm1"`)
	c.members[0].start()
}

// A leader that looks at another storage would take no TaskManager in; one without another to give way to ends.
func TestLoneLeaderWithAnotherStorageGivesUp(t *testing.T) {
	c := newCluster(t, 1)
	m := c.members[0]
	c.leader()
	m.stop()
	right := m.cfg.Storage
	m.cfg.Storage = "file://" + t.TempDir()
	m.start()
	select {
	case err := <-m.done:
		require.ErrorContains(t, err, "storage_url")
		require.ErrorContains(t, err, m.cfg.Storage)
	case <-time.After(20 * time.Second):
		t.Fatal("it leads on")
	}
	m.cancel = nil
	m.cfg.Storage = right
	m.start()
	c.leader()
}

// All members lose sight of the storage while the leadership changes: none ends, and they serve again once it is mounted.
func TestLeaderChangeWithoutStorageIsSurvived(t *testing.T) {
	c := newCluster(t, 3)
	leader := c.leader()
	dir := strings.TrimPrefix(c.storage, "file://")
	require.NoError(t, os.Rename(dir, dir+"-away"))
	leader.stop()
	var others []*member
	for _, m := range c.members {
		if m != leader {
			others = append(others, m)
		}
	}
	eventually(t, "the next leader says that it is away", func() bool {
		for _, m := range others {
			if m.server.LeaderID() == m.cfg.ID {
				_, err := m.server.Leader()
				return err != nil && strings.Contains(err.Error(), "does not hold the cluster's files")
			}
		}
		return false
	})
	require.Never(t, func() bool { return len(others[0].done)+len(others[1].done) > 0 }, 3*time.Second, 100*time.Millisecond, "a member ended")
	require.NoError(t, os.Rename(dir+"-away", dir))
	c.leader()
}

// A mount that hangs keeps no member in a leadership in which it cannot serve, and one whose mount hangs too is not asked to take it.
// Opening a pipe hangs until somebody writes to it.
func TestLeaderWithHangingStorageGivesWay(t *testing.T) {
	c := newCluster(t, 3)
	leader := c.leader()
	others := make(map[string]*mount, 2)
	for _, m := range c.members {
		if m != leader {
			others[m.cfg.ID] = remount(t, m)
		}
	}
	for _, m := range others {
		m.hang(leader.server.View().ClusterID())
	}
	leader.stop()
	var stuck string
	eventually(t, "one of the others has been elected", func() bool {
		for id, m := range others {
			if m.member.server.LeaderID() == id {
				stuck = id
			}
		}
		return stuck != ""
	})
	for id, m := range others {
		if id != stuck {
			m.comeBack()
		}
	}
	eventually(t, "the one that reaches storage leads", func() bool {
		l := c.leader()
		return l.cfg.ID != stuck
	})
	others[stuck].comeBack()
}

// A member that looks at another storage says so before it is needed.
func TestFollowerWithAnotherStorageSaysSo(t *testing.T) {
	c := newCluster(t, 3)
	leader := c.leader()
	i := slices.IndexFunc(c.members, func(m *member) bool { return m != leader })
	m := c.members[i]
	right := m.cfg.Storage
	m.stop()
	m.cfg.Storage = "file://" + t.TempDir()
	m.start()
	troubled := func(m *clusterv1.Member) bool { return strings.Contains(m.GetTrouble(), "storage_url") }
	eventually(t, "the list of members says so", func() bool { return slices.Equal(c.listed(troubled), []string{m.cfg.ID}) })
	m.stop()
	eventually(t, "the list of members says that it is down", func() bool {
		return slices.Equal(c.listed(func(m *clusterv1.Member) bool { return strings.Contains(m.GetTrouble(), "does not answer") }), []string{m.cfg.ID})
	})
	m.cfg.Storage = right
	m.start()
	eventually(t, "all is well", func() bool {
		return len(c.listed(func(m *clusterv1.Member) bool { return m.GetTrouble() == "" && m.GetReachable() })) == len(c.members)
	})
}

// mount is the storage as one member sees it.
type mount struct {
	t      *testing.T
	member *member
	path   string // where it is mounted
	to     string
	pipe   string
}

// remount starts a member anew with a way to storage of its own.
func remount(t *testing.T, m *member) *mount {
	out := &mount{t: t, member: m, path: filepath.Join(t.TempDir(), "mount"), to: strings.TrimPrefix(m.cfg.Storage, "file://")}
	require.NoError(t, os.Symlink(out.to, out.path))
	m.stop()
	m.cfg.Storage = "file://" + out.path
	m.start()
	return out
}

func (m *mount) hang(cluster string) {
	require.NoError(m.t, os.Remove(m.path))
	require.NoError(m.t, os.MkdirAll(filepath.Join(m.path, cluster), 0o755))
	m.pipe = filepath.Join(m.path, cluster, "probe")
	require.NoError(m.t, syscall.Mkfifo(m.pipe, 0o644))
}

func (m *mount) comeBack() {
	pipe, err := os.OpenFile(m.pipe, os.O_RDWR, 0) // which ends the hanging
	require.NoError(m.t, err)
	require.NoError(m.t, os.Rename(m.path, m.path+"-hung"))
	require.NoError(m.t, os.Symlink(m.to, m.path))
	require.NoError(m.t, pipe.Close())
}
