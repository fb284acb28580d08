package raftnode

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// badStore is a store whose writes hang or fail as a test wishes.
type badStore struct {
	*raft.InmemStore
	mu  sync.Mutex
	err error
	// hang, when not nil, is waited for by every write.
	hang chan struct{}
}

func (s *badStore) set(err error, hang chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.hang = err, hang
}

func (s *badStore) trouble() error {
	s.mu.Lock()
	err, hang := s.err, s.hang
	s.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return err
}

func (s *badStore) StoreLogs(ls []*raft.Log) error {
	if err := s.trouble(); err != nil {
		return err
	}
	return s.InmemStore.StoreLogs(ls)
}

func (s *badStore) SetUint64(k []byte, v uint64) error {
	if err := s.trouble(); err != nil {
		return err
	}
	return s.InmemStore.SetUint64(k, v)
}

func TestWhateverHangsIsReported(t *testing.T) {
	for what, factor := range map[string]int{"short": 1, "long": 3} {
		w := newWatch()
		end := w.begin(what, factor)
		w.begin("another", 1)()
		for range factor * watchTicks {
			require.Empty(t, w.look())
		}
		require.Equal(t, what, w.look())
		end()
		require.Empty(t, w.look())
	}
}

func TestHangingWriteTakesTheMemberOffTheNetwork(t *testing.T) {
	store := &badStore{InmemStore: raft.NewInmemStore(), hang: make(chan struct{})}
	l, err := newStreamLayer("127.0.0.1:0", "", nil, &Node{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer l.wait()
	defer l.Close()
	l.speak()
	n := &Node{
		cfg: Config{WriteHang: 50 * time.Millisecond}, watch: newWatch(), stream: l, fatal: make(chan error, 1), done: make(chan struct{}),
		troubles: map[string]string{},
	}
	d := &disk{LogStore: store, stable: store, watch: n.watch, leads: func() bool { return true }}
	for name, write := range map[string]func() error{
		"log":  func() error { return d.StoreLogs([]*raft.Log{{Index: 1}}) },
		"vote": func() error { return d.SetUint64([]byte("k"), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			store.set(nil, make(chan struct{}))
			n.run(t.Context(), n.watchHangs)
			written := make(chan error, 1)
			go func() { written <- write() }()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			select {
			case err := <-n.fatal:
				require.ErrorIs(t, err, ErrHangs)
				require.ErrorContains(t, err, name)
			case <-ctx.Done():
				require.Fail(t, "nobody noticed")
			}
			n.wg.Wait()
			_, err := l.Dial("127.0.0.1:1", time.Second)
			require.ErrorIs(t, err, errSilent)
			store.mu.Lock()
			close(store.hang)
			store.mu.Unlock()
			require.NoError(t, <-written)
			require.Empty(t, n.watch.look())
		})
	}
}

// TestWritesWaitForSpace uses a store that reports a full disk while the directory itself has space, so that only the store decides.
func TestWritesWaitForSpace(t *testing.T) {
	store := &badStore{InmemStore: raft.NewInmemStore()}
	var (
		mu           sync.Mutex
		leads        bool
		said, silent []string
		gaveUp       error
	)
	note := func(list *[]string, text string) {
		mu.Lock()
		defer mu.Unlock()
		*list = append(*list, text)
	}
	closing := make(chan struct{})
	d := &disk{
		LogStore: store, stable: store, dir: t.TempDir(), watch: newWatch(), logger: slog.New(slog.DiscardHandler), closing: closing,
		leads:   func() bool { mu.Lock(); defer mu.Unlock(); return leads },
		silence: func() { note(&silent, "silent") }, speak: func() { note(&silent, "speaks") },
		trouble: func(text string) { note(&said, text) },
		giveUp:  func(err error) { mu.Lock(); defer mu.Unlock(); gaveUp = err },
	}
	full := &syscallError{syscall.ENOSPC}
	heals := func(write func() error) {
		t.Helper()
		store.set(full, nil)
		done := make(chan error, 1)
		go func() { done <- write() }()
		require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(said) > 0 }, 10*time.Second, time.Millisecond)
		mu.Lock()
		first := said[0]
		mu.Unlock()
		require.Contains(t, first, "no space left in "+d.dir)
		store.set(nil, nil)
		require.NoError(t, <-done)
		require.False(t, d.isFull())
		mu.Lock()
		defer mu.Unlock()
		require.Empty(t, said[len(said)-1], "the trouble is over")
		said = nil
	}
	heals(func() error { return d.SetUint64([]byte("term"), 7) })
	mu.Lock()
	require.Equal(t, []string{"silent", "speaks"}, silent[:2])
	require.Equal(t, "speaks", silent[len(silent)-1])
	silent = nil
	mu.Unlock()
	heals(func() error { return d.StoreLogs([]*raft.Log{{Index: 1}}) })
	mu.Lock()
	require.Empty(t, silent, "a follower goes on to hear its leader")
	mu.Unlock()

	// A leader must not wait.
	store.set(full, nil)
	mu.Lock()
	leads = true
	mu.Unlock()
	require.ErrorIs(t, d.StoreLogs([]*raft.Log{{Index: 2}}), syscall.ENOSPC)
	store.set(nil, nil)
	require.True(t, d.isFull())
	d.look()
	require.False(t, d.isFull(), "without a write")
	mu.Lock()
	require.Empty(t, said[len(said)-1], "the trouble is over")
	mu.Unlock()
	require.NoError(t, d.StoreLogs([]*raft.Log{{Index: 2}}))
	surrender := func() error { mu.Lock(); defer mu.Unlock(); return gaveUp }
	require.NoError(t, surrender())

	// What else goes wrong is the end.
	broken := errors.New("input/output error")
	store.set(broken, nil)
	require.ErrorIs(t, d.StoreLogs([]*raft.Log{{Index: 3}}), broken)
	require.ErrorIs(t, surrender(), ErrDisk)
	require.ErrorIs(t, surrender(), broken)

	// A vote that can never be stored ends its goroutine with the node, and tells nobody that it succeeded.
	store.set(broken, nil)
	ended := make(chan struct{})
	returned := false
	go func() {
		defer close(ended)
		_ = d.SetUint64([]byte("vote"), 1)
		returned = true
	}()
	close(closing)
	<-ended
	require.False(t, returned)
}

// syscallError is an error as the os package wraps it.
type syscallError struct{ err error }

func (e *syscallError) Error() string { return "write: " + e.err.Error() }
func (e *syscallError) Unwrap() error { return e.err }
