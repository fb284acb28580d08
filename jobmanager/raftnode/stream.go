package raftnode

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weir-stream/weir/internal/nodetls"
)

// The first byte of a connection to the Raft listener says what it is for.
const (
	kindRaft     byte = 'R'
	kindEnquiry  byte = 'E'
	kindAdmit    byte = 'A' // from the leader: the member may take part
	kindAnnounce byte = 'M' // from a member: where it is now
)

const (
	firstByteTimeout = 5 * time.Second
	enquiryTimeout   = 2 * time.Second
	maxEnquiryBytes  = 64 << 10
)

// address is a host:port as text, so that names need not resolve on this machine.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// talk is how a member answers what is not Raft.
type talk interface {
	introduce() introduction
	admit(request)
	announced(request)
}

// streamLayer is the transport's listener and dialer. Beside Raft connections, which pass its gate, it answers what members ask each
// other.
type streamLayer struct {
	listener  net.Listener
	advertise address
	talk      talk
	gate      gate
	tls       *nodetls.Keeper // nil for none
	logger    *slog.Logger
	strangers *nodetls.Notices

	conns chan net.Conn // unbuffered: handed to Accept
	done  chan struct{}
	wg    sync.WaitGroup
	once  sync.Once
}

var _ raft.StreamLayer = (*streamLayer)(nil)

func newStreamLayer(listen, advertise string, tls *nodetls.Keeper, talk talk, logger *slog.Logger) (*streamLayer, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("raft listener: %w", err)
	}
	if advertise == "" {
		advertise = l.Addr().String()
	}
	s := &streamLayer{
		listener: l, advertise: address(advertise), talk: talk, tls: tls, logger: logger, strangers: nodetls.NewNotices(),
		conns: make(chan net.Conn), done: make(chan struct{}),
	}
	s.gate.close() // until the member is let in
	s.wg.Add(1)
	go s.acceptLoop()
	return s, nil
}

func (s *streamLayer) acceptLoop() {
	defer s.wg.Done()
	for {
		c, err := s.listener.Accept()
		if err != nil {
			select {
			case <-s.done:
				return
			case <-time.After(50 * time.Millisecond): // out of file descriptors, for example
				continue
			}
		}
		s.wg.Add(1)
		go s.dispatch(c)
	}
}

func (s *streamLayer) dispatch(c net.Conn) {
	defer s.wg.Done()
	if s.tls != nil {
		secured, err := s.tls.Server(c)
		if err != nil {
			return
		}
		c = secured
	}
	kind := make([]byte, 1)
	_ = c.SetReadDeadline(time.Now().Add(firstByteTimeout))
	if _, err := io.ReadFull(c, kind); err != nil {
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	switch kind[0] {
	case kindRaft:
		c, err := s.gate.pass(c)
		if err != nil {
			return
		}
		select {
		case s.conns <- c:
		case <-s.done:
			_ = c.Close()
		}
	case kindEnquiry, kindAdmit, kindAnnounce:
		s.converse(c, kind[0])
	default:
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		if s.strangers.Due(host, time.Now()) {
			s.logger.Warn("connection to the raft listener is not from a member", "remote", c.RemoteAddr().String(), "uses_tls", s.tls == nil && nodetls.UsesTLS(kind[0]))
		}
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (s *streamLayer) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (s *streamLayer) Addr() net.Addr { return s.advertise }

// Close implements net.Listener.
func (s *streamLayer) Close() error {
	var err error
	s.once.Do(func() {
		close(s.done)
		err = s.listener.Close()
	})
	return err
}

// wait returns when every goroutine of the layer has ended; Close comes first.
func (s *streamLayer) wait() { s.wg.Wait() }

// Dial implements raft.StreamLayer.
func (s *streamLayer) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	if err := s.gate.err(); err != nil {
		return nil, err
	}
	c, err := dialKind(context.Background(), s.tls, string(to), kindRaft, timeout)
	if err != nil {
		return nil, err
	}
	return s.gate.pass(c)
}

// silence cuts the member off until speak is called as often.
func (s *streamLayer) silence() { s.gate.close() }

func (s *streamLayer) speak() { s.gate.open() }

func dialKind(ctx context.Context, tls *nodetls.Keeper, to string, kind byte, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	c, err := d.DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	if tls == nil {
		c = nodetls.PlainClient(c)
	} else {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if c, err = tls.Client(limited, c, to); err != nil {
			return nil, fmt.Errorf("%s: %w", to, err)
		}
	}
	_ = c.SetWriteDeadline(time.Now().Add(timeout))
	if _, err := c.Write([]byte{kind}); err != nil {
		_ = c.Close()
		return nil, err
	}
	_ = c.SetWriteDeadline(time.Time{})
	return c, nil
}
