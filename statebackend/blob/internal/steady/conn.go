package steady

import (
	"context"
	"net"
	"time"
)

// connectTimeout bounds the set-up of a connection.
const connectTimeout = 10 * time.Second

// Dial is the form of net.Dialer.DialContext.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Dialer returns a Dial whose connections fail when a read waits for longer than stall without anything having been read or written.
// Deadlines set by their users are left to stand only where they are not the zero time.
func Dialer(stall time.Duration) Dial {
	d := &net.Dialer{Timeout: connectTimeout}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: c, stall: stall}, nil
	}
}

type conn struct {
	net.Conn
	stall time.Duration
}

func (c *conn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write also prolongs a read that waits: what comes back answers this.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.Conn.SetDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// SetDeadline passes a deadline on; none at all would take the stall limit away.
func (c *conn) SetDeadline(t time.Time) error {
	if t.IsZero() {
		return nil
	}
	return c.Conn.SetDeadline(t)
}
