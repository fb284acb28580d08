package hdfs

import (
	"context"
	"io"
	"net"
	"sync"

	client "github.com/colinmarc/hdfs/v2"

	"github.com/weir-stream/weir/statebackend/blob/internal/steady"
)

// idleClients are kept. Each renews leases every second, so it is not many.
const idleClients = 2

// pool hands out clients, each to one caller at a time.
type pool struct {
	options  client.ClientOptions
	dial     steady.Dial
	kerberos bool

	mu     sync.Mutex
	idle   []*session
	closed bool
}

// session is a client with its connections.
type session struct {
	*client.Client
	dial steady.Dial

	mu      sync.Mutex
	conns   map[*tracked]struct{}
	aborted bool
	drained bool
}

// tracked is a connection that its session closes.
type tracked struct {
	net.Conn
	s *session
}

func (t *tracked) Close() error {
	t.s.mu.Lock()
	delete(t.s.conns, t)
	t.s.mu.Unlock()
	return t.Conn.Close()
}

// Write of a drained session swallows: a writer of the client library ends its goroutines only when its last packet has gone out.
func (t *tracked) Write(p []byte) (int, error) {
	n, err := t.Conn.Write(p)
	if err == nil {
		return n, nil
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.s.drained {
		return len(p), nil
	}
	return n, err
}

func (s *session) connect(ctx context.Context, network, address string) (net.Conn, error) {
	s.mu.Lock()
	aborted := s.aborted
	s.mu.Unlock()
	if aborted {
		return nil, net.ErrClosed
	}
	c, err := s.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	t := &tracked{Conn: c, s: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aborted {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	s.conns[t] = struct{}{}
	return t, nil
}

// abort makes whatever the client does end with an error.
func (s *session) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aborted = true
	for t := range s.conns {
		_ = t.Conn.Close()
	}
}

// discard ends a writer that has failed, and with it the use of the client. The file stays open until it is removed.
func (s *session) discard(w io.Closer) {
	s.abort()
	s.mu.Lock()
	s.drained = true
	s.mu.Unlock()
	_ = w.Close() // it fails: no answer can be read
}

// end gives the client up for good.
func (s *session) end() {
	s.abort()
	if s.Client != nil {
		_ = s.Close() // it is closed already
	}
}

// acquire returns a client, a new one when none is idle.
func (p *pool) acquire(ctx context.Context) (*session, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		s := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return s, nil
	}
	p.mu.Unlock()
	return p.connect(ctx)
}

func (p *pool) connect(ctx context.Context) (*session, error) {
	s := &session{dial: p.dial, conns: map[*tracked]struct{}{}}
	options := p.options
	options.NamenodeDialFunc, options.DatanodeDialFunc = s.connect, s.connect
	if p.kerberos {
		c, err := kerberosClient()
		if err != nil {
			return nil, err
		}
		options.KerberosClient = c
	}
	defer context.AfterFunc(ctx, s.abort)()
	c, err := client.NewClient(options)
	if err != nil {
		s.abort()
		return nil, err
	}
	s.Client = c
	return s, nil
}

// release takes a client back, or ends it when it is of no use any more.
func (p *pool) release(s *session, usable bool) {
	s.mu.Lock()
	usable = usable && !s.aborted
	s.mu.Unlock()
	if usable {
		p.mu.Lock()
		if !p.closed && len(p.idle) < idleClients {
			p.idle = append(p.idle, s)
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
	s.end()
}

func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, s := range idle {
		s.end()
	}
}
