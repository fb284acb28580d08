package statebackend_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/codec"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/statetest"
)

// uploadsAtATime is how many files of one snapshot are on their way at a time.
const uploadsAtATime = 8

const manyKeys = 3000

// gate is a store of which a test decides when uploads end.
type gate struct {
	*statetest.Store
	// pass is called by each upload before it does anything.
	pass func(ctx context.Context, name string) error

	mu       sync.Mutex
	now, top int
	begun    []string
	released map[string]bool
	// unreachable has releases fail.
	unreachable bool

	unwritable atomic.Bool
}

func (g *gate) Upload(ctx context.Context, localPath, name string, size uint64, crc32c uint32) error {
	g.mu.Lock()
	g.now++
	g.top = max(g.top, g.now)
	g.begun = append(g.begun, name)
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.now--
	}()
	if err := g.pass(ctx, name); err != nil {
		return err
	}
	return g.Store.Upload(ctx, localPath, name, size, crc32c)
}

func (g *gate) Release(_ context.Context, names ...string) error {
	if g.unreachable {
		return errors.New("no answer")
	}
	for _, name := range names {
		g.released[name] = true
	}
	return nil
}

func (g *gate) Distrust(context.Context, ...string) error { return nil }

var errUnwritable = errors.New("this value cannot be encoded")

// picky encodes until it is told not to.
type picky struct {
	codec.Codec[string]
	g *gate
}

func (p picky) Append(dst []byte, v string) ([]byte, error) {
	if p.g.unwritable.Load() {
		return nil, errUnwritable
	}
	return p.Codec.Append(dst, v)
}

func manyFiles(t *testing.T, g *gate) (single[string], statebackend.Config) {
	cfg := config(t, g.Store)
	cfg.Segments = g
	b := statebackend.New(cfg, mustKey[string](t))
	statebackend.ShrinkLimits(b)
	v := statebackend.NewValue(b, "v", codec.Codec[string](picky{mustCodec[string](t), g}))
	require.NoError(t, b.Open(t.Context()))
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	put(t, v, "old")
	return single[string]{b, v}, cfg
}

func put(t *testing.T, v *statebackend.Value[string, string], value string) {
	for i := range manyKeys {
		require.NoError(t, v.Put(fmt.Sprint("key", i), value+strings.Repeat("v", 100)))
	}
}

// The files of a snapshot are uploaded beside each other, and begin to be before all of them are written, so many at a time and no more.
func TestFilesOfASnapshotAreUploadedTogether(t *testing.T) {
	full := make(chan struct{})
	g := &gate{Store: statetest.NewStore(t.TempDir()), released: map[string]bool{}}
	var once sync.Once
	g.pass = func(ctx context.Context, _ string) error {
		g.mu.Lock()
		if g.now == uploadsAtATime {
			once.Do(func() { close(full) })
		}
		g.mu.Unlock()
		select { // the first ones wait for as many as there may be
		case <-full:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Minute):
			return errors.New("uploads wait for each other")
		}
	}
	b, cfg := manyFiles(t, g)
	for n := uint64(1); n <= 3; n++ { // a first snapshot, a base made at once, and one more
		h := write(t, b.Backend, n)
		b.CheckpointCompleted(n)
		put(t, b.v, fmt.Sprint(n))
		require.NotEmpty(t, h.GetSegments())
	}
	require.Equal(t, uploadsAtATime, g.top)
	require.Greater(t, len(g.begun), 2*uploadsAtATime)
	left, err := os.ReadDir(cfg.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// One upload that fails ends the others and the writing; nothing stays on the disk, the store keeps no copies, and the next snapshot has
// everything.
func TestAnUploadThatFailsEndsTheOthers(t *testing.T) {
	broken := errors.New("the disk is broken")
	g := &gate{Store: statetest.NewStore(t.TempDir()), released: map[string]bool{}}
	g.pass = func(ctx context.Context, name string) error {
		if strings.HasSuffix(name, "/1-3") {
			return broken
		}
		<-ctx.Done() // ends with the one that fails only
		return ctx.Err()
	}
	b, cfg := manyFiles(t, g)
	_, err := b.Freeze(1, false).Write(t.Context())
	require.ErrorIs(t, err, broken)
	var storage *statebackend.StorageError
	require.ErrorAs(t, err, &storage)
	left, err := os.ReadDir(cfg.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Empty(t, g.Names())
	failed := g.begun
	require.LessOrEqual(t, len(failed), uploadsAtATime)

	g.pass = func(context.Context, string) error { return nil }
	h := write(t, b.Backend, 2)
	for _, name := range failed {
		require.True(t, g.released[name], "%s may be held: the upload was given up, not refused", name)
	}
	requireOld(t, g, h)
}

// A snapshot that is given up ends its uploads.
func TestASnapshotThatIsGivenUpEndsItsUploads(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := &gate{Store: statetest.NewStore(t.TempDir()), released: map[string]bool{}}
	g.pass = func(ctx context.Context, _ string) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	b, cfg := manyFiles(t, g)
	_, err := b.Freeze(1, false).Write(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, g.now, "all of them have ended")
	left, err := os.ReadDir(cfg.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
	g.pass = func(context.Context, string) error { return nil }
	requireOld(t, g, write(t, b.Backend, 2))
}

// A snapshot that cannot be written ends the uploads that have begun.
func TestASnapshotThatCannotBeWrittenEndsItsUploads(t *testing.T) {
	g := &gate{Store: statetest.NewStore(t.TempDir()), released: map[string]bool{}}
	g.pass = func(ctx context.Context, name string) error {
		g.unwritable.Store(true)
		if strings.HasSuffix(name, "-0") {
			<-ctx.Done()
		}
		return ctx.Err()
	}
	b, cfg := manyFiles(t, g)
	_, err := b.Freeze(1, false).Write(t.Context())
	require.ErrorIs(t, err, errUnwritable)
	require.NotEmpty(t, g.begun)
	require.Zero(t, g.now, "all of them have ended")
	left, err := os.ReadDir(cfg.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func requireOld(t *testing.T, g *gate, h *snapshotv1.KeyedSnapshot) {
	restored := newSingle[string](t, config(t, g.Store, h))
	for i := range manyKeys {
		v, ok, err := restored.v.Get(fmt.Sprint("key", i))
		require.NoError(t, err)
		require.True(t, ok)
		require.True(t, strings.HasPrefix(v, "old"), v)
	}
}

// Local copies of which the store could not be told that nothing needs them are released with a later snapshot.
func TestAReleaseThatFailsIsTriedAgain(t *testing.T) {
	g := &gate{Store: statetest.NewStore(t.TempDir()), released: map[string]bool{}}
	g.pass = func(context.Context, string) error { return nil }
	b, _ := manyFiles(t, g)
	first := 0
	for n := uint64(1); n <= 5; n++ {
		put(t, b.v, fmt.Sprint(n))
		g.unreachable = n < 4 // the first files are of no more use from 3 on at the latest
		_, err := b.Freeze(n, true).Write(t.Context())
		require.NoError(t, err)
		b.CheckpointCompleted(n)
		if n == 1 {
			first = len(g.begun)
		}
	}
	require.Positive(t, first)
	for _, name := range g.begun[:first] {
		require.True(t, g.released[name], name)
	}
}
