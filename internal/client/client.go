// Package client finds the leading JobManager for a user's tool and repeats requests until they have an answer.
//
// Every request that changes something carries an id chosen by the caller, so repeating it is safe. When patience runs out after a
// request may have reached a leader, the error is an *[UnknownOutcomeError] and not a mere failure.
package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weir-stream/weir/internal/grpcerr"
)

// Config configures a Client.
type Config struct {
	// Addresses are the host:port of some or all JobManagers.
	Addresses []string
	// Patience is how long a request is repeated while there is no leader. Default: 15 s.
	Patience time.Duration
	// ConnectTimeout bounds connecting to one JobManager. Default: 2 s.
	ConnectTimeout time.Duration
	// Pause is the time between rounds over the JobManagers. Default: 200 ms.
	Pause time.Duration
}

// Client talks to whichever JobManager leads. It may be used concurrently.
type Client struct {
	cfg Config

	mu     sync.Mutex
	conns  map[string]*grpc.ClientConn
	leader string // address that answered last; empty at first
}

// UnknownOutcomeError tells that a request was sent and that no answer says whether it took effect.
type UnknownOutcomeError struct {
	Err error // the last thing that went wrong
}

// Error implements error.
func (e *UnknownOutcomeError) Error() string {
	return fmt.Sprintf("the request was sent, and whether it took effect is unknown: %v", e.Err)
}

// Unwrap returns the cause.
func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// maxMessage bounds one answer in bytes; a job with many tasks has a large one.
const maxMessage = 64 << 20

// New returns a client; nothing is sent before the first request.
func New(cfg Config) *Client {
	if cfg.Patience == 0 {
		cfg.Patience = 15 * time.Second
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 2 * time.Second
	}
	if cfg.Pause == 0 {
		cfg.Pause = 200 * time.Millisecond
	}
	return &Client{cfg: cfg, conns: map[string]*grpc.ClientConn{}}
}

// Close closes all connections.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for a, conn := range c.conns {
		errs = append(errs, conn.Close())
		delete(c.conns, a)
	}
	return errors.Join(errs...)
}

// Do runs fn against the leader, again as long as there is none or the connection breaks, within the client's patience. Errors of the
// other side keep their identity for errors.Is.
func (c *Client) Do(ctx context.Context, fn func(ctx context.Context, conn grpc.ClientConnInterface) error) error {
	deadline := time.Now().Add(c.cfg.Patience)
	var sent bool
	var last error
	for {
		for _, address := range c.order() {
			hops := 0
			for address != "" && hops < 3 {
				conn, err := c.connect(ctx, address)
				if err != nil {
					last = err
					break
				}
				begun := time.Now()
				err = grpcerr.Decode(fn(ctx, conn))
				deadline = deadline.Add(time.Since(begun)) // patience is for looking, not for what a request takes
				var follow *grpcerr.NotLeaderError
				switch {
				case err == nil:
					c.settle(address)
					return nil
				case errors.As(err, &follow):
					last = fmt.Errorf("%s: %w", address, err)
					address = follow.LeaderAddress
					hops++
					continue
				case ctx.Err() != nil:
					if sent || status.Code(err) != codes.Canceled {
						return &UnknownOutcomeError{err}
					}
					return err
				case repeatable(err):
					sent = true
					last = fmt.Errorf("%s: %w", address, err)
				default:
					return err
				}
				break
			}
		}
		select {
		case <-time.After(c.cfg.Pause):
		case <-ctx.Done():
		}
		switch {
		case ctx.Err() == nil && time.Now().Before(deadline):
		case sent:
			return &UnknownOutcomeError{last}
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			return c.giveUp(last)
		}
	}
}

func (c *Client) giveUp(last error) error {
	return fmt.Errorf("no leading JobManager was found within %v: asked %s: %w", c.cfg.Patience, strings.Join(c.cfg.Addresses, ", "), last)
}

// order lists the addresses to ask, the last leader first.
func (c *Client) order() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader == "" {
		return c.cfg.Addresses
	}
	out := []string{c.leader}
	for _, a := range c.cfg.Addresses {
		if a != c.leader {
			out = append(out, a)
		}
	}
	return out
}

func (c *Client) settle(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = address
}

// connect returns a connection that stands, so that a failed request over it may have arrived and one without it has not.
func (c *Client) connect(ctx context.Context, address string) (*grpc.ClientConn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ConnectTimeout)
	defer cancel()
	c.mu.Lock()
	conn, ok := c.conns[address]
	if !ok {
		var err error
		conn, err = grpc.NewClient("passthrough:///"+address,
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
		if err != nil {
			c.mu.Unlock()
			return nil, fmt.Errorf("%s: %w", address, err)
		}
		c.conns[address] = conn
	}
	c.mu.Unlock()
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return conn, nil
		case connectivity.Idle:
			conn.Connect()
		case connectivity.TransientFailure:
			c.drop(address, conn) // the next round dials anew, without gRPC's own back-off
			return nil, fmt.Errorf("%s: cannot connect", address)
		}
		if !conn.WaitForStateChange(ctx, state) {
			c.drop(address, conn)
			return nil, fmt.Errorf("%s: no connection within %v", address, c.cfg.ConnectTimeout)
		}
	}
}

func (c *Client) drop(address string, conn *grpc.ClientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns[address] == conn {
		delete(c.conns, address)
	}
	_ = conn.Close()
}

// repeatable reports whether a request should be sent again: its outcome is unknown or it was not looked at.
func repeatable(err error) bool {
	if errors.Is(err, grpcerr.ErrUnknownOutcome) {
		return true
	}
	return status.Code(err) == codes.Unavailable
}
