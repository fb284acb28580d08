package nodetls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// Kind is what a peer has proven to be.
type Kind int

// Kinds of peers.
const (
	// Unknown has shown no certificate.
	Unknown Kind = iota
	// User has shown a user's certificate.
	User
	// Node has shown a node's.
	Node
)

// Peer is what the handshake tells of the other end of a gRPC connection.
type Peer struct {
	credentials.CommonAuthInfo
	Kind Kind
	// Name is the subject of the certificate, for people.
	Name string
}

// AuthType implements credentials.AuthInfo.
func (p Peer) AuthType() string { return "weir" }

// PeerOf returns what is known of the peer of a call.
func PeerOf(ctx context.Context) Peer {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(Peer); ok {
			return info
		}
	}
	return Peer{}
}

// grpcCredentials implements both sides, each only where it was made for it.
type grpcCredentials struct {
	credentials.TransportCredentials // an inert one, for what is the same for all
	client                           func(ctx context.Context, address string, raw net.Conn) (net.Conn, credentials.AuthInfo, error)
	server                           func(raw net.Conn) (net.Conn, credentials.AuthInfo, error)
}

var _ credentials.TransportCredentials = grpcCredentials{}

func (c grpcCredentials) ClientHandshake(ctx context.Context, address string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.client(ctx, address, raw)
}

func (c grpcCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.server(raw)
}

func (c grpcCredentials) Clone() credentials.TransportCredentials { return c }

// secured is the inert part of credentials with TLS.
func secured() credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13})
}

const http2 = "h2"

// ServerCredentials are those of a gRPC listener. Peers without a certificate are let in as Unknown, to show a token; a certificate
// that no authority known here has signed is refused and logged.
func (k *Keeper) ServerCredentials() credentials.TransportCredentials {
	return grpcCredentials{TransportCredentials: secured(), server: func(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
		m := k.get()
		conn, err := k.accept(raw, m.serverConfig(tls.VerifyClientCertIfGiven, m.known, http2))
		if err != nil {
			return nil, nil, err
		}
		p := m.identify(conn.ConnectionState())
		p.CommonAuthInfo = credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
		return conn, p, nil
	}}
}

// identify tells whose certificate it was that the handshake has accepted.
func (m *material) identify(state tls.ConnectionState) Peer {
	if len(state.PeerCertificates) == 0 {
		return Peer{}
	}
	leaf := state.PeerCertificates[0]
	intermediates := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	p := Peer{Kind: User, Name: name(leaf)}
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: m.nodes, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err == nil {
		p.Kind = Node
	}
	return p
}

// ClientCredentials are those of a gRPC client. report, if any, is told why a connection does not stand.
func (k *Keeper) ClientCredentials(report func(error)) credentials.TransportCredentials {
	return grpcCredentials{TransportCredentials: secured(), client: func(ctx context.Context, address string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
		conn, err := k.connect(ctx, raw, k.get().clientConfig(address, http2))
		if err != nil {
			if report != nil {
				report(err)
			}
			return nil, nil, err
		}
		info := credentials.TLSInfo{State: conn.ConnectionState(), CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
		return &listening{Conn: conn, explain: explain, report: report}, info, nil
	}}
}

// PlainClientCredentials are those of a gRPC client without TLS. report, if any, is told why nothing is heard on a connection.
func PlainClientCredentials(report func(error)) credentials.TransportCredentials {
	plain := insecure.NewCredentials()
	return grpcCredentials{TransportCredentials: plain, client: func(ctx context.Context, address string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
		conn, info, err := plain.ClientHandshake(ctx, address, raw)
		if err != nil {
			return nil, nil, err
		}
		return &listening{Conn: conn, first: recordAlert, unexpected: ErrWantsTLS, report: report}, info, nil
	}}
}

// PlainServerCredentials are those of a gRPC listener without TLS. A peer that uses TLS is logged.
func PlainServerCredentials(logger *slog.Logger) credentials.TransportCredentials {
	plain, said := insecure.NewCredentials(), NewNotices()
	return grpcCredentials{TransportCredentials: plain, server: func(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
		conn, info, err := plain.ServerHandshake(raw)
		if err != nil {
			return nil, nil, err
		}
		remote := raw.RemoteAddr().String()
		host, _, _ := net.SplitHostPort(remote)
		return &listening{Conn: conn, first: recordHandshake, unexpected: errUsesTLS, report: func(err error) {
			if gone(err) || !said.Due(host+" "+err.Error(), time.Now()) {
				return
			}
			logger.Warn("connection refused", "remote", remote, "reason", err)
		}}, info, nil
	}}
}
