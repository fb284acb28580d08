package nodetls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"time"
)

const (
	// handshakeTimeout bounds a handshake from the first byte to the last.
	handshakeTimeout = 5 * time.Second
	// farewell is how long a refused peer gets to read why.
	farewell = 500 * time.Millisecond
)

// First bytes of a connection, or of an answer, that tell TLS from anything else.
const (
	recordAlert     = 0x15
	recordHandshake = 0x16
)

// refusal is a fatal TLS alert (protocol_version). A plain peer that reads it learns that TLS is used here.
var refusal = [...]byte{recordAlert, 3, 3, 0, 2, 2, 70}

// serverConfig returns the configuration for one handshake of a listener, whose clients' certificates one of cas has signed.
func (m *material) serverConfig(auth tls.ClientAuthType, cas *x509.CertPool, protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*m.cert}, ClientAuth: auth, ClientCAs: cas, NextProtos: protocols,
		// A resumed session would not be checked against the authorities of today.
		SessionTicketsDisabled: true,
	}
}

// clientConfig returns the configuration for one handshake with the host of an address.
func (m *material) clientConfig(address string, protocols ...string) *tls.Config {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	c := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: m.nodes, ServerName: host, NextProtos: protocols}
	if m.cert != nil {
		// Whatever authorities the other side names: it shall see the certificate, and say what is wrong with it.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return m.cert, nil }
	}
	return c
}

// accept makes the handshake of a listener. It logs a refusal, lets the peer read it, and closes the connection.
func (k *Keeper) accept(raw net.Conn, cfg *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	// The first byte is looked at by itself: a plain peer may send no more before it is answered.
	first := make([]byte, 1)
	_ = raw.SetReadDeadline(time.Now().Add(handshakeTimeout))
	_, err := io.ReadFull(raw, first)
	_ = raw.SetReadDeadline(time.Time{})
	if err == nil && !UsesTLS(first[0]) {
		err = ErrPlain
	}
	if err == nil {
		conn := tls.Server(&begun{raw, first}, cfg)
		if err = conn.HandshakeContext(ctx); err == nil {
			return conn, nil
		}
	}
	defer raw.Close()
	if gone(err) || ctx.Err() != nil {
		k.logger.Debug("connection ended before it was secured", "remote", raw.RemoteAddr().String(), "error", err)
		return nil, err
	}
	err = explain(err)
	host, _, _ := net.SplitHostPort(raw.RemoteAddr().String())
	if k.failed.Due(host+" "+err.Error(), time.Now()) {
		k.logger.Warn("connection refused", "remote", raw.RemoteAddr().String(), "reason", err)
	}
	if errors.Is(err, ErrPlain) {
		_, _ = raw.Write(refusal[:])
	}
	linger(raw)
	return nil, err
}

// begun is a connection of which the beginning has been read.
type begun struct {
	net.Conn
	first []byte
}

func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) == 0 || len(p) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.first)
	b.first = b.first[n:]
	return n, nil
}

// linger lets the peer read what was written: closing with input unread would reset the connection under it.
func linger(raw net.Conn) {
	if half, ok := raw.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = raw.SetReadDeadline(time.Now().Add(farewell))
	_, _ = io.Copy(io.Discard, io.LimitReader(raw, 1<<20))
}

// Server secures a connection that a listener for nodes has accepted; the peer must have a node's certificate. When it fails the
// connection is closed and the refusal logged.
func (k *Keeper) Server(raw net.Conn) (net.Conn, error) {
	m := k.get()
	conn, err := k.accept(raw, m.serverConfig(tls.RequireAndVerifyClientCert, m.nodes))
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// Client secures a connection to a node at an address, host:port, as a node. When it fails the connection is closed.
func (k *Keeper) Client(ctx context.Context, raw net.Conn, address string) (net.Conn, error) {
	conn, err := k.connect(ctx, raw, k.get().clientConfig(address))
	if err != nil {
		return nil, err
	}
	return &listening{Conn: conn, explain: explain}, nil
}

func (k *Keeper) connect(ctx context.Context, raw net.Conn, cfg *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		if gone(err) {
			return nil, trouble(ErrPlain, ", or has just stopped: the connection ended during the TLS handshake", err)
		}
		return nil, explain(err)
	}
	return conn, nil
}

// PlainClient returns a connection without TLS of which the first error tells when the other side demands TLS.
func PlainClient(raw net.Conn) net.Conn {
	return &listening{Conn: raw, first: recordAlert, unexpected: ErrWantsTLS}
}

var errUsesTLS = errors.New("the other side uses TLS, and this one does not")

// UsesTLS reports whether b, the first byte of a connection, begins a TLS handshake.
func UsesTLS(b byte) bool { return b == recordHandshake }

// listening is a connection that explains why nothing was heard on it. A server of TLS 1.3 refuses a client's certificate only after
// the client's handshake is done, so that the first read tells.
type listening struct {
	net.Conn
	explain    func(error) error
	first      byte  // a first byte that nothing but
	unexpected error // begins with
	report     func(error)
	heard      bool // of the one goroutine that reads
}

func (l *listening) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if l.heard || n == 0 && err == nil {
		return n, err
	}
	if n > 0 {
		if l.unexpected == nil || p[0] != l.first {
			l.heard = true
			return n, err
		}
		n, err = 0, l.unexpected
	} else if l.explain != nil {
		err = l.explain(err)
	}
	if l.report != nil {
		l.report(err)
	}
	return n, err
}
