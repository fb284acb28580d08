package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
)

// connection is a connection that knows why it does not stand, which gRPC itself tells nobody.
type connection struct {
	*grpc.ClientConn

	mu  sync.Mutex
	err error // of the last dial
}

func (c *connection) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	return conn, err
}

// refusal words why the last attempt to connect failed.
func (c *connection) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var dns *net.DNSError
	if errors.As(c.err, &dns) && dns.IsNotFound {
		return fmt.Errorf("no host is named %s", dns.Name)
	}
	return errors.New("cannot connect")
}
