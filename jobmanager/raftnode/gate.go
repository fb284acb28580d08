package raftnode

import (
	"net"
	"sync"
)

// gate lets Raft connections through while it is open, and breaks them when it closes.
type gate struct {
	mu     sync.Mutex
	closed int // reasons to be closed
	conns  map[net.Conn]struct{}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed++
	for c := range g.conns {
		_ = c.Close()
	}
	clear(g.conns)
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed--
}

// err returns errSilent while the gate is closed.
func (g *gate) err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed > 0 {
		return errSilent
	}
	return nil
}

// pass returns the connection to be used, or closes it.
func (g *gate) pass(c net.Conn) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed > 0 {
		_ = c.Close()
		return nil, errSilent
	}
	if g.conns == nil {
		g.conns = map[net.Conn]struct{}{}
	}
	g.conns[c] = struct{}{}
	return passedConn{c, g}, nil
}

// passedConn leaves the gate's list when it is closed.
type passedConn struct {
	net.Conn
	gate *gate
}

// Close implements net.Conn.
func (c passedConn) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c.Conn)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}
