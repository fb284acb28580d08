package jobmanager_test

import (
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

// A leader that looks at another storage would take no TaskManager in; it ends instead, so that another one can lead.
func TestLeaderWithAnotherStorageGivesUp(t *testing.T) {
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
