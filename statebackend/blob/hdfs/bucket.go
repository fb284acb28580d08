package hdfs

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/statebackend/blob/internal/steady"
)

const (
	// object is the file in an object's directory.
	object = ".weir-object"
	// attempts is how often a request is made; the pauses between them double from firstPause to maxPause, with jitter.
	attempts   = 6
	firstPause = 100 * time.Millisecond
	maxPause   = 3 * time.Second
	// dirMode is that of directories; the NameNode's umask does not apply to what clients of this kind create.
	dirMode = 0o755
)

type bucket struct {
	url   string
	shown string // url without its parameters
	root  string
	pool  *pool
	slots chan struct{} // holds a token for each Put

	sweep sweeper
}

var _ blob.Bucket = (*bucket)(nil)

func (b *bucket) URL() string { return b.url }

func (b *bucket) Close() error {
	b.pool.close()
	return nil
}

// escape hides what HDFS does not allow in a path; % keeps the way back.
func escape(name string) string { return strings.NewReplacer("%", "%25", ":", "%3A").Replace(name) }

func unescape(name string) string { return strings.NewReplacer("%3A", ":", "%25", "%").Replace(name) }

func (b *bucket) path(name string) (string, error) {
	if err := blob.CheckName(name); err != nil {
		return "", err
	}
	return path.Join(b.root, escape(name)), nil
}

// retry does something again as long as that may help.
func retry(ctx context.Context, fn func() error) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval, pause.Multiplier = firstPause, maxPause, 2
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := fn()
		if err != nil && !again(err) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pause), backoff.WithMaxTries(attempts))
	var p *backoff.PermanentError
	if errors.As(err, &p) {
		return p.Unwrap()
	}
	return err
}

// do has a client do something, again with another one as long as that may help.
func (b *bucket) do(ctx context.Context, fn func(s *session) error) error {
	return retry(ctx, func() error { return b.once(ctx, fn) })
}

func (b *bucket) once(ctx context.Context, fn func(s *session) error) error {
	s, err := b.pool.acquire(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, s.abort)
	err = fn(s)
	b.pool.release(s, stop() && answered(err))
	return err
}

func (b *bucket) stat(ctx context.Context, file string) (info os.FileInfo, err error) {
	err = b.do(ctx, func(s *session) (err error) {
		info, err = s.Stat(path.Join(file, object))
		return err
	})
	return info, err
}

func (b *bucket) Stat(ctx context.Context, name string) (blob.Attributes, error) {
	file, err := b.path(name)
	if err != nil {
		return blob.Attributes{}, err
	}
	info, err := b.stat(ctx, file)
	if err != nil {
		return blob.Attributes{}, b.wrap(ctx, "stat", name, err)
	}
	return blob.Attributes{Name: name, Size: info.Size(), ModTime: info.ModTime()}, nil
}

func (b *bucket) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	file, err := b.path(name)
	if err != nil {
		return nil, err
	}
	r, err := b.openAt(ctx, file, 0)
	if err != nil {
		return nil, b.wrap(ctx, "open", name, err)
	}
	return &named{steady.NewReader(ctx, r, r.size, func(ctx context.Context, offset int64) (io.ReadCloser, error) {
		return b.openAt(ctx, file, offset)
	}), b, ctx, name}, nil
}

// named explains the errors of a reader.
type named struct {
	*steady.Reader
	b    *bucket
	ctx  context.Context //nolint:containedctx // io.Reader takes none, and the reader lives for one object
	name string
}

func (n *named) Read(p []byte) (int, error) {
	k, err := n.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = n.b.wrap(n.ctx, "read", n.name, err)
	}
	return k, err
}

// held is a file that is read by a client of its own.
type held struct {
	io.ReadCloser
	size int64
	p    *pool
	s    *session
	stop func() bool
	bad  bool
}

func (h *held) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.bad = h.bad || err != nil && !errors.Is(err, io.EOF)
	return n, err
}

func (h *held) Close() error {
	_ = h.ReadCloser.Close() // nothing was written
	h.p.release(h.s, h.stop() && !h.bad)
	return nil
}

func (b *bucket) openAt(ctx context.Context, file string, offset int64) (h *held, err error) {
	err = retry(ctx, func() error {
		s, err := b.pool.acquire(ctx)
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, s.abort)
		f, err := s.Open(path.Join(file, object))
		if err == nil && offset > 0 {
			_, err = f.Seek(offset, io.SeekStart)
		}
		if err != nil {
			b.pool.release(s, stop() && answered(err))
			return err
		}
		h = &held{ReadCloser: f, size: f.Stat().Size(), p: b.pool, s: s, stop: stop}
		return nil
	})
	return h, err
}

func (b *bucket) Delete(ctx context.Context, name string) error {
	file, err := b.path(name)
	if err != nil {
		return err
	}
	err = b.do(ctx, func(s *session) error { return s.Remove(path.Join(file, object)) })
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return b.wrap(ctx, "delete", name, err)
	}
	b.prune(ctx, file)
	return nil
}

// prune removes a directory and those above it as far as they are empty: HDFS refuses one that is in use.
func (b *bucket) prune(ctx context.Context, dir string) {
	for dir != b.root && dir != "/" {
		if b.do(ctx, func(s *session) error { return s.Remove(dir) }) != nil {
			return
		}
		dir = path.Dir(dir)
	}
}

func (b *bucket) List(ctx context.Context, prefix string) iter.Seq2[blob.Attributes, error] {
	return func(yield func(blob.Attributes, error) bool) {
		l := lister{b: b, ctx: ctx, prefix: prefix, yield: yield}
		dir := prefix[:strings.LastIndexByte(prefix, '/')+1]
		entries, err := l.read(dir)
		if err == nil {
			_, err = l.walk(dir, entries)
		}
		if err != nil {
			yield(blob.Attributes{}, b.wrap(ctx, "list", prefix, err))
		}
	}
}
