// Package client finds the leading JobManager for a user's tool and repeats requests until they have an answer.
//
// [Client.Do] is for requests that change something. Each carries an id chosen by the caller, so repeating it is safe. When it ends
// without an answer after the request may have reached a leader, the error is an *[UnknownOutcomeError] and not a mere failure.
// [Client.Ask] is for requests that change nothing.
package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/internal/loopback"
	"github.com/weir-stream/weir/internal/nodetls"
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
	// Probe is how often a JobManager that is at a request is asked whether it is there; one that has not said so for twice as long is
	// left. Default: 2 s.
	Probe time.Duration
	// TLS secures the connections; nil for none.
	TLS *nodetls.Keeper
	// Token proves who the user is; empty for none. Without TLS it is sent to this machine only, unless Insecure is set.
	Token    string
	Insecure bool
}

// Client talks to whichever JobManager leads. It may be used concurrently.
type Client struct {
	cfg Config

	mu     sync.Mutex
	conns  map[string]*connection
	leader string // address that answered last; empty at first
}

// UnknownOutcomeError tells that a request was sent and that no answer says whether it took effect.
type UnknownOutcomeError struct {
	Err error // the last thing that went wrong; the context's error when that ended
}

// Error implements error.
func (e *UnknownOutcomeError) Error() string {
	why := e.Err.Error()
	switch {
	case errors.Is(e.Err, context.Canceled):
		why = "interrupted before the answer"
	case errors.Is(e.Err, context.DeadlineExceeded):
		why = "no answer within the time given"
	}
	return "the request was sent, and whether it took effect is unknown: " + why
}

// Unwrap returns the cause.
func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// A connection on which nothing came for keepaliveTime is tried, and given up after keepaliveTimeout more. gRPC allows no shorter time.
const (
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
)

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
	if cfg.Probe == 0 {
		cfg.Probe = 2 * time.Second
	}
	return &Client{cfg: cfg, conns: map[string]*connection{}}
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

// Do runs fn, a request that changes something, against the leader, again as long as there is none or the connection breaks, within
// the client's patience. Errors of the other side keep their identity for errors.Is.
func (c *Client) Do(ctx context.Context, fn func(ctx context.Context, conn grpc.ClientConnInterface) error) error {
	sent, err := c.request(ctx, fn)
	if err != nil && sent {
		return &UnknownOutcomeError{err}
	}
	return err
}

// Ask is Do for a request that changes nothing, so that no outcome of it can be unknown. When ctx ends, the error is ctx's own.
func (c *Client) Ask(ctx context.Context, fn func(ctx context.Context, conn grpc.ClientConnInterface) error) error {
	_, err := c.request(ctx, fn)
	return err
}

// request repeats fn until the leader answers. With an error, sent tells that fn may have reached a leader whose answer is not known.
func (c *Client) request(ctx context.Context, fn func(ctx context.Context, conn grpc.ClientConnInterface) error) (sent bool, err error) {
	deadline := time.Now().Add(c.cfg.Patience)
	said := map[string]error{} // the last word of each JobManager
	for {
		for _, address := range c.order() {
			for hops := 0; address != "" && hops < 3; hops++ {
				conn, err := c.connect(ctx, address)
				if ctx.Err() != nil {
					return sent, ctx.Err()
				}
				if err != nil {
					said[address] = err
					break
				}
				begun := time.Now()
				err = grpcerr.Decode(c.watched(ctx, conn, fn))
				deadline = deadline.Add(time.Since(begun)) // patience is for looking, not for what a request takes
				said[address] = err
				var follow *grpcerr.NotLeaderError
				switch {
				case err == nil:
					c.settle(address)
					return false, nil
				case errors.As(err, &follow):
					address = follow.LeaderAddress
					continue
				case !undecided(err):
					return false, err
				}
				sent = true
				switch {
				case ctx.Err() != nil:
					return true, ctx.Err()
				case status.Code(err) == codes.DeadlineExceeded: // of ctx, by the clock of the other side
					return true, fmt.Errorf("%s: %w", address, context.DeadlineExceeded)
				}
				break
			}
		}
		if allSettled(said) {
			return sent, c.noLeader(said, 0)
		}
		select {
		case <-time.After(c.cfg.Pause):
		case <-ctx.Done():
			return sent, ctx.Err()
		}
		if time.Now().After(deadline) {
			return sent, c.noLeader(said, c.cfg.Patience)
		}
	}
}

// NoLeaderError tells that no JobManager took a request.
type NoLeaderError struct {
	// Patience is for how long one was looked for; 0 when it was clear at once that none would answer.
	Patience time.Duration
	// Addresses are the JobManagers that were asked, and Said what came of it, in the same order.
	Addresses []string
	Said      []error
}

// allSettled reports whether every JobManager has turned the connection down for a reason that somebody has to mend.
func allSettled(said map[string]error) bool {
	for _, err := range said {
		if !nodetls.Settled(err) && !errors.Is(err, errTokenInClear) {
			return false
		}
	}
	return len(said) > 0
}

func (c *Client) noLeader(said map[string]error, patience time.Duration) error {
	e := &NoLeaderError{Patience: patience}
	for _, address := range c.cfg.Addresses {
		if err, ok := said[address]; ok {
			e.Addresses, e.Said = append(e.Addresses, address), append(e.Said, err)
			delete(said, address)
		}
	}
	for _, address := range slices.Sorted(maps.Keys(said)) { // those that others called the leader
		e.Addresses, e.Said = append(e.Addresses, address), append(e.Said, said[address])
	}
	return e
}

// Error implements error.
func (e *NoLeaderError) Error() string {
	var b strings.Builder
	if e.Patience == 0 {
		b.WriteString("no JobManager can be talked to: asked ")
	} else {
		fmt.Fprintf(&b, "no leading JobManager was found within %v: asked ", e.Patience)
	}
	for i, address := range e.Addresses {
		if i > 0 {
			b.WriteString(", ")
		}
		text := e.Said[i].Error()
		if st, ok := status.FromError(e.Said[i]); ok {
			text = st.Message()
		}
		fmt.Fprintf(&b, "%s (%s)", address, text)
	}
	return b.String()
}

// Unwrap returns what the JobManagers said.
func (e *NoLeaderError) Unwrap() []error { return e.Said }

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
	if c.cfg.Token != "" && c.cfg.TLS == nil && !c.cfg.Insecure && !loopback.Is(address) {
		return nil, errTokenInClear
	}
	c.mu.Lock()
	conn, ok := c.conns[address]
	if !ok {
		conn = &connection{}
		creds := nodetls.PlainClientCredentials(conn.trouble)
		if c.cfg.TLS != nil {
			creds = c.cfg.TLS.ClientCredentials(conn.trouble)
		}
		var options []grpc.DialOption
		if c.cfg.Token != "" {
			options = append(options, grpc.WithPerRPCCredentials(bearer{c.cfg.Token, c.cfg.TLS != nil}))
		}
		var err error
		conn.ClientConn, err = grpc.NewClient("passthrough:///"+address, append(options,
			grpc.WithTransportCredentials(creds), grpc.WithNoProxy(), grpc.WithContextDialer(conn.dial),
			// A leader that is frozen keeps its connections; without this a request to it would wait for ever.
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))...)
		if err != nil {
			c.mu.Unlock()
			return nil, err
		}
		c.conns[address] = conn
	}
	c.mu.Unlock()
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return conn.ClientConn, nil
		case connectivity.Idle:
			conn.Connect()
		case connectivity.TransientFailure:
			c.drop(address, conn) // the next round dials anew, without gRPC's own back-off
			return nil, conn.refusal()
		}
		if !conn.WaitForStateChange(ctx, state) {
			c.drop(address, conn)
			return nil, fmt.Errorf("no connection within %v", c.cfg.ConnectTimeout)
		}
	}
}

func (c *Client) drop(address string, conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns[address] == conn {
		delete(c.conns, address)
	}
	_ = conn.Close()
}

// undecided reports whether err is no answer to a request: whether it took effect cannot be told from it.
func undecided(err error) bool {
	if errors.Is(err, grpcerr.ErrUnknownOutcome) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return true
	default:
		return false
	}
}
