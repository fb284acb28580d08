// Package blobstore lets the file sink write to object stores through gocloud.dev/blob: S3, Google Cloud Storage, Azure and what is
// compatible with them. The driver is the caller's, so that a job links only the one it uses.
//
// An object has no part that can be seen: it is there when its upload is complete. A finished file is a copy of the pending object, made by
// the store itself, which removes the pending one afterwards.
package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	filesink "github.com/weir-stream/weir/sinks/file"
)

// Bucket is a bucket, or a part of it, that open opens, once for each subtask, which closes it. name is for people. For a part of a bucket
// let open return blob.PrefixedBucket(b, "orders/").
//
//	blobstore.Bucket("s3://results", func(ctx context.Context) (*blob.Bucket, error) {
//		return blob.OpenBucket(ctx, "s3://results?region=eu-central-1") // with a blank import of gocloud.dev/blob/s3blob
//	})
func Bucket(name string, open func(ctx context.Context) (*blob.Bucket, error)) filesink.Place {
	return place{name, open}
}

type place struct {
	name string
	open func(context.Context) (*blob.Bucket, error)
}

func (p place) String() string { return "bucket " + p.name }

func (p place) Validate() error {
	if p.open == nil {
		return errors.New("no function given that opens the bucket")
	}
	return nil
}

func (p place) Open(ctx context.Context) (filesink.Store, error) {
	// Some drivers keep the context for as long as the bucket lives.
	b, err := p.open(context.WithoutCancel(ctx))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p, err)
	}
	ok, err := b.IsAccessible(ctx)
	if err == nil && !ok {
		err = errors.New("it does not exist, or the login may not see it")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", p, err), b.Close())
	}
	return store{b}, nil
}

type store struct{ b *blob.Bucket }

// wrap makes a missing object fs.ErrNotExist.
func wrap(err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

func (s store) Create(ctx context.Context, name string) (filesink.File, error) {
	ctx, cancel := context.WithCancel(ctx)
	w, err := s.b.NewWriter(ctx, name, &blob.WriterOptions{ContentType: "application/octet-stream"})
	if err != nil {
		cancel()
		return nil, err
	}
	return &file{w, cancel}, nil
}

// file is an upload. Its context is canceled to give it up; only its close makes the object.
type file struct {
	*blob.Writer
	cancel context.CancelFunc
}

func (f *file) Seal(ctx context.Context) error {
	defer f.cancel()
	defer context.AfterFunc(ctx, f.cancel)()
	return f.Close()
}

func (f *file) Discard() error {
	f.cancel()
	_ = f.Close() // it tells that the context is canceled
	return nil
}

func (s store) Publish(ctx context.Context, from, to string) error {
	if err := s.b.Copy(ctx, to, from, nil); err != nil {
		return wrap(err)
	}
	return s.Remove(ctx, from)
}

func (s store) Exists(ctx context.Context, name string) (bool, error) { return s.b.Exists(ctx, name) }

func (s store) Read(ctx context.Context, name string) ([]byte, error) {
	data, err := s.b.ReadAll(ctx, name)
	return data, wrap(err)
}

func (s store) Replace(ctx context.Context, name string, data []byte) error {
	return s.b.WriteAll(ctx, name, data, &blob.WriterOptions{ContentType: "text/plain"})
}

func (s store) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for it := s.b.List(&blob.ListOptions{Prefix: prefix}); ; {
			object, err := it.Next(ctx)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield("", err)
				return
			}
			if !yield(object.Key, nil) {
				return
			}
		}
	}
}

func (s store) Remove(ctx context.Context, name string) error {
	if err := wrap(s.b.Delete(ctx, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (s store) Close() error { return s.b.Close() }
