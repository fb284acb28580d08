package jobmanager

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/jobmanager/driver"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/raftnode"
	"github.com/weir-stream/weir/jobmanager/registry"
	"github.com/weir-stream/weir/jobmanager/rpc"
	"github.com/weir-stream/weir/statebackend/blob/storage"
)

const (
	// beginRetry is the pause before a step of a leader's start is tried again.
	beginRetry = 500 * time.Millisecond
	// giveWayEvery is how long a leader without storage leads on once it has given way to the others.
	giveWayEvery = 5 * time.Second
	// learnMembersEvery is the pause between two rounds of asking the other members who they are.
	learnMembersEvery = 5 * time.Second
)

var errTermPassed = errors.New("a newer term has begun")

// lead makes a term for each leadership and ends it with it, until ctx ends.
func (s *Server) lead(ctx context.Context) {
	var end func()
	stop := func() {
		if end != nil {
			end()
			end = nil
		}
	}
	defer stop()
	for {
		select {
		case leads := <-s.node.Leadership():
			stop()
			if leads {
				end = s.beginTerm(ctx)
			}
		case <-ctx.Done():
			return
		}
	}
}

// beginTerm starts a leadership beside the caller and returns what ends it and waits.
func (s *Server) beginTerm(ctx context.Context) func() {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.serveTerm(ctx)
	}()
	return func() {
		s.leader.Store(nil)
		cancel()
		<-done
	}
}

// serveTerm does a leader's work until ctx ends.
func (s *Server) serveTerm(ctx context.Context) {
	var term uint64
	if !s.retry(ctx, "apply the log", func() error {
		term = s.node.Term()
		if err := s.node.Barrier(ctx); err != nil {
			return err
		}
		if s.node.Term() != term {
			return errTermPassed // the barrier may be of the former leadership
		}
		return nil
	}) {
		return
	}
	logger := s.logger.With("term", term)
	if !s.retry(ctx, "announce the leader", func() error { return s.announce(ctx) }) {
		return
	}
	clusterID := s.View().ClusterID()
	object, shared := probeObject(clusterID), prober{bucket: s.bucket}
	var content string
	if !s.retry(ctx, "read the probe object", func() (err error) {
		if content, err = shared.probe(ctx, object); errors.Is(err, errOtherStorage) {
			s.endIfAlone(err)
		}
		if err != nil {
			s.giveWay(ctx)
		}
		return err
	}) {
		return
	}
	var sessions *registry.Registry
	manager := driver.New(ctx, driver.Config{
		ClusterID: clusterID, Log: (*replicatedLog)(s), Bucket: s.bucket, OpenBucket: storage.OpenURL,
		RegisterGrace: s.cfg.RegisterGrace, SlotsWait: s.cfg.SlotsWait, CancelDeadline: s.cfg.CancelDeadline,
		PrepareWarning: s.cfg.PrepareWarning, PrepareTimeout: s.cfg.PrepareTimeout, SettleBudget: s.cfg.RecoveryBudget,
		AutoSettle: s.cfg.AutoSettle,
		Plan: func(ctx context.Context, job *clusterv1.PlanJob) (*jobv1.Graph, error) {
			return rpc.PlanGraph(ctx, sessions, job)
		},
		Metrics: s.jobs, Logger: logger,
	})
	sessions = registry.New(registry.Config{
		ClusterID: clusterID, Term: term, StorageURL: s.bucket.URL(),
		Probe:             func(context.Context) (string, string, error) { return object, content, nil },
		HeartbeatInterval: s.cfg.HeartbeatInterval, HeartbeatTimeout: s.cfg.HeartbeatTimeout, Grace: s.cfg.ReconnectGrace,
		Handler: manager, Logger: logger,
	})
	manager.Start(sessions)
	learned := make(chan struct{})
	go func() {
		defer close(learned)
		s.learnMembers(ctx)
	}()
	logger.Info("leadership begins", "cluster", clusterID, "jobs", len(s.View().Jobs()))
	s.leader.Store(&rpc.Leader{Term: term, ClusterID: clusterID, Registry: sessions, Jobs: manager, Log: (*replicatedLog)(s)})
	<-ctx.Done()
	s.leader.Store(nil)
	sessions.Close()
	manager.Close()
	<-learned
	logger.Info("leadership ends")
}

// endIfAlone ends a JobManager that is the only member: nobody else can lead, and its setting is wrong.
func (s *Server) endIfAlone(why error) {
	if servers, err := s.node.Servers(); err != nil || len(servers) > 1 {
		return
	}
	select {
	case s.wrongStorage <- why:
	default: // told already
	}
}

// giveWay lets another member lead, which may see the cluster's storage where this one does not. All of them may have lost it for a while:
// one that gave way a moment ago keeps the leadership and looks again.
func (s *Server) giveWay(ctx context.Context) {
	if time.Since(s.gaveWay) < giveWayEvery {
		return
	}
	s.gaveWay = time.Now()
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	if err := s.node.TransferLeadership(ctx); err != nil && s.node.IsLeader() {
		s.logger.Info("leadership not handed over", "error", err)
	}
}

// retry repeats a step of the start until it succeeds; false when ctx ended before.
func (s *Server) retry(ctx context.Context, what string, step func() error) bool {
	defer s.leaderErr.Store(nil)
	for {
		err := step()
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			return true
		}
		why := fmt.Sprintf("%s: %v", what, err)
		if old := s.leaderErr.Swap(&why); old == nil || *old != why {
			s.logger.Warn("leader cannot serve yet", "step", what, "error", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(beginRetry):
		}
	}
}

// announce gives a new cluster its id and tells the other members where this one is. The probe object comes before the id: it is on
// the storage of every cluster that has one, so a leader that does not find it looks at another storage.
func (s *Server) announce(ctx context.Context) error {
	log := (*replicatedLog)(s)
	if s.View().ClusterID() == "" {
		id := strings.ToLower(ulid.Make().String())
		random := make([]byte, 16)
		_, _ = rand.Read(random)
		if err := s.bucket.Put(ctx, probeObject(id), strings.NewReader(hex.EncodeToString(random))); err != nil {
			return err
		}
		if _, err := log.Propose(ctx, &raftv1.Command{Command: &raftv1.Command_InitCluster{InitCluster: &raftv1.InitCluster{ClusterId: id}}}); err != nil {
			return err
		}
	}
	return s.recordMember(ctx, &raftv1.MemberLevel{Id: s.cfg.ID, Address: s.advertise, Level: fsm.Level})
}

// recordMember puts into the log where a member serves and which commands it understands, unless the log says so already.
func (s *Server) recordMember(ctx context.Context, m *raftv1.MemberLevel) error {
	for _, known := range s.View().Members() {
		if proto.Equal(known, m) {
			return nil
		}
	}
	_, err := (*replicatedLog)(s).Propose(ctx, &raftv1.Command{Command: &raftv1.Command_MemberLevel{MemberLevel: m}})
	return err
}

// learnMembers asks the other members from time to time who they are, until ctx ends. One that does not answer keeps what the log
// says of it.
func (s *Server) learnMembers(ctx context.Context) {
	for {
		servers, err := s.node.Servers()
		if err != nil {
			s.logger.Debug("members not known", "error", err)
		}
		for _, srv := range servers {
			if srv.ID == s.cfg.ID || ctx.Err() != nil {
				continue
			}
			said, err := s.node.Introduce(ctx, srv.ID, srv.Address)
			if err != nil || said.ServiceAddress == "" {
				continue
			}
			err = s.recordMember(ctx, &raftv1.MemberLevel{Id: srv.ID, Address: said.ServiceAddress, Level: said.Level})
			if err != nil && ctx.Err() == nil {
				s.logger.Warn("address of a member not recorded", "of", srv.ID, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(learnMembersEvery):
		}
	}
}

// replicatedLog is the server's log as the drivers and services use it.
type replicatedLog Server

var _ driver.Log = (*replicatedLog)(nil)

// Propose implements driver.Log.
func (l *replicatedLog) Propose(ctx context.Context, cmd *raftv1.Command) (fsm.Result, error) {
	if err := l.understood(fsm.LevelOf(cmd)); err != nil {
		return fsm.Result{}, err
	}
	data, err := proto.Marshal(cmd)
	if err != nil {
		return fsm.Result{}, fmt.Errorf("%w: encode command: %w", raftnode.ErrNotLeader, err)
	}
	answer, err := l.node.Propose(ctx, data)
	if err != nil {
		return fsm.Result{}, err
	}
	res, ok := answer.(fsm.Result)
	if !ok {
		return fsm.Result{}, fmt.Errorf("%w: the state machine answered %T", raftnode.ErrUnknownOutcome, answer)
	}
	return res, nil
}

// understood refuses a command that a member does not know yet: it would have to stop when the command reaches it. That is so until the
// last one has been upgraded.
func (l *replicatedLog) understood(needed uint32) error {
	if needed <= fsm.FirstLevel {
		return nil
	}
	level, err := l.level()
	if err == nil && needed > level {
		err = fmt.Errorf("a command of level %d, and the members understand up to %d; upgrade all JobManagers", needed, level)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", raftnode.ErrNotLeader, err)
	}
	return nil
}

// Level implements driver.Log.
func (l *replicatedLog) Level() uint32 {
	level, err := l.level()
	if err != nil {
		return fsm.FirstLevel
	}
	return level
}

func (l *replicatedLog) level() (uint32, error) {
	servers, err := l.node.Servers()
	if err != nil {
		return 0, err
	}
	return rpc.Level(servers, l.View()), nil
}

// Barrier implements driver.Log.
func (l *replicatedLog) Barrier(ctx context.Context) error { return l.node.Barrier(ctx) }

// View implements driver.Log.
func (l *replicatedLog) View() fsm.View { return l.machine.View() }
