package hdfs

import (
	"context"
	"net"
	"path"
	"strings"
	"sync/atomic"

	"github.com/weir-stream/weir/statebackend/blob"
)

// CutAfter has the bucket's next connection on which that many bytes are moved in one direction break, once; 0 lets all stand. It returns
// how often that happened.
func CutAfter(b blob.Bucket, bytes int) (cuts func() int) {
	p := b.(*bucket).pool
	p.close()
	p.closed = false
	var count atomic.Int32
	dial := (&net.Dialer{}).DialContext
	p.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil || bytes == 0 {
			return c, err
		}
		return &cutting{Conn: c, in: bytes, out: bytes, count: &count}, nil
	}
	return func() int { return int(count.Load()) }
}

type cutting struct {
	net.Conn
	in    int // bytes until it breaks
	out   int
	count *atomic.Int32
}

func (c *cutting) Write(p []byte) (int, error) {
	c.moved(&c.out, len(p))
	return c.Conn.Write(p)
}

func (c *cutting) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.moved(&c.in, n)
	return n, err
}

func (c *cutting) moved(left *int, n int) {
	if *left -= n; *left <= 0 && c.count.CompareAndSwap(0, 1) {
		_ = c.Close()
	}
}

// NameNodes returns the addresses that a bucket asks.
func NameNodes(b blob.Bucket) []string { return b.(*bucket).pool.options.Addresses }

// Unfinished returns what is there of objects that never came to be.
func Unfinished(ctx context.Context, b blob.Bucket) (names []string) {
	h := b.(*bucket)
	err := h.do(ctx, func(s *session) error {
		entries, err := s.ReadDir(path.Clean(h.root))
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), tempPrefix) {
				names = append(names, e.Name())
			}
		}
		return err
	})
	if err != nil {
		return []string{err.Error()}
	}
	return names
}
