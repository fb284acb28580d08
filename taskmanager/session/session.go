package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/internal/keepalive"
	"github.com/weir-stream/weir/internal/nodetls"
)

// Errors that end one connection. Run goes on to the next JobManager.
var (
	errStaleTerm  = errors.New("the JobManager's term is lower than one met before: it is not the leader any more")
	errSilent     = errors.New("no message from the leader within the heartbeat timeout")
	errNoAnswer   = errors.New("no answer to the registration")
	errUnexpected = errors.New("the first answer is not a registration")
	errEnded      = errors.New("the JobManager ended the session")
)

// ErrOtherCluster ends Run: the JobManagers belong to another cluster than this TaskManager's data.
var ErrOtherCluster = errors.New("the JobManagers belong to another cluster")

// Handler acts on what the leader says. Its methods are called by one goroutine at a time and must return soon.
type Handler interface {
	// Running lists the attempts with worker processes.
	Running() []*clusterv1.RunningAttempt
	// FreeSlots counts the slots that no worker uses.
	FreeSlots() int
	// Registered tells that a leader has taken the TaskManager on. An error wrapping ErrOtherCluster ends Run, any other one the
	// connection.
	Registered(m *clusterv1.Registered) error
	// Probe reads the cluster's probe object.
	Probe(ctx context.Context, name string) (string, error)
	// Handle acts on any other message, in order.
	Handle(m *clusterv1.SessionResponse)
}

// Config configures a Session.
type Config struct {
	// Addresses are the host:port of JobManagers.
	Addresses []string
	// Register is the registration without what changes: running attempts are filled in.
	Register *clusterv1.Register
	Handler  Handler
	// RetryMin and RetryMax bound the pause between rounds over all addresses. Defaults: 50 ms and 250 ms, so that a new leader is
	// found soon: no checkpoint is taken until then.
	RetryMin, RetryMax time.Duration
	// RefusedPause is the pause after a leader refused the registration, which somebody must mend. Default: 5 s.
	RefusedPause time.Duration
	// ConnectTimeout bounds connecting to one JobManager; one that is gone with its machine does not refuse. Default: 2 s.
	ConnectTimeout time.Duration
	// UsualSearch is how long no leader may be found before that is logged as a warning. Default: 5 s.
	UsualSearch time.Duration
	// TLS secures connections; nil for none.
	TLS *nodetls.Keeper
	// AnswerTimeout bounds the answer to the registration. Default: 5 s.
	AnswerTimeout time.Duration
	// DialOptions are added to those of the package; tests dial in memory.
	DialOptions []grpc.DialOption
	Logger      *slog.Logger
}

// Session is a TaskManager's side of the conversation.
type Session struct {
	cfg       Config
	outbox    *outbox
	term      atomic.Uint64
	connected atomic.Bool
	refusal   string // text of the last refusal logged; Run's own
}

// New returns a session that Run drives.
func New(cfg Config) *Session {
	if cfg.RetryMin == 0 {
		cfg.RetryMin = 50 * time.Millisecond
	}
	if cfg.RetryMax == 0 {
		cfg.RetryMax = 250 * time.Millisecond
	}
	if cfg.RefusedPause == 0 {
		cfg.RefusedPause = 5 * time.Second
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 2 * time.Second
	}
	if cfg.AnswerTimeout == 0 {
		cfg.AnswerTimeout = 5 * time.Second
	}
	if cfg.UsualSearch == 0 {
		cfg.UsualSearch = 5 * time.Second
	}
	return &Session{cfg: cfg, outbox: newOutbox(time.Now)}
}

// Send queues a report for the leader. It never blocks.
func (s *Session) Send(m *clusterv1.SessionRequest) { s.outbox.put(m) }

// Goodbye announces an orderly shutdown to the leader and to every later one. Reports still go out until Run's context ends.
func (s *Session) Goodbye() {
	s.outbox.put(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_Goodbye{Goodbye: &clusterv1.Goodbye{}}})
}

// Flushed returns when every report has been handed to the connection, at once when there is none, or when ctx ends.
func (s *Session) Flushed(ctx context.Context) { s.outbox.flushed(ctx) }

// Connected reports whether a leader has taken the TaskManager on and the connection stands.
func (s *Session) Connected() bool { return s.connected.Load() }

// Term returns the highest leader term met.
func (s *Session) Term() uint64 { return s.term.Load() }

// Run keeps the session until ctx ends, and then returns nil. Trouble with JobManagers ends it only where somebody has to mend the
// TaskManager's configuration: ErrOtherCluster, and a refusal (grpcerr.ErrRefused) before the first registration that held. A later
// refusal is tried again, as workers may run here and it is the leader that has changed.
func (s *Session) Run(ctx context.Context) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = s.cfg.RetryMin, s.cfg.RetryMax
	next, admitted := 0, false
	var lost silence
	silent := "" // the address of a leader that has just fallen silent
	for hint := ""; ; {
		address := hint
		if address == "" {
			address = s.cfg.Addresses[next%len(s.cfg.Addresses)]
			next++
			if address == silent && len(s.cfg.Addresses) > 1 {
				silent = ""
				continue // it has had its time; the others may have a new leader already
			}
		}
		registered, err := s.converse(ctx, address)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the connection ended because it should
		}
		if errors.Is(err, ErrOtherCluster) {
			return fmt.Errorf("%s: %w", address, err)
		}
		if refused(err) && !admitted {
			return fmt.Errorf("register with the JobManager at %s: %w", address, grpcerr.Decode(err))
		}
		if registered && !refused(err) {
			admitted = true
			pause.Reset()
		}
		followed := hint != ""
		hint = leaderHint(err)
		s.logEnd(address, hint, registered, err)
		switch {
		case registered, refused(err):
			lost = silence{}
		case hint == "":
			lost.add(address, grpcerr.Decode(err))
		}
		switch {
		case hint != "" || !registered || refused(err):
		case errors.Is(err, errSilent):
			silent = address
		default:
			hint = address // most likely the leader still, and it waits a moment for us
		}
		// A hint is followed at once, a hint of a hint is not: two nodes may each take the other for the leader.
		if hint != "" && !followed {
			continue
		}
		if hint == "" && next%len(s.cfg.Addresses) != 0 && !refused(err) {
			continue // the rest of this round
		}
		s.tell(&lost)
		wait := pause.NextBackOff()
		if refused(err) {
			wait = s.cfg.RefusedPause
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// tell logs a search without success.
func (s *Session) tell(lost *silence) {
	switch lost.round(time.Now(), s.cfg.UsualSearch) {
	case aLine:
		s.cfg.Logger.Info("looking for a leading jobmanager", "addresses", s.cfg.Addresses)
	case aWarning:
		s.cfg.Logger.Warn("no leading jobmanager found, looking on", "since", time.Since(lost.began).Round(time.Second), "answers", lost.String())
	}
}

func (s *Session) logEnd(address, hint string, registered bool, err error) {
	switch {
	case hint != "":
		s.cfg.Logger.Debug("jobmanager is not the leader", "address", address, "leader", hint)
	case refused(err) && err.Error() != s.refusal:
		s.refusal = err.Error()
		s.cfg.Logger.Error("registration refused, trying again from time to time", "address", address, "err", grpcerr.Decode(err))
	case registered && !refused(err):
		s.cfg.Logger.Warn("connection to the leader ended", "address", address, "err", grpcerr.Decode(err))
	default:
		s.cfg.Logger.Debug("no session with jobmanager", "address", address, "err", err)
	}
}

// dial opens a connection to a JobManager; nothing is sent before the first call.
// trouble is told why the connection does not stand, where that is known.
func (s *Session) dial(address string, trouble func(error)) (*grpc.ClientConn, error) {
	creds := nodetls.PlainClientCredentials(trouble)
	if s.cfg.TLS != nil {
		creds = s.cfg.TLS.ClientCredentials(trouble)
	}
	opts := append(keepalive.FixedClientWindow(),
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithNoProxy(),
	)
	return grpc.NewClient("passthrough:///"+address, append(opts, s.cfg.DialOptions...)...)
}

// maxMessage bounds one message in bytes.
const maxMessage = 64 << 20
