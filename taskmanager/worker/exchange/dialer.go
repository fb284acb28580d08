package exchange

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	exchangev1 "github.com/weir-stream/weir/gen/exchange/v1"
)

// HTTP/2 windows are fixed: the bound that matters is the channel's own, and these only have to keep out of its way.
const (
	streamWindow = 1 << 20
	connWindow   = 8 << 20
)

// Metadata keys of a connection.
const (
	keyJob      = "weir-job"
	keyAttempt  = "weir-attempt"
	keyToken    = "weir-token"
	keyEdge     = "weir-edge-bin"
	keyProducer = "weir-producer"
	keyConsumer = "weir-consumer"
)

// Attempt identifies whom a worker talks to.
type Attempt struct {
	Job     string
	Attempt uint64
	// Token is the secret of the attempt.
	Token string
	// Encrypt puts connections under TLS, with a key derived from the token, which then does not travel itself.
	Encrypt bool
}

// Dialer connects remote senders. Channels to one worker share a connection.
type Dialer struct {
	attempt Attempt
	pool    *framePool
	wg      sync.WaitGroup

	mu      sync.Mutex
	conns   map[string]*connection
	senders []*Remote
	closed  bool
}

// connection is a connection to one worker.
type connection struct {
	*grpc.ClientConn
	// stranger is canceled when the worker turned out not to have the attempt's key.
	stranger   context.Context //nolint:containedctx // it is an event, for context.AfterFunc
	isStranger context.CancelFunc
}

// NewDialer returns a dialer.
func NewDialer(attempt Attempt) *Dialer {
	return &Dialer{attempt: attempt, pool: &framePool{}, conns: make(map[string]*connection)}
}

// Connect connects r to the consumer's worker at addr. It waits for a worker that does not listen yet until ctx ends; a worker that
// refuses is an error at once.
func (d *Dialer) Connect(ctx context.Context, addr string, r *Remote) error {
	conn, err := d.conn(addr)
	if err != nil {
		return err
	}
	fail := func(err error) error { return &PeerError{Channel: r.id, Peer: addr, Err: err} }
	// The stream outlives ctx, which bounds only its beginning.
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	defer context.AfterFunc(conn.stranger, cancel)()
	if !d.attempt.Encrypt {
		streamCtx = metadata.AppendToOutgoingContext(streamCtx, keyToken, d.attempt.Token)
	}
	streamCtx = metadata.AppendToOutgoingContext(streamCtx,
		keyJob, d.attempt.Job, keyAttempt, strconv.FormatUint(d.attempt.Attempt, 10), keyEdge, r.id.Edge, keyProducer, strconv.Itoa(r.id.Producer), keyConsumer, strconv.Itoa(r.id.Consumer))
	desc := &grpc.StreamDesc{StreamName: "Connect", ClientStreams: true, ServerStreams: true}
	stream, err := conn.NewStream(streamCtx, desc, exchangev1.ExchangeService_Connect_FullMethodName)
	if err == nil {
		// Headers come when the consumer has accepted the channel; a refusal comes without any, as the status.
		var header metadata.MD
		if header, err = stream.Header(); err == nil && header == nil {
			var in received
			err = stream.RecvMsg(&in)
		}
	}
	if err != nil || !stop() {
		cancel()
		switch {
		case conn.stranger.Err() != nil:
			return fail(fmt.Errorf("%w: %w", ErrRefused, errStranger))
		case ctx.Err() != nil && err != nil:
			return fail(fmt.Errorf("no connection before the deadline: %w", err))
		case ctx.Err() != nil:
			return fail(context.Cause(ctx))
		case status.Code(err) == codes.PermissionDenied || status.Code(err) == codes.NotFound:
			return fail(fmt.Errorf("%w: %w", ErrRefused, err))
		}
		return fail(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		cancel()
		return fail(ErrClosed)
	}
	if !r.attach(addr, stream, cancel) {
		cancel()
		return fail(ErrClosed)
	}
	d.senders = append(d.senders, r)
	d.wg.Go(r.receive)
	return nil
}

func (d *Dialer) conn(addr string) (*connection, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	if c := d.conns[addr]; c != nil {
		return c, nil
	}
	conn := &connection{}
	conn.stranger, conn.isStranger = context.WithCancel(context.Background())
	creds := insecure.NewCredentials()
	if d.attempt.Encrypt {
		cfg, err := d.attempt.tls(conn.isStranger)
		if err != nil {
			return nil, err
		}
		creds = credentials.NewTLS(cfg)
	}
	var err error
	conn.ClientConn, err = grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(creds),
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithDefaultCallOptions(
			grpc.WaitForReady(true),
			grpc.ForceCodecV2(rawCodec{d.pool}),
			grpc.MaxCallSendMsgSize(maxMessage+partHeader),
		),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to worker at %s: %w", addr, err)
	}
	d.conns[addr] = conn
	return conn, nil
}

// Close ends all connections and waits for their goroutines. Senders that were closed cleanly get closeWait to deliver what they
// sent.
func (d *Dialer) Close() {
	d.mu.Lock()
	d.closed = true
	senders := d.senders
	d.mu.Unlock()
	deadline := time.NewTimer(closeWait)
	defer deadline.Stop()
	for _, r := range senders {
		select {
		case <-r.closed:
			select {
			case <-r.gone:
			case <-r.stream.Context().Done():
			case <-deadline.C:
				deadline.Reset(0)
			}
		default:
			r.Close(false)
		}
	}
	for _, r := range senders {
		r.cancel()
	}
	d.wg.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		c.isStranger()
		_ = c.Close()
	}
}

// closeWait bounds how long an orderly end waits for the other side.
const closeWait = time.Second
