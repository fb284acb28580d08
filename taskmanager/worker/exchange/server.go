package exchange

import (
	"context"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	exchangev1 "github.com/weir-stream/weir/gen/exchange/v1"
	"github.com/weir-stream/weir/internal/keepalive"
)

// Server is a worker's data listener: it takes the channels whose consumers live here.
type Server struct {
	attempt Attempt
	lis     net.Listener
	grpc    *grpc.Server
	done    chan struct{}
	// closing is closed when consumers need nothing more.
	closing chan struct{}
	once    sync.Once
	// receivers are the goroutines that read the streams.
	receivers sync.WaitGroup

	mu       sync.Mutex
	clean    bool
	channels map[ID]*endpoint
}

// endpoint is the consuming end of one remote channel.
type endpoint struct {
	inbox   *Inbox
	channel int
	fail    func(error)
	taken   bool
}

// Listen opens a data listener on a free port of host.
func Listen(host string, ports Ports, attempt Attempt) (*Server, error) {
	if attempt.Token == "" {
		return nil, errNoToken
	}
	creds := insecure.NewCredentials()
	if attempt.Encrypt {
		cfg, err := attempt.tls(nil)
		if err != nil {
			return nil, err
		}
		creds = credentials.NewTLS(cfg)
	}
	lis, err := ports.listen(host)
	if err != nil {
		return nil, fmt.Errorf("open the data listener: %w", err)
	}
	s := &Server{
		attempt: attempt, lis: lis, done: make(chan struct{}), closing: make(chan struct{}),
		channels: make(map[ID]*endpoint),
	}
	s.grpc = grpc.NewServer(
		grpc.Creds(creds),
		grpc.ForceServerCodecV2(rawCodec{&framePool{}}),
		grpc.MaxRecvMsgSize(maxMessage+partHeader),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		keepalive.Off(), grpc.WaitForHandlers(true),
	)
	s.grpc.RegisterService(&grpc.ServiceDesc{
		ServiceName: exchangev1.ExchangeService_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: "Connect", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error { return s.serve(stream) },
		}},
	}, s)
	go func() {
		defer close(s.done)
		// Serve returns when the server is stopped.
		_ = s.grpc.Serve(lis)
	}()
	return s, nil
}

// Port returns the port it listens on.
func (s *Server) Port() int { return s.lis.Addr().(*net.TCPAddr).Port }

// Register makes a channel of a consumer's inbox ready to be connected. fail is called, from any goroutine, when its producer is
// lost.
func (s *Server) Register(id ID, inbox *Inbox, channel int, fail func(error)) {
	s.mu.Lock()
	s.channels[id] = &endpoint{inbox: inbox, channel: channel, fail: fail}
	s.mu.Unlock()
}

// Close closes the listener and all channels and waits for their goroutines. A clean close lets the producers see an orderly end.
func (s *Server) Close(clean bool) {
	s.once.Do(func() {
		s.mu.Lock()
		s.clean = clean
		s.mu.Unlock()
		close(s.closing)
	})
	if clean {
		s.grpc.GracefulStop()
	} else {
		s.grpc.Stop()
	}
	<-s.done
	s.receivers.Wait()
}

// ending returns what the producers see when this worker ends.
func (s *Server) ending() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clean {
		return nil
	}
	return status.Error(codes.Aborted, "the consumer's worker has stopped")
}

// accept finds the channel that a connection asks for.
func (s *Server) accept(ctx context.Context) (ID, *endpoint, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	get := func(key string) string {
		if v := md.Get(key); len(v) == 1 {
			return v[0]
		}
		return ""
	}
	// Under TLS the handshake has shown that the other end has the token.
	if !s.attempt.Encrypt && subtle.ConstantTimeCompare([]byte(get(keyToken)), []byte(s.attempt.Token)) != 1 {
		return ID{}, nil, status.Error(codes.PermissionDenied, "wrong token")
	}
	if job, attempt := get(keyJob), get(keyAttempt); job != s.attempt.Job || attempt != strconv.FormatUint(s.attempt.Attempt, 10) {
		return ID{}, nil, status.Errorf(codes.PermissionDenied, "this worker belongs to attempt %d of job %s, not to attempt %s of job %s",
			s.attempt.Attempt, s.attempt.Job, attempt, job)
	}
	producer, err1 := strconv.Atoi(get(keyProducer))
	consumer, err2 := strconv.Atoi(get(keyConsumer))
	if err := errors.Join(err1, err2); err != nil {
		return ID{}, nil, status.Errorf(codes.InvalidArgument, "metadata: %v", err)
	}
	id := ID{Edge: get(keyEdge), Producer: producer, Consumer: consumer}
	s.mu.Lock()
	defer s.mu.Unlock()
	ep := s.channels[id]
	if ep == nil {
		return id, nil, status.Errorf(codes.NotFound, "channel %s does not end in this worker", id)
	}
	if ep.taken {
		return id, nil, status.Errorf(codes.PermissionDenied, "channel %s is connected already", id)
	}
	ep.taken = true
	return id, ep, nil
}

// serve runs one channel until its producer or this worker ends it.
func (s *Server) serve(stream grpc.ServerStream) error {
	ctx := stream.Context()
	id, ep, err := s.accept(ctx)
	if err != nil {
		return err
	}
	if err := stream.SendHeader(metadata.Pairs(keyConsumer, strconv.Itoa(id.Consumer))); err != nil {
		return err
	}
	c := &credits{notify: make(chan struct{}, 1)}
	received := make(chan error, 1)
	// The receiving goroutine ends with the stream, that is soon after serve returns.
	s.receivers.Go(func() { received <- receive(stream, ep, c) })
	notify := c.notify
	for {
		select {
		case <-notify:
			if err := c.send(stream); err != nil {
				// The stream is broken; the receiving side knows why.
				notify = nil
			}
		case <-s.closing:
			return s.ending()
		case err := <-received:
			if errors.Is(err, io.EOF) {
				return nil
			}
			select {
			case <-s.closing:
				return s.ending()
			default:
			}
			addr := "unknown"
			if p, ok := peer.FromContext(ctx); ok {
				addr = p.Addr.String()
			}
			ep.fail(&PeerError{Channel: id, Peer: addr, Err: err})
			return status.Error(codes.Aborted, err.Error())
		}
	}
}

func receive(stream grpc.ServerStream, ep *endpoint, c *credits) error {
	var parts assembler
	for {
		var in received
		if err := stream.RecvMsg(&in); err != nil {
			return err
		}
		message := in.buf.ReadOnlyData()
		if len(message) > 0 && Kind(message[0]) == part {
			frame, err := parts.add(message)
			in.buf.Free()
			if err != nil {
				return err
			}
			if frame == nil {
				continue
			}
			in.buf, message = mem.SliceBuffer(frame), frame
		}
		e, err := decodeFrame(message)
		if err != nil {
			return err
		}
		if e.Kind == Data {
			e.buf, e.size, e.credit = in.buf, len(message), c
		} else {
			in.buf.Free()
		}
		ep.inbox.push(ep.channel, e)
	}
}

// credits gathers what the consumer has worked off until it is sent to the producer.
type credits struct {
	notify chan struct{}

	mu    sync.Mutex
	count int
}

func (c *credits) consumed(size int) {
	c.mu.Lock()
	c.count += size
	c.mu.Unlock()
	select {
	case c.notify <- struct{}{}:
	default:
	}
}

func (c *credits) send(stream grpc.ServerStream) error {
	c.mu.Lock()
	n := c.count
	c.count = 0
	c.mu.Unlock()
	if n == 0 {
		return nil
	}
	return stream.SendMsg(mem.BufferSlice{mem.SliceBuffer(binary.BigEndian.AppendUint64(nil, uint64(n)))})
}
