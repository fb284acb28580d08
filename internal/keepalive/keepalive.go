// Package keepalive keeps gRPC servers from ending connections because the wall clock was set back: gRPC counts the time since it last
// heard of a client by that clock, and pings by default after two hours. Whoever has to notice silence sends heartbeats of its own.
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
