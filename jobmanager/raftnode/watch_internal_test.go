package raftnode

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// stuckStore hangs in writes until it is let go.
type stuckStore struct {
	raft.LogStore
	letGo chan struct{}
}

func (s stuckStore) StoreLogs(ls []*raft.Log) error {
	<-s.letGo
	return s.LogStore.StoreLogs(ls)
}

func TestHangingWriteIsFatal(t *testing.T) {
	store := stuckStore{LogStore: raft.NewInmemStore(), letGo: make(chan struct{})}
	n := &Node{
		cfg: Config{WriteHang: 50 * time.Millisecond}, watched: newWatchedStore(store), fatal: make(chan error, 1), done: make(chan struct{}),
	}
	n.wg.Add(1)
	go n.watchWrites()
	written := make(chan error, 1)
	go func() { written <- n.watched.StoreLogs([]*raft.Log{{Index: 1}}) }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	select {
	case err := <-n.fatal:
		require.ErrorIs(t, err, ErrLogHangs)
	case <-ctx.Done():
		require.Fail(t, "nobody noticed")
	}
	close(store.letGo)
	require.NoError(t, <-written)
	require.Zero(t, n.watched.running())
	close(n.done)
	n.wg.Wait()
}
