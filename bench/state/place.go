package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-stream/weir/codec"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/taskmanager/segmentstore"
)

// place is checkpoint storage and a TaskManager's local copies, in a directory.
type place struct {
	dir     string
	bucket  blob.Bucket
	store   *segmentstore.Store
	scope   *segmentstore.Scope
	written atomic.Uint64
	attempt int
	deletes sync.WaitGroup
}

func newPlace(ctx context.Context, parent string) (*place, error) {
	dir, err := os.MkdirTemp(parent, "weir-bench-state-")
	if err != nil {
		return nil, err
	}
	p := &place{dir: dir}
	if p.bucket, err = blob.OpenURL(ctx, "file://"+filepath.Join(dir, "storage")); err != nil {
		return nil, err
	}
	p.store, err = segmentstore.Open(segmentstore.Config{Dir: filepath.Join(dir, "cache"), Bucket: p.bucket, MaxBytes: 4 << 30})
	if err != nil {
		return nil, err
	}
	p.scope = p.store.Scope()
	return p, nil
}

func (p *place) close() {
	p.deletes.Wait()
	_ = p.store.Close()
	_ = p.bucket.Close()
	_ = os.RemoveAll(p.dir)
}

// Upload implements statebackend.SegmentStore.
func (p *place) Upload(ctx context.Context, localPath, name string, size uint64, crc32c uint32) error {
	p.written.Add(size)
	return p.scope.Upload(ctx, localPath, name, size, crc32c)
}

// Fetch implements statebackend.SegmentStore.
func (p *place) Fetch(ctx context.Context, s *snapshotv1.Segment) (string, error) {
	return p.scope.Fetch(ctx, s)
}

// Release implements statebackend.LocalCopies.
func (p *place) Release(ctx context.Context, names ...string) error {
	return p.scope.Release(ctx, names...)
}

// Distrust implements statebackend.LocalCopies.
func (p *place) Distrust(ctx context.Context, names ...string) error {
	return p.scope.Distrust(ctx, names...)
}

// restart stands for a worker process that is gone.
func (p *place) restart() {
	p.scope.Close()
	p.scope = p.store.Scope()
}

// state is a task's state with one value per key.
type state[V any] struct {
	*statebackend.Backend[uint64]
	values *statebackend.Value[uint64, V]
	post   chan func() error
	place  *place
	next   uint64
	last   *snapshotv1.KeyedSnapshot
	pauses []time.Duration
	writes []time.Duration
	most   uint64
}

func open[V any](ctx context.Context, p *place, memory int64, restored ...*snapshotv1.KeyedSnapshot) (*state[V], error) {
	p.attempt++
	kc, err := codec.ForKey[uint64]()
	if err != nil {
		return nil, err
	}
	vc, err := codec.For[V]()
	if err != nil {
		return nil, err
	}
	s := &state[V]{post: make(chan func() error, 1), place: p}
	s.Backend = statebackend.New(statebackend.Config{
		Operator: "bench", KeyGroups: keygroup.Range{Last: keygroup.DefaultMaxParallelism - 1},
		Dir: filepath.Join(p.dir, "scratch"), NamePrefix: fmt.Sprintf("c/jobs/j/state/%d/v-0/bench", p.attempt), Segments: p,
		Restored: restored, MemoryBudget: memory, Post: func(fn func() error) { s.post <- fn },
	}, kc)
	s.values = statebackend.NewValue(s.Backend, "values", vc)
	return s, s.Open(ctx)
}

// mail runs what was posted, as a task does between records.
func (s *state[V]) mail() error {
	for {
		select {
		case fn := <-s.post:
			if err := fn(); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// freeze takes a snapshot; the result comes once it is written.
func (s *state[V]) freeze(ctx context.Context) (uint64, chan result) {
	s.next++
	began := time.Now()
	f := s.Freeze(s.next, false)
	s.pauses = append(s.pauses, time.Since(began))
	done := make(chan result, 1)
	go func() {
		began := time.Now()
		h, err := f.Write(ctx)
		done <- result{h, err, time.Since(began)}
	}()
	return s.next, done
}

type result struct {
	handle *snapshotv1.KeyedSnapshot
	err    error
	took   time.Duration
}

// complete takes note of a written snapshot, and deletes files that it does not name.
func (s *state[V]) complete(ctx context.Context, n uint64, r result) error {
	if r.err != nil {
		return r.err
	}
	s.writes = append(s.writes, r.took)
	began := time.Now()
	s.CheckpointCompleted(n)
	s.pauses = append(s.pauses, time.Since(began))
	names, size := map[string]bool{}, uint64(0)
	for _, g := range r.handle.GetSegments() {
		names[g.GetName()] = true
		size += g.GetSize()
	}
	for _, g := range s.last.GetSegments() {
		if g.GetName() != "" && !names[g.GetName()] {
			s.place.deletes.Go(func() { _ = s.place.bucket.Delete(ctx, g.GetName()) }) // as the JobManager does, aside
		}
	}
	s.most = max(s.most, size)
	s.last = r.handle
	return nil
}

// oldestBase is the checkpoint that wrote the oldest part of the base.
func (s *state[V]) oldestBase() (oldest uint64) {
	for _, g := range s.last.GetSegments() {
		if g.GetBase() && (oldest == 0 || g.GetCheckpoint() < oldest) {
			oldest = g.GetCheckpoint()
		}
	}
	return oldest
}

func (s *state[V]) checkpoint(ctx context.Context) error {
	n, done := s.freeze(ctx)
	for {
		select {
		case r := <-done:
			return s.complete(ctx, n, r)
		case fn := <-s.post:
			if err := fn(); err != nil {
				return err
			}
		}
	}
}

func (s *state[V]) shut() error {
	stop := make(chan struct{})
	go func() { // a loader that is about to post
		for {
			select {
			case <-s.post:
			case <-stop:
				return
			}
		}
	}()
	defer close(stop)
	return s.Close()
}

func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Clone(d)
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))].Round(10 * time.Microsecond)
}

func random(n int) uint64 { return rand.Uint64N(uint64(n)) }
