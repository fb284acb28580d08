// Package wiretap lets a test read what goes over a connection.
package wiretap

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/testlog"
)

// Tap passes connections on to a target until the test ends, and keeps all bytes that go by in either direction.
type Tap struct {
	// Address is the host:port to connect to instead of the target.
	Address string

	bytes testlog.Buffer
}

// Listen returns a tap at the address listen, where port 0 takes a free one, before the target.
func Listen(t testing.TB, listen, target string) *Tap {
	t.Helper()
	l, err := net.Listen("tcp", listen)
	require.NoError(t, err)
	w := &Tap{Address: l.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				_ = in.Close()
				continue
			}
			pass := func(to, from net.Conn) {
				_, _ = io.Copy(to, io.TeeReader(from, &w.bytes))
				_ = to.Close()
				_ = from.Close()
			}
			wg.Go(func() { pass(out, in) })
			wg.Go(func() { pass(in, out) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return w
}

// Seen returns all bytes that have gone by.
func (w *Tap) Seen() string { return w.bytes.String() }
