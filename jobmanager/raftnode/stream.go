package raftnode

import (
	"context"
	"encoding/json"
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
	kindRaft    byte = 'R'
	kindEnquiry byte = 'E'
)

const (
	firstByteTimeout = 5 * time.Second
	enquiryTimeout   = 2 * time.Second
	maxEnquiryBytes  = 64 << 10
)

// enquiryAnswer is what a member tells about itself.
type enquiryAnswer struct {
	ID       string `json:"id"`
	HasState bool   `json:"has_state"`
	Address  string `json:"address,omitempty"`
	Level    uint32 `json:"level,omitempty"`
	// Term is the highest term seen; 0 from a member that is starting, or too old to tell.
	Term uint64 `json:"term,omitempty"`
}

// address is a host:port as text, so that names need not resolve on this machine.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// streamLayer is the transport's listener and dialer. Beside Raft connections it answers enquiries of members that want to
// bootstrap.
type streamLayer struct {
	listener  net.Listener
	advertise address
	answer    func() enquiryAnswer
	tls       *nodetls.Keeper // nil for none
	logger    *slog.Logger
	strangers *nodetls.Notices

	conns chan net.Conn // unbuffered: handed to Accept
	done  chan struct{}
	wg    sync.WaitGroup
	once  sync.Once
}

var _ raft.StreamLayer = (*streamLayer)(nil)

func newStreamLayer(listen, advertise string, tls *nodetls.Keeper, answer func() enquiryAnswer, logger *slog.Logger) (*streamLayer, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("raft listener: %w", err)
	}
	if advertise == "" {
		advertise = l.Addr().String()
	}
	s := &streamLayer{
		listener: l, advertise: address(advertise), answer: answer, tls: tls, logger: logger, strangers: nodetls.NewNotices(),
		conns: make(chan net.Conn), done: make(chan struct{}),
	}
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
		select {
		case s.conns <- c:
		case <-s.done:
			_ = c.Close()
		}
	case kindEnquiry:
		_ = c.SetDeadline(time.Now().Add(enquiryTimeout))
		_ = json.NewEncoder(c).Encode(s.answer())
		_ = c.Close()
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
	return dialKind(context.Background(), s.tls, string(to), kindRaft, timeout)
}

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

// enquire asks the member at an address about itself.
func (s *streamLayer) enquire(ctx context.Context, to string) (enquiryAnswer, error) {
	var a enquiryAnswer
	c, err := dialKind(ctx, s.tls, to, kindEnquiry, enquiryTimeout)
	if err != nil {
		return a, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	_ = c.SetReadDeadline(time.Now().Add(enquiryTimeout))
	if err := json.NewDecoder(io.LimitReader(c, maxEnquiryBytes)).Decode(&a); err != nil {
		return a, fmt.Errorf("answer of %s: %w", to, err)
	}
	return a, nil
}

// Introduction is what a member tells about itself.
type Introduction struct {
	// ServiceAddress and Level are those of its [Config]; zero from a member that is too old to tell.
	ServiceAddress string
	Level          uint32
}

// Introduce asks the member with this id, within a few seconds, who it is. An error means that it is not reached at the address.
func (n *Node) Introduce(ctx context.Context, id, at string) (Introduction, error) {
	a, err := n.stream.enquire(ctx, at)
	switch {
	case err != nil:
		return Introduction{}, err
	case a.ID != id:
		return Introduction{}, fmt.Errorf("member at %s calls itself %q, not %q", at, a.ID, id)
	}
	return Introduction{ServiceAddress: a.Address, Level: a.Level}, nil
}
