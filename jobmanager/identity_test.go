package jobmanager_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
				return err != nil && strings.Contains(err.Error(), "does not hold the files")
			}
		}
		return false
	})
	require.Never(t, func() bool { return len(others[0].done)+len(others[1].done) > 0 }, 3*time.Second, 100*time.Millisecond, "a member ended")
	require.NoError(t, os.Rename(dir+"-away", dir))
	c.leader()
}

// A mount that hangs keeps no member in a leadership in which it cannot serve. Opening a pipe hangs until somebody writes to it.
func TestLeaderWithHangingStorageGivesWay(t *testing.T) {
	c := newCluster(t, 3)
	leader := c.leader()
	probe := filepath.Join(strings.TrimPrefix(c.storage, "file://"), leader.server.View().ClusterID(), "probe")
	require.NoError(t, os.Rename(probe, probe+"-away"))
	require.NoError(t, syscall.Mkfifo(probe, 0o644))
	leader.stop()
	led := make(map[*member]bool)
	eventually(t, "both others have led", func() bool {
		for _, m := range c.members {
			if m != leader && m.server.LeaderID() == m.cfg.ID {
				led[m] = true
			}
		}
		return len(led) == 2
	})
	pipe, err := os.OpenFile(probe, os.O_RDWR, 0) // which ends the hanging
	require.NoError(t, err)
	require.NoError(t, os.Rename(probe+"-away", probe))
	c.leader()
	require.NoError(t, pipe.Close())
}
