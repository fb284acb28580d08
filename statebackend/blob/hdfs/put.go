package hdfs

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	client "github.com/colinmarc/hdfs/v2"

	"github.com/weir-stream/weir/statebackend/blob"
)

const (
	// smallObject is up to which size in bytes content is kept in memory, to be written again after a failure.
	smallObject = 1 << 20
	// tempPrefix begins the names of unfinished objects, which List leaves out.
	tempPrefix = ".weir-tmp-"
	// staleAge is how old one is that a crash has left behind; whoever writes removes it.
	staleAge = 24 * time.Hour
	// tidyTimeout bounds the removal of what a failed Put leaves.
	tidyTimeout = 10 * time.Second
	// publishTries is how often a parent directory may vanish under our hands, removed by whoever deleted the last object in it.
	publishTries = 10
)

func (b *bucket) Put(ctx context.Context, name string, r io.Reader) error {
	file, err := b.path(name)
	if err != nil {
		return err
	}
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
	case <-ctx.Done():
		return fmt.Errorf("put %s: %w", name, context.Cause(ctx))
	}
	if _, err := b.stat(ctx, file); err == nil {
		return b.wrap(ctx, "put", name, blob.ErrExists)
	} else if !errors.Is(err, os.ErrNotExist) {
		return b.wrap(ctx, "put", name, err)
	}
	src, err := newSource(ctx, r)
	if err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	b.sweep.once(ctx, b)
	temp := path.Join(b.root, tempPrefix+rand.Text())
	if err = b.write(ctx, temp, src); err == nil {
		err = b.publish(ctx, temp, file)
	}
	if err == nil {
		return nil
	}
	b.tidy(ctx, temp)
	if src.err != nil {
		return fmt.Errorf("put %s: %w", name, src.err)
	}
	return b.wrap(ctx, "put", name, err)
}

// write makes the temporary directory with the complete file in it.
func (b *bucket) write(ctx context.Context, temp string, src *source) error {
	var before error
	return b.do(ctx, func(s *session) (err error) {
		defer func() { before = err }()
		if before != nil {
			if !src.rewind() {
				return fmt.Errorf("%w: %w", errFinal, before)
			}
			if err := s.RemoveAll(temp); err != nil {
				return err
			}
		}
		if err := s.MkdirAll(temp, dirMode); err != nil {
			return err
		}
		name := path.Join(temp, object)
		w, err := s.Create(name)
		if err != nil {
			return err
		}
		n, err := io.Copy(w, src)
		if err == nil {
			err = w.Flush()
		}
		if err != nil {
			s.discard(w)
			return err
		}
		if err := finish(ctx, w); err != nil {
			return err
		}
		info, err := s.Stat(name)
		if err != nil {
			return err
		}
		if info.Size() != n {
			return fmt.Errorf("%d bytes were written, and there are %d", n, info.Size())
		}
		return nil
	})
}

// finish closes a file. The NameNode may ask to come again, until enough DataNodes have told it of the last block.
func finish(ctx context.Context, w *client.FileWriter) error {
	pause := 10 * time.Millisecond
	for {
		err := w.Close()
		if err == nil || !client.IsErrReplicating(err) {
			return err
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// publish gives the directory its name, unless that is taken.
func (b *bucket) publish(ctx context.Context, temp, file string) error {
	var err error
	for range publishTries {
		if err = b.do(ctx, func(s *session) error { return s.MkdirAll(path.Dir(file), dirMode) }); err != nil {
			return err
		}
		err = b.once(ctx, func(s *session) error { return s.Rename(temp, file) })
		if err == nil || !again(err) && !errors.Is(err, os.ErrNotExist) {
			break
		}
		if b.moved(ctx, temp, file) {
			return nil // the answer got lost
		}
	}
	if err == nil {
		return nil
	}
	if _, serr := b.stat(ctx, file); serr == nil {
		return blob.ErrExists
	}
	if _, ok := remote(err); ok {
		var there os.FileInfo
		if b.do(ctx, func(s *session) (err error) { there, err = s.Stat(file); return err }) == nil && there.IsDir() {
			return fmt.Errorf("%w: %w", errFolder, err)
		}
	}
	return err
}

// moved reports whether the temporary directory has become the object: nobody else renames it.
func (b *bucket) moved(ctx context.Context, temp, file string) bool {
	err := b.do(ctx, func(s *session) error { _, err := s.Stat(temp); return err })
	if !errors.Is(err, os.ErrNotExist) {
		return false
	}
	_, err = b.stat(ctx, file)
	return err == nil
}

// tidy removes what a Put has left, also when its context has ended.
func (b *bucket) tidy(ctx context.Context, temp string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer cancel()
	_ = b.once(ctx, func(s *session) error { return s.RemoveAll(temp) }) // the sweep finds it otherwise
}

// sweeper removes, once for a bucket, what crashes have left long ago.
type sweeper struct{ done sync.Once }

func (s *sweeper) once(ctx context.Context, b *bucket) {
	s.done.Do(func() {
		_ = b.once(ctx, func(s *session) error { return removeStale(s, b.root) })
	})
}

// removeStale compares with the time of a directory made now: our clock is another machine's.
func removeStale(s *session, root string) error {
	entries, err := s.ReadDir(root)
	if err != nil {
		return err
	}
	now := time.Time{}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		if now.IsZero() {
			probe := path.Join(root, tempPrefix+rand.Text())
			if err := s.Mkdir(probe, dirMode); err != nil {
				return err
			}
			info, err := s.Stat(probe)
			if err := errors.Join(err, s.Remove(probe)); err != nil {
				return err
			}
			now = info.ModTime()
		}
		if now.Sub(e.ModTime()) < staleAge {
			continue
		}
		if err := s.RemoveAll(path.Join(root, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// source is what a Put writes. It can be read again when it is small or a file.
type source struct {
	ctx   context.Context //nolint:containedctx // io.Reader takes none, and the reader lives for one call
	head  []byte
	rest  io.Reader // nil when head is all
	r     io.Reader
	err   error // of the reader, not of the storage
	seek  io.Seeker
	start int64
}

func newSource(ctx context.Context, r io.Reader) (*source, error) {
	s := &source{ctx: ctx}
	if seeker, ok := r.(io.Seeker); ok {
		if at, err := seeker.Seek(0, io.SeekCurrent); err == nil {
			s.seek, s.start = seeker, at
		}
	}
	s.r = r
	head, err := io.ReadAll(io.LimitReader(s, smallObject+1))
	if err != nil {
		return nil, err
	}
	s.head, s.r = head, bytes.NewReader(head)
	if len(head) > smallObject {
		s.rest = r
		s.r = io.MultiReader(s.r, r)
	}
	return s, nil
}

func (s *source) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		s.err = context.Cause(s.ctx)
		return 0, s.err
	}
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// rewind lets the content be read again, and reports whether it can.
func (s *source) rewind() bool {
	switch {
	case s.err != nil:
		return false
	case s.rest == nil:
		s.r = bytes.NewReader(s.head)
	case s.seek == nil:
		return false
	default:
		if _, s.err = s.seek.Seek(s.start, io.SeekStart); s.err != nil {
			return false
		}
		s.r = s.rest
	}
	return true
}
