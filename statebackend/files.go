package statebackend

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/statebackend/segment"
)

// files are the segment files that a backend has open, each once. It may be used from any goroutine.
type files struct {
	store SegmentStore

	mu   sync.Mutex
	open map[string]*openFile
	// held are the files whose local copies the store keeps, with the epoch whose snapshot uploaded each; 0 for one that was fetched.
	held map[string]uint64
}

type openFile struct {
	segment *segment.Segment
	users   int
}

// sources are open segments; release gives them back.
type sources struct {
	files *files
	names []string // empty for an inline segment
	list  []segment.Source
}

// acquire fetches and opens segments.
func (f *files) acquire(ctx context.Context, segments []*snapshotv1.Segment) (*sources, error) {
	const parallel = 16 // fetches and opens at a time; how many files are downloaded at a time is the store's to decide
	s := &sources{files: f, names: make([]string, len(segments)), list: make([]segment.Source, len(segments))}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, want := range segments {
		g.Go(func() error {
			opened, err := f.get(ctx, want)
			s.names[i], s.list[i] = want.GetName(), segment.Source{Segment: opened, Groups: rangeOf(want.GetKeyGroups())}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

func (f *files) get(ctx context.Context, want *snapshotv1.Segment) (*segment.Segment, error) {
	name := want.GetName()
	if name == "" {
		return openSegment(ctx, f.store, want)
	}
	if s := f.use(name, nil); s != nil {
		return s, nil
	}
	f.hold(name, 0)
	opened, err := openSegment(ctx, f.store, want)
	if err != nil {
		return nil, err
	}
	used := f.use(name, opened)
	if used != opened { // another was faster
		return used, opened.Close()
	}
	return used, nil
}

// use counts one more user of an open file, which is opened unless there is one already.
func (f *files) use(name string, opened *segment.Segment) *segment.Segment {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.open[name]
	if o == nil {
		if opened == nil || name == "" {
			return opened
		}
		o = &openFile{segment: opened}
		if f.open == nil {
			f.open = map[string]*openFile{}
		}
		f.open[name] = o
	}
	o.users++
	return o.segment
}

// prepare makes lookups in segments faster, as many as take no more than some bytes of memory with those that are prepared already. It reads
// a little of each that is new. When it fails it gives the segments back.
func (s *sources) prepare(bytes int64) error {
	for _, source := range s.list {
		bytes -= source.Segment.Held()
	}
	for _, source := range s.list {
		cost := source.Segment.PrepareCost()
		if cost > bytes {
			continue
		}
		bytes -= cost
		if err := source.Segment.Prepare(); err != nil {
			return errors.Join(err, s.release())
		}
	}
	return nil
}

// held is what the segments take in memory.
func (s *sources) held() (bytes int64) {
	for _, source := range s.list {
		bytes += source.Segment.Held()
	}
	return bytes
}

// share returns the same segments for another user.
func (s *sources) share() *sources {
	shared := &sources{files: s.files, names: s.names, list: slices.Clone(s.list)}
	for i, name := range s.names {
		s.files.use(name, s.list[i].Segment)
	}
	return shared
}

// release gives the segments back; whoever is last closes them. Cursors on them must be closed before.
func (s *sources) release() error {
	var errs []error
	for i, source := range s.list {
		if source.Segment == nil {
			continue
		}
		if s.files.unuse(s.names[i]) {
			errs = append(errs, source.Segment.Close())
		}
		s.list[i].Segment = nil
	}
	return errors.Join(errs...)
}

// unuse counts one user less and reports whether there is none left.
func (f *files) unuse(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.open[name]
	if o == nil {
		return true // inline
	}
	if o.users--; o.users > 0 {
		return false
	}
	delete(f.open, name)
	return true
}
