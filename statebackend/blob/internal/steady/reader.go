package steady

import (
	"context"
	"errors"
	"io"
)

// cuts is how often a reader is opened again without having got any further.
const cuts = 3

// Reader reads an object that does not change, and goes on where it was when the connection is cut.
type Reader struct {
	ctx    context.Context //nolint:containedctx // io.Reader takes none, and the reader lives for one object
	reopen func(ctx context.Context, offset int64) (io.ReadCloser, error)
	r      io.ReadCloser // nil after a cut
	offset int64
	size   int64
	tries  int
}

// NewReader returns a reader of an object of size bytes that begins with r; reopen opens the rest from an offset in bytes.
func NewReader(ctx context.Context, r io.ReadCloser, size int64, reopen func(ctx context.Context, offset int64) (io.ReadCloser, error)) *Reader {
	return &Reader{ctx: ctx, reopen: reopen, r: r, size: size}
}

func (r *Reader) Read(p []byte) (int, error) {
	for {
		if r.r == nil {
			if r.offset >= r.size {
				return 0, io.EOF
			}
			next, err := r.reopen(r.ctx, r.offset)
			if err != nil {
				return 0, err
			}
			r.r = next
		}
		n, err := r.r.Read(p)
		r.offset += int64(n)
		if n > 0 {
			r.tries = 0
		}
		early := errors.Is(err, io.EOF) && r.offset < r.size
		if err == nil || errors.Is(err, io.EOF) && !early {
			return n, err
		}
		if r.tries++; r.tries > cuts || r.ctx.Err() != nil {
			if early {
				err = io.ErrUnexpectedEOF
			}
			return n, err
		}
		_ = r.r.Close() // it is broken
		r.r = nil
		if n > 0 {
			return n, nil
		}
	}
}

// Close closes what is open.
func (r *Reader) Close() error {
	if r.r == nil {
		return nil
	}
	return r.r.Close()
}
