package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	gocloud "gocloud.dev/blob"

	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/statebackend/blob/internal/steady"
)

const (
	// smallObject is up to which size in bytes an object is sent from memory.
	smallObject = 1 << 20
	// partBytes and partsAtATime are those of one upload.
	partBytes    = 8 << 20
	partsAtATime = 3
	// mark is the key of the metadata that tells a Put its own object.
	mark = "weir-put"
	// recognise bounds the question whether an object is our own.
	recognise = 10 * time.Second
	// tidyTimeout bounds giving an upload up.
	tidyTimeout = 10 * time.Second
)

type bucket struct {
	url         string
	shown       string // url without its parameters
	server      string
	prefix      string // empty or with a slash at the end
	name        string
	client      *awss3.Client
	objects     *gocloud.Bucket
	credentials aws.CredentialsProvider
	transport   *http.Transport
	conditional bool
	large       chan struct{} // holds a token for each upload in parts

	checking chan struct{} // is a mutex of checked that a context can leave
	checked  bool          // the server is known to honour conditions
}

var _ blob.Bucket = (*bucket)(nil)

func (b *bucket) URL() string { return b.url }

func (b *bucket) Close() error {
	err := b.objects.Close()
	b.transport.CloseIdleConnections()
	return err
}

func (b *bucket) Put(ctx context.Context, name string, r io.Reader) error {
	if err := blob.CheckName(name); err != nil {
		return err
	}
	if err := b.ready(ctx); err != nil {
		return err
	}
	head, err := io.ReadAll(io.LimitReader(contextReader{ctx, r}, smallObject+1))
	if err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	src := &source{r: bytes.NewReader(head)}
	if len(head) > smallObject {
		select {
		case b.large <- struct{}{}:
			defer func() { <-b.large }()
		case <-ctx.Done():
			return fmt.Errorf("put %s: %w", name, context.Cause(ctx))
		}
		src.r = io.MultiReader(src.r, contextReader{ctx, r})
	}
	if !b.conditional {
		if _, err := b.objects.Attributes(ctx, b.prefix+name); err == nil {
			return fmt.Errorf("put %s: %w", name, blob.ErrExists)
		}
	}
	token := rand.Text()
	err = b.write(ctx, name, src, token)
	switch {
	case err == nil:
		return nil
	case src.err != nil:
		return fmt.Errorf("put %s: %w", name, src.err)
	case ctx.Err() != nil:
		return fmt.Errorf("put %s: %w", name, context.Cause(ctx))
	}
	if b.ours(ctx, name, token) {
		return nil // the answer to an earlier attempt got lost
	}
	return b.wrap(ctx, "put", name, err)
}

// write uploads what src gives. An error leaves no object and, as far as the server answers, no parts.
func (b *bucket) write(ctx context.Context, name string, src io.Reader, token string) error {
	key := b.prefix + name
	err := b.objects.Upload(ctx, key, src, &gocloud.WriterOptions{
		ContentType: "application/octet-stream", DisableContentTypeDetection: true,
		BufferSize: partBytes, MaxConcurrency: partsAtATime, IfNotExist: b.conditional, Metadata: map[string]string{mark: token},
	})
	var parts interface{ UploadID() string }
	if ctx.Err() != nil && errors.As(err, &parts) {
		// The SDK has tried that with a context that has ended.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
		defer cancel()
		id := parts.UploadID()
		_, _ = b.client.AbortMultipartUpload(ctx, &awss3.AbortMultipartUploadInput{Bucket: &b.name, Key: &key, UploadId: &id}) // the store's rule for them remains
	}
	return err
}

// ours reports whether the object is the one that token marks.
func (b *bucket) ours(ctx context.Context, name, token string) bool {
	ctx, cancel := context.WithTimeout(ctx, recognise)
	defer cancel()
	a, err := b.objects.Attributes(ctx, b.prefix+name)
	return err == nil && a.Metadata[mark] == token
}

func (b *bucket) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := blob.CheckName(name); err != nil {
		return nil, err
	}
	r, err := b.objects.NewReader(ctx, b.prefix+name, nil)
	if err != nil {
		return nil, b.wrap(ctx, "open", name, err)
	}
	return steady.NewReader(ctx, r, r.Size(), func(ctx context.Context, offset int64) (io.ReadCloser, error) {
		r, err := b.objects.NewRangeReader(ctx, b.prefix+name, offset, -1, nil)
		if err != nil {
			return nil, b.wrap(ctx, "read", name, err)
		}
		return r, nil
	}), nil
}

func (b *bucket) Stat(ctx context.Context, name string) (blob.Attributes, error) {
	if err := blob.CheckName(name); err != nil {
		return blob.Attributes{}, err
	}
	a, err := b.objects.Attributes(ctx, b.prefix+name)
	if err != nil {
		return blob.Attributes{}, b.wrap(ctx, "stat", name, err)
	}
	return blob.Attributes{Name: name, Size: a.Size, ModTime: a.ModTime}, nil
}

func (b *bucket) List(ctx context.Context, prefix string) iter.Seq2[blob.Attributes, error] {
	return func(yield func(blob.Attributes, error) bool) {
		for it := b.objects.List(&gocloud.ListOptions{Prefix: b.prefix + prefix}); ; {
			o, err := it.Next(ctx)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(blob.Attributes{}, b.wrap(ctx, "list", prefix, err))
				return
			}
			name := strings.TrimPrefix(o.Key, b.prefix)
			if blob.CheckName(name) != nil {
				continue // what other tools leave to make folders visible, and our check
			}
			if !yield(blob.Attributes{Name: name, Size: o.Size, ModTime: o.ModTime}, nil) {
				return
			}
		}
	}
}

func (b *bucket) Delete(ctx context.Context, name string) error {
	if err := blob.CheckName(name); err != nil {
		return err
	}
	err := b.wrap(ctx, "delete", name, b.objects.Delete(ctx, b.prefix+name))
	if errors.Is(err, blob.ErrNotExist) {
		return nil
	}
	return err
}

// source keeps the error of the reader apart from those of the upload.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// contextReader stops reading when its context ends.
type contextReader struct {
	ctx context.Context //nolint:containedctx // io.Reader takes none, and the reader lives for one call
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}
