// Package keepalive keeps gRPC from pinging. Servers would end connections because the wall clock was set back: gRPC counts the time since
// it last heard of a client by that clock, and pings by default after two hours. Whoever has to notice silence sends heartbeats of its own.
// And both ends would answer almost each message with a ping, to measure how much may be under way.
package keepalive

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// never is longer than any process lives, and far from what overflows when gRPC adds the present time to it.
const never = 10 * 365 * 24 * time.Hour

// Off is the option of a server that sends no pings.
func Off() grpc.ServerOption {
	return grpc.KeepaliveParams(keepalive.ServerParameters{Time: never})
}

// Accept is the option of a server that lets clients ping it, at most once a second.
func Accept() grpc.ServerOption {
	return grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true})
}

// window is how many bytes may be under way to an end that does not read, of a stream and of a connection. Control messages are seldom
// larger, and those that are come in several turns.
const window = 1 << 20

// FixedServerWindow are the options of a server that does not measure its connections.
func FixedServerWindow() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window)}
}

// FixedClientWindow are the options of a client that does not measure its connection.
func FixedClientWindow() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window)}
}
