package raftnode

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// watchedStore notes since when a write to the log has been running.
type watchedStore struct {
	raft.LogStore
	// since is the monotonic time in nanoseconds after start at which the running write began, plus one; 0 while none runs. Raft
	// writes from one goroutine at a time.
	since atomic.Int64
	start time.Time
}

func newWatchedStore(s raft.LogStore) *watchedStore {
	return &watchedStore{LogStore: s, start: time.Now()}
}

// StoreLog implements raft.LogStore.
func (w *watchedStore) StoreLog(l *raft.Log) error {
	defer w.begin()()
	return w.LogStore.StoreLog(l)
}

// StoreLogs implements raft.LogStore.
func (w *watchedStore) StoreLogs(ls []*raft.Log) error {
	defer w.begin()()
	return w.LogStore.StoreLogs(ls)
}

func (w *watchedStore) begin() func() {
	w.since.Store(int64(time.Since(w.start)) + 1)
	return func() { w.since.Store(0) }
}

// running returns for how long the current write has been running; 0 without one.
func (w *watchedStore) running() time.Duration {
	since := w.since.Load()
	if since == 0 {
		return 0
	}
	return time.Since(w.start) - time.Duration(since-1)
}
