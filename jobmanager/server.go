package jobmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/weir-stream/weir/internal/adminhttp"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/internal/keepalive"
	"github.com/weir-stream/weir/internal/nodetls"
	"github.com/weir-stream/weir/internal/version"
	"github.com/weir-stream/weir/jobmanager/access"
	"github.com/weir-stream/weir/jobmanager/driver"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/raftnode"
	"github.com/weir-stream/weir/jobmanager/rpc"
	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/statebackend/blob/storage"
)

const (
	// maxMessage bounds one gRPC message, in bytes. Larger things travel by reference or in chunks.
	maxMessage = 64 << 20
	// transferTimeout bounds the hand-over of the leadership at shutdown.
	transferTimeout = 2 * time.Second
	// abandonWait bounds the last words of a member that gives up.
	abandonWait = 500 * time.Millisecond
)

// Server is a running JobManager.
type Server struct {
	cfg       Config
	logger    *slog.Logger
	machine   *fsm.Machine
	node      *raftnode.Node
	bucket    blob.Bucket
	listener  net.Listener
	advertise string
	tls       *nodetls.Keeper // nil for none
	grpc      *grpc.Server
	admin     *adminhttp.Server
	jobs      *driver.Metrics

	leader    atomic.Pointer[rpc.Leader]
	leaderErr atomic.Pointer[string] // why a leader does not serve yet
	stopping  atomic.Bool
	served    chan error // the end of the gRPC server
	// wrongStorage gets why this member, the only one, must not lead, at most once.
	wrongStorage chan error
	gaveWay      time.Time // when another member was last asked to lead; of the goroutine that serves a term
}

var _ rpc.Cluster = (*Server)(nil)

// Start opens the data directory and the listeners of a JobManager. Its Run must be called.
func Start(cfg Config, logger *slog.Logger) (_ *Server, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, logger: logger.With("member", cfg.ID), machine: fsm.NewMachine(), served: make(chan error, 1), wrongStorage: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(context.Background()))
		}
	}()
	if err := checkIdentity(cfg.DataDir, cfg.ID); err != nil {
		return nil, err
	}
	members := make([]raftnode.Member, 0, len(cfg.Members))
	for _, m := range cfg.Members {
		members = append(members, raftnode.Member{ID: m.ID, Address: m.RaftAddress})
	}
	if s.bucket, err = storage.OpenURL(context.Background(), cfg.Storage); err != nil {
		return nil, err
	}
	if s.listener, err = net.Listen("tcp", cfg.Listen); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s.advertise = cfg.Advertise
	if s.advertise == "" {
		s.advertise = s.listener.Addr().String()
	}
	if cfg.tls().Enabled() {
		if s.tls, err = nodetls.OpenNode(cfg.tls(), cfg.hosts(), s.logger); err != nil {
			return nil, err
		}
	}
	var tokens *access.Tokens
	if cfg.UserTokens != "" {
		if tokens, err = access.OpenTokens(cfg.UserTokens, s.logger); err != nil {
			return nil, err
		}
	}
	s.node, err = raftnode.Open(raftnode.Config{
		ID: cfg.ID, Dir: cfg.DataDir, Listen: cfg.RaftListen, Advertise: cfg.raftAdvertise(), TLS: s.tls, Members: members,
		Heartbeat: cfg.RaftHeartbeat, Election: cfg.RaftElection, ServiceAddress: s.advertise, Level: fsm.Level, Logger: s.logger,
	}, s.machine)
	if err != nil {
		return nil, err
	}
	if err := keepIdentity(cfg.DataDir, cfg.ID); err != nil {
		return nil, err
	}
	reg := prometheus.NewRegistry()
	s.jobs = driver.NewMetrics(reg)
	s.registerMetrics(reg)
	if cfg.Admin != "" {
		s.admin, err = adminhttp.Start(adminhttp.Config{Listen: cfg.Admin, Metrics: reg, Ready: s.ready, Logger: s.logger})
		if err != nil {
			return nil, err
		}
	}
	policy := access.New(s.tls != nil, tokens, s.logger)
	creds := nodetls.PlainServerCredentials(s.logger)
	if s.tls != nil {
		creds = s.tls.ServerCredentials()
	}
	s.grpc = grpc.NewServer(append(keepalive.FixedServerWindow(),
		grpc.Creds(creds),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.ChainUnaryInterceptor(grpcerr.UnaryServerInterceptor, policy.Unary),
		grpc.ChainStreamInterceptor(grpcerr.StreamServerInterceptor, policy.Stream),
		keepalive.Off(), keepalive.Accept(),
	)...)
	rpc.New(s, s.bucket, storage.OpenURL, s.logger).Register(s.grpc)
	go func() { s.served <- s.grpc.Serve(s.listener) }()
	for _, w := range cfg.Warnings() {
		s.logger.Warn("a setting is probably not meant", "setting", w)
	}
	s.logger.Info("jobmanager started", "version", version.Version, "address", s.advertise, "raft_address", s.node.Address(),
		"storage", s.bucket.URL())
	return s, nil
}

// Run serves until ctx ends or something makes it give up, and then shuts down.
func (s *Server) Run(ctx context.Context) error {
	leading, stopLeading := context.WithCancel(context.Background())
	leadDone := make(chan struct{})
	go func() {
		defer close(leadDone)
		s.lead(leading)
	}()
	watching, stop := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { s.watchStorage(watching) })
	if s.tls != nil {
		watch.Go(func() { s.tls.Watch(watching) })
	}
	defer func() {
		stop()
		watch.Wait()
	}()
	var cause error
	select {
	case <-ctx.Done():
	case cause = <-s.node.Fatal():
		stopLeading()
		s.abandon(cause)
		return cause
	case cause = <-s.wrongStorage:
		s.logger.Error("jobmanager gives up", "error", cause)
	case err := <-s.served:
		s.served <- err
		cause = fmt.Errorf("gRPC server ended: %w", err)
	}
	s.stopping.Store(true)
	s.logger.Info("jobmanager shuts down")
	deadline, cancel := context.WithTimeout(context.Background(), s.cfg.ShutdownTimeout)
	defer cancel()
	if s.node.IsLeader() {
		transfer, cancel := context.WithTimeout(deadline, transferTimeout)
		if err := s.node.TransferLeadership(transfer); err != nil && !errors.Is(err, raftnode.ErrNoSuccessor) {
			s.logger.Info("leadership not handed over", "error", err)
		}
		cancel()
	}
	stopLeading()
	select {
	case <-leadDone:
	case <-deadline.Done():
		return errors.Join(cause, fmt.Errorf("drivers did not stop within %s", s.cfg.ShutdownTimeout))
	}
	return errors.Join(cause, s.close(deadline))
}

// abandon ends the connections, so that all who wait for this member know at once, and tells why. It waits for nothing that may never
// come back: neither for the library, which is stuck in a write, nor for the log, which may go to the same disk.
func (s *Server) abandon(cause error) {
	told := make(chan struct{})
	go func() {
		defer close(told)
		s.grpc.Stop()
		s.logger.Error("jobmanager gives up", "error", cause)
	}()
	select {
	case <-told:
	case <-time.After(abandonWait):
	}
}

// close shuts down what was started, in the order in which others depend on it.
func (s *Server) close(ctx context.Context) error {
	var errs []error
	if s.grpc != nil {
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.grpc.GracefulStop()
		}()
		select {
		case <-done:
		case <-time.After(time.Second):
			s.grpc.Stop()
			<-done
		}
	} else if s.listener != nil {
		_ = s.listener.Close()
	}
	if s.node != nil {
		errs = append(errs, s.node.Shutdown(ctx))
	}
	if s.admin != nil {
		errs = append(errs, s.admin.Shutdown(ctx))
	}
	if s.bucket != nil {
		errs = append(errs, s.bucket.Close())
	}
	return errors.Join(errs...)
}

// Address returns the host:port by which the gRPC listener is reached.
func (s *Server) Address() string { return s.advertise }

// AdminAddress returns the host:port of metrics and health; empty when they are off.
func (s *Server) AdminAddress() string {
	if s.admin == nil {
		return ""
	}
	return s.admin.Address()
}

// Leader implements rpc.Cluster.
func (s *Server) Leader() (*rpc.Leader, error) {
	if l := s.leader.Load(); l != nil {
		return l, nil
	}
	id := s.LeaderID()
	if id == s.cfg.ID { // elected, but not ready to serve
		if why := s.leaderErr.Load(); why != nil {
			return nil, fmt.Errorf("%w: %s", grpcerr.ErrStorage, *why)
		}
		return nil, &grpcerr.NotLeaderError{}
	}
	return nil, &grpcerr.NotLeaderError{LeaderID: id, LeaderAddress: s.LeaderAddress(), Trouble: s.node.Trouble()}
}

// Verify implements rpc.Cluster.
func (s *Server) Verify(ctx context.Context, term uint64) error {
	return s.node.VerifyLeader(ctx, term)
}

// View implements rpc.Cluster.
func (s *Server) View() fsm.View { return s.machine.View() }

// ID implements rpc.Cluster.
func (s *Server) ID() string { return s.cfg.ID }

// LeaderID implements rpc.Cluster.
func (s *Server) LeaderID() string { return s.node.Leader() }

// LeaderAddress implements rpc.Cluster. A leader puts its address into the log before it serves.
func (s *Server) LeaderAddress() string {
	id := s.LeaderID()
	for _, m := range s.View().Members() {
		if m.GetId() == id {
			return m.GetAddress()
		}
	}
	return ""
}

// Term implements rpc.Cluster.
func (s *Server) Term() uint64 { return s.node.Term() }

// Members implements rpc.Cluster.
func (s *Server) Members() rpc.Members { return s.node }

func (s *Server) ready() error {
	switch {
	case s.stopping.Load():
		return errors.New("shutting down")
	case s.node.Trouble() != "":
		return errors.New(s.node.Trouble())
	case s.LeaderID() == "":
		return errors.New("no leader is known")
	}
	if _, err := s.Leader(); err != nil && !errors.Is(err, grpcerr.ErrNotLeader) {
		return err
	}
	return nil
}

func (s *Server) registerMetrics(reg *prometheus.Registry) {
	gauge := func(name, help string, value func() float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "weir", Subsystem: "jobmanager", Name: name, Help: help}, value))
	}
	gauge("leader", "1 while this member leads and serves.", func() float64 {
		if s.leader.Load() != nil {
			return 1
		}
		return 0
	})
	if s.tls != nil {
		gauge("tls_certificate_expires_timestamp_seconds", "When the node's certificate expires.", func() float64 { return float64(s.tls.Expires().Unix()) })
	}
	gauge("raft_term", "Current Raft term.", func() float64 { return float64(s.node.Term()) })
	gauge("raft_applied_index", "Last log position applied.", func() float64 { applied, _, _ := s.node.Stats(); return float64(applied) })
	gauge("raft_last_index", "Last log position stored.", func() float64 { _, _, last := s.node.Stats(); return float64(last) })
	gauge("taskmanagers", "Connected TaskManagers, on the leader.", func() float64 {
		n := 0
		if l := s.leader.Load(); l != nil {
			for _, tm := range l.Registry.TaskManagers() {
				if tm.Connected {
					n++
				}
			}
		}
		return float64(n)
	})
	gauge("slots_free", "Free slots, on the leader.", func() float64 {
		if l := s.leader.Load(); l != nil {
			free, _ := l.Jobs.Slots()
			return float64(free)
		}
		return 0
	})
}
