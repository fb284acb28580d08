package kafkatest

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy is a TCP proxy in front of a broker that delays and cuts. Make it before the broker, start the broker with
// Config.Advertise = Addr(), then call SetTarget with the broker's Listen().
type Proxy struct {
	listener net.Listener
	wait     sync.WaitGroup
	delay    atomic.Int64 // nanoseconds

	mu     sync.Mutex
	target string
	cut    bool
	conns  map[net.Conn]struct{}
	closed bool
}

// NewProxy listens on a free loopback port. The caller must Close it.
func NewProxy() (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	p := &Proxy{listener: l, conns: map[net.Conn]struct{}{}}
	p.wait.Add(1)
	go p.accept()
	return p, nil
}

// Addr returns the host:port of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetTarget sets where new connections lead.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// Delay holds back everything the broker answers by d.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Cut breaks all connections and refuses new ones until Restore.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	p.breakAll()
}

// Break breaks all connections once; new ones are let through.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.breakAll()
}

// Restore undoes Cut.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

// Close ends the proxy and waits for its goroutines.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed, p.cut = true, true
	p.breakAll()
	p.mu.Unlock()
	err := p.listener.Close()
	p.wait.Wait()
	return err
}

func (p *Proxy) breakAll() {
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *Proxy) accept() {
	defer p.wait.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target, refuse := p.target, p.cut || p.target == ""
		p.mu.Unlock()
		if refuse {
			_ = client.Close()
			continue
		}
		server, err := net.DialTimeout("tcp", target, 5*time.Second)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.track(client, server) {
			continue
		}
		p.wait.Add(2)
		go p.copy(server, client, nil)
		go p.copy(client, server, &p.delay)
	}
}

// track registers a pair of connections, or closes it when the proxy was cut meanwhile.
func (p *Proxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.cut {
			_ = c.Close()
			continue
		}
		p.conns[c] = struct{}{}
	}
	return !p.cut
}

// chunk is a piece of a stream that is due at a time.
type chunk struct {
	due  time.Time
	data []byte
}

// copy moves bytes from src to dst. With a delay, a second goroutine writes each chunk when it is due, so that the delay adds
// latency and takes no throughput.
func (p *Proxy) copy(dst, src net.Conn, delay *atomic.Int64) {
	defer p.wait.Done()
	defer p.forget(dst, src)
	if delay == nil {
		_, _ = io.Copy(dst, src)
		return
	}
	const queued = 1024 // chunks under way; a full queue stops the reading, as a full pipe would
	queue := make(chan chunk, queued)
	written := make(chan struct{})
	go func() {
		defer close(written)
		for c := range queue {
			if wait := time.Until(c.due); wait > 0 {
				time.Sleep(wait)
			}
			if _, err := dst.Write(c.data); err != nil {
				_ = src.Close() // keep draining until the reader notices
			}
		}
		_ = dst.Close()
	}()
	defer func() { // what was sent before the end arrives
		close(queue)
		<-written
	}()
	for {
		buf := make([]byte, 32<<10)
		n, err := src.Read(buf)
		if n > 0 {
			queue <- chunk{time.Now().Add(time.Duration(delay.Load())), buf[:n]}
		}
		if err != nil {
			return
		}
	}
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}
