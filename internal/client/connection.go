package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"

	"github.com/weir-stream/weir/internal/nodetls"
)

// errTokenInClear: whoever listens on the way would learn the token.
var errTokenInClear = errors.New("a token is not sent to another machine without TLS")

// TokenInClear reports whether err tells that a token was not sent because others could have read it.
func TokenInClear(err error) bool { return errors.Is(err, errTokenInClear) }

// bearer adds the user's token to each call.
type bearer struct {
	token  string
	secure bool
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.secure }

// String keeps the token out of what is printed.
func (b bearer) String() string { return "bearer token" }

// connection is a connection that knows why it does not stand, which gRPC itself tells nobody.
type connection struct {
	*grpc.ClientConn

	mu  sync.Mutex
	err error // of the last attempt to connect
}

func (c *connection) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	return conn, err
}

// trouble takes note of why a connection that was dialed does not stand.
func (c *connection) trouble(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// refusal words why the last attempt to connect failed.
func (c *connection) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if nodetls.Settled(c.err) {
		return c.err
	}
	var dns *net.DNSError
	if errors.As(c.err, &dns) && dns.IsNotFound {
		return fmt.Errorf("no host is named %s", dns.Name)
	}
	return errors.New("cannot connect")
}
