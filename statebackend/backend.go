package statebackend

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"

	"github.com/weir-stream/weir/codec"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend/segment"
)

// Backend is the keyed state of one operator instance.
type Backend[K comparable] struct {
	core *core
	key  codec.Key[K]
	// expecting are the states that want to know of keys to come.
	expecting []expecting[K]
}

// New returns a backend for keys of type K. States are declared on it before it is opened.
func New[K comparable](cfg Config, key codec.Key[K]) *Backend[K] {
	if cfg.MaxParallelism == 0 {
		cfg.MaxParallelism = keygroup.DefaultMaxParallelism
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Backend[K]{core: &core{
		cfg: cfg, epoch: 1, limits: defaultLimits, files: files{store: cfg.Segments}, memory: memory{budget: cfg.MemoryBudget}, assumed: 64,
	}, key: key}
}

// Open matches the declared states with the restored ones, which takes an error that is ErrSchema when they do not fit, and opens the
// restored segments. ctx ends the fetching of segments, not the loading of rows, which goes on until Close.
func (b *Backend[K]) Open(ctx context.Context) error {
	for _, d := range b.core.states {
		if e, ok := d.state.(expecting[K]); ok {
			b.expecting = append(b.expecting, e)
		}
	}
	return b.core.open(ctx)
}

// Freeze fixes the state as it is now for a checkpoint; with full the snapshot will refer to no older segment. It takes constant time.
// The caller either writes the frozen state or discards it.
func (b *Backend[K]) Freeze(checkpoint uint64, full bool) *Frozen {
	return b.core.freeze(checkpoint, full)
}

// CheckpointCompleted tells that checkpoint n is completed. Notices may be late, repeated, or for unknown checkpoints.
func (b *Backend[K]) CheckpointCompleted(n uint64) { b.core.checkpointCompleted(n) }

// Bytes estimates the size of the state in bytes.
func (b *Backend[K]) Bytes() int64 { return b.core.bytes() }

// Over reports whether the state in memory exceeds the memory budget with everything evicted that could be. It is for each record.
func (b *Backend[K]) Over() bool { return b.core.memory.excess > 0 }

// Expects reports whether Expect would be of use.
func (b *Backend[K]) Expects() bool {
	for _, e := range b.expecting {
		if e.expects() {
			return true
		}
	}
	return false
}

// Expect tells that records with keys are about to be handled, so that what memory has of them is under way when they are, and that rows
// which were evicted are read, those of all keys at a time. To who asks for a row it changes nothing. It is for a few dozen keys at a time.
func (b *Backend[K]) Expect(keys []K) {
	for _, e := range b.expecting {
		if e.expects() {
			e.expect(keys)
		}
	}
}

// expecting is implemented by states that have rows by key.
type expecting[K comparable] interface {
	// expects reports whether the state is large.
	expects() bool
	expect(keys []K)
}

// Pressure tells how the state in memory stands with the memory budget. It costs nothing.
func (b *Backend[K]) Pressure() Pressure { return b.core.pressure() }

// Close ends the loading of rows and releases the segments. It does not wait for a Frozen.Write that is running.
func (b *Backend[K]) Close() error { return b.core.close() }

// core is the part of a backend that does not depend on the type of keys.
type core struct {
	cfg     Config
	states  []*declaration
	byID    map[uint16]*declaration
	maps    []bool // by id, for maps: of their rows only a part of the key is in Bloom filters
	dropped []*snapshotv1.StateSchema

	// epoch is the current one. Epochs up to completed are covered by the last completed checkpoint, and versions of epochs up to
	// released are referred to by no snapshot being written.
	epoch, completed, released uint64
	version                    // of the last completed checkpoint
	frozen                     []*Frozen

	// mode tells whether tables lack rows; chain reads them from segments, which have all changes up to epoch covered.
	mode    residence
	chain   *chain
	covered uint64
	files   files
	scratch []byte
	memory  memory
	// absent, questions and refs are memory to use.
	absent    []int
	questions []segment.Question
	refs      []uint32
	// assumed is the size of an encoded row of which none was measured.
	assumed int64
	// aging are the states whose entries expire.
	aging []*expiry

	stop       context.CancelFunc
	background sync.WaitGroup
	// generation tells loaders apart: rows of one that was stopped are dropped.
	generation int
	closed     bool

	limits limits
}

func (c *core) declare(d *declaration, s state) {
	d.state = s
	c.states = append(c.states, d)
}

func (c *core) open(ctx context.Context) error {
	if err := c.adopt(); err != nil {
		return err
	}
	c.byID = make(map[uint16]*declaration, len(c.states))
	for _, d := range c.states {
		c.byID[d.id] = d
		if d.kind == kindMap {
			c.maps = append(c.maps, make([]bool, max(0, int(d.id)+1-len(c.maps)))...)
			c.maps[d.id] = true
		}
	}
	var err error
	if c.segments, err = c.clipRestored(); err != nil {
		return err
	}
	if len(c.segments) == 0 {
		return nil
	}
	c.assume()
	sources, err := c.files.acquire(ctx, c.segments)
	if err != nil {
		return fmt.Errorf("restore operator %s: %w", c.cfg.Operator, err)
	}
	c.mode = loading
	if !c.fits(3. / 4) {
		c.mode = partial
	}
	if c.chain, err = openChain(sources, c.filterLen); err != nil {
		return fmt.Errorf("restore operator %s: %w", c.cfg.Operator, err)
	}
	for _, d := range c.states {
		if err := d.state.restore(); err != nil {
			return fmt.Errorf("restore operator %s, state %q: %w", c.cfg.Operator, d.name, err)
		}
	}
	if c.cfg.Post != nil && c.mode == loading {
		c.startLoader()
	}
	return nil
}

func openSegment(ctx context.Context, store SegmentStore, s *snapshotv1.Segment) (*segment.Segment, error) {
	if v := s.GetFormatVersion(); !segment.Readable(v) {
		return nil, fmt.Errorf("%w: segment %s has format %d, this version reads up to format %d", ErrSchema, s.GetName(), v, segment.BoundedFormat)
	}
	if s.GetName() == "" {
		content := s.GetInline()
		if uint64(len(content)) != s.GetSize() || segment.Checksum(content) != s.GetCrc32C() {
			return nil, fmt.Errorf("%w: inline segment of checkpoint %d", segment.ErrCorrupt, s.GetCheckpoint())
		}
		return segment.OpenInline(content)
	}
	opened, err := fetchSegment(ctx, store, s)
	if copies, ok := store.(LocalCopies); ok && errors.Is(err, segment.ErrCorrupt) {
		if err := copies.Distrust(ctx, s.GetName()); err != nil {
			return nil, storageError("open state segment "+s.GetName(), err)
		}
		opened, err = fetchSegment(ctx, store, s)
	}
	if errors.Is(err, fs.ErrNotExist) {
		opened, err = fetchSegment(ctx, store, s) // the copy made room for another in between
	}
	if errors.Is(err, segment.ErrCorrupt) {
		return nil, &LostError{Name: s.GetName(), Err: err}
	}
	if err != nil {
		return nil, storageError("open state segment "+s.GetName(), err)
	}
	return opened, nil
}

func fetchSegment(ctx context.Context, store SegmentStore, s *snapshotv1.Segment) (*segment.Segment, error) {
	path, err := store.Fetch(ctx, s)
	if err != nil {
		return nil, storageError("fetch state segment "+s.GetName(), err)
	}
	return segment.Open(path, s.GetSize())
}

// storageError gives an error of the store its type, unless it has one and with it names the file.
func storageError(op string, err error) error {
	var storage *StorageError
	var lost *LostError
	if errors.As(err, &storage) || errors.As(err, &lost) {
		return err
	}
	return &StorageError{Op: op, Err: err}
}

func (c *core) filterLen(row []byte) int {
	if id := segment.State(row); int(id) < len(c.maps) && c.maps[id] {
		return c.byID[id].filterLen(row)
	}
	return len(row)
}

func (c *core) decodeError(row []byte, err error) error {
	name := "unknown"
	if len(row) >= segment.PrefixSize {
		if d := c.byID[segment.State(row)]; d != nil {
			name = d.name
		}
	}
	return fmt.Errorf("operator %s, state %q: decode restored row %x: %w", c.cfg.Operator, name, row, err)
}

func (c *core) bytes() (n int64) {
	n = c.used()
	if c.mode == resident {
		return n
	}
	var stored int64
	for _, s := range c.segments {
		stored += int64(s.GetSize())
	}
	return max(n, stored)
}

func (c *core) close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	if c.stop != nil {
		c.stop()
	}
	c.background.Wait()
	for _, f := range c.frozen {
		c.retire(f.chain.Swap(closedChain))
	}
	c.retire(c.chain)
	c.background.Wait()
	return nil
}
