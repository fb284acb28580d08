package supervisor

import (
	"context"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// visitor is one connection to a worker's socket. Only the one on which a valid Hello came is the worker's: the socket of a job can be
// opened by other processes of this user, such as other jobs.
type visitor struct {
	credentials.CommonAuthInfo
	admitted atomic.Bool
}

// AuthType implements credentials.AuthInfo.
func (*visitor) AuthType() string { return "visitor" }

// socketCredentials tell connections apart.
type socketCredentials struct {
	credentials.TransportCredentials
}

func newSocketCredentials() credentials.TransportCredentials {
	return socketCredentials{insecure.NewCredentials()}
}

func (socketCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return conn, &visitor{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}, nil
}

func (c socketCredentials) Clone() credentials.TransportCredentials { return c }

// visitorOf returns the connection of a call.
func visitorOf(ctx context.Context) *visitor {
	if p, ok := peer.FromContext(ctx); ok {
		if v, ok := p.AuthInfo.(*visitor); ok {
			return v
		}
	}
	return &visitor{}
}
