package session

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/internal/nodetls"
)

type stream = grpc.BidiStreamingClient[clusterv1.SessionRequest, clusterv1.SessionResponse]

// converse holds one connection from registration to its end and reports whether it got as far as being registered.
func (s *Session) converse(ctx context.Context, address string) (registered bool, err error) {
	var trouble atomic.Pointer[error]
	conn, err := s.dial(address, func(err error) { trouble.Store(&err) })
	if err != nil {
		return false, err
	}
	defer conn.Close()
	defer func() {
		// gRPC's error buries it in text.
		if why := trouble.Load(); err != nil && why != nil && nodetls.Settled(*why) {
			err = *why
		}
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	patience := time.AfterFunc(s.cfg.ConnectTimeout, func() { cancel(errNoAnswer) })
	defer patience.Stop()
	st, err := clusterv1.NewSessionServiceClient(conn).Session(ctx)
	if err != nil {
		return false, cause(ctx, err)
	}
	patience.Reset(s.cfg.AnswerTimeout)
	register := proto.CloneOf(s.cfg.Register)
	register.Running = s.cfg.Handler.Running()
	if err := s.write(st, &clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_Register{Register: register}}); err != nil {
		return false, cause(ctx, err)
	}
	first, err := st.Recv()
	if err != nil {
		return false, cause(ctx, err)
	}
	if err := s.admitTerm(first.GetTerm()); err != nil {
		return false, err
	}
	welcome := first.GetRegistered()
	if welcome == nil {
		return false, errUnexpected
	}
	if !patience.Stop() {
		return false, errNoAnswer
	}
	if err := s.cfg.Handler.Registered(welcome); err != nil {
		return false, err
	}
	s.cfg.Register.ClusterId = welcome.GetClusterId()
	s.cfg.Logger.Info("registered with the leader", "address", address, "term", first.GetTerm())
	for _, a := range welcome.GetStop() {
		s.cfg.Handler.Handle(&clusterv1.SessionResponse{Term: first.GetTerm(), Message: &clusterv1.SessionResponse_StopWorker{
			StopWorker: &clusterv1.StopWorker{JobId: a.GetJobId(), Attempt: a.GetAttempt()},
		}})
	}

	var parts sync.WaitGroup
	defer s.outbox.disconnect()
	defer parts.Wait()
	defer cancel(nil)
	probed := make(chan *clusterv1.Probe, 1) // one answer, whether or not anybody still waits
	parts.Go(func() { probed <- s.probe(ctx, welcome.GetProbeObject()) })
	parts.Go(func() { cancel(s.sendLoop(ctx, st, interval(welcome), probed)) })
	return true, s.receiveLoop(ctx, st, cancel, timeout(welcome))
}

// receiveLoop handles what the leader sends until the connection ends.
func (s *Session) receiveLoop(ctx context.Context, st stream, cancel context.CancelCauseFunc, limit time.Duration) error {
	silence := time.AfterFunc(limit, func() { cancel(errSilent) })
	defer silence.Stop()
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return errEnded
		}
		if err != nil {
			return cause(ctx, err)
		}
		silence.Reset(limit)
		if err := s.admitTerm(m.GetTerm()); err != nil {
			return err
		}
		if m.GetHeartbeat() == nil && m.GetMessage() != nil {
			s.cfg.Handler.Handle(m)
		}
	}
}

// sendLoop sends the probe, which completes the registration, then reports as they come, and heartbeats among them: the leader learns from
// them how many slots are free, however much there is to report.
func (s *Session) sendLoop(ctx context.Context, st stream, every time.Duration, probed <-chan *clusterv1.Probe) error {
	beat := time.NewTimer(0)
	defer beat.Stop()
	defer s.connected.Store(false)
	for {
		select {
		case p := <-probed:
			probed = nil
			if p != nil {
				if err := s.write(st, &clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_Probe{Probe: p}}); err != nil {
					return err
				}
			}
			s.outbox.connect()
			s.connected.Store(true)
		case <-s.outbox.wake:
		case <-beat.C:
			if err := s.write(st, &clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_Heartbeat{
				Heartbeat: &clusterv1.Heartbeat{FreeSlots: uint32(s.cfg.Handler.FreeSlots())},
			}}); err != nil {
				return err
			}
			beat.Reset(every)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if probed != nil {
			continue // a leader hears no report before the probe
		}
		for {
			m, ok := s.outbox.next()
			if !ok {
				break
			}
			if err := s.write(st, m); err != nil {
				return err
			}
			if m.GetWorkerEvent().GetEvent().GetCheckpointAck() != nil {
				faultpoint.Hit(faultpoint.AckRelayed)
			}
		}
	}
}

// write sends m with the highest term met.
func (s *Session) write(st stream, m *clusterv1.SessionRequest) error {
	return st.Send(&clusterv1.SessionRequest{Term: s.term.Load(), Message: m.GetMessage()})
}

// probe reads the cluster's probe object, if the leader named one.
func (s *Session) probe(ctx context.Context, object string) *clusterv1.Probe {
	if object == "" {
		return nil
	}
	content, err := s.cfg.Handler.Probe(ctx, object)
	if err != nil {
		if ctx.Err() == nil {
			s.cfg.Logger.Error("the cluster's probe object cannot be read", "object", object, "err", err)
		}
		return &clusterv1.Probe{Error: err.Error()}
	}
	return &clusterv1.Probe{Content: content}
}

// admitTerm takes note of a leader's term and refuses a lower one than the highest met.
func (s *Session) admitTerm(term uint64) error {
	if term < s.term.Load() {
		return errStaleTerm
	}
	s.term.Store(term) // only the goroutine of Run gets here
	return nil
}

func interval(m *clusterv1.Registered) time.Duration {
	return max(10*time.Millisecond, time.Duration(m.GetHeartbeatIntervalMs())*time.Millisecond)
}

func timeout(m *clusterv1.Registered) time.Duration {
	return max(4*interval(m), time.Duration(m.GetHeartbeatTimeoutMs())*time.Millisecond)
}

// cause prefers our own reason for ending the connection to what the broken call says.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil && !errors.Is(c, context.Canceled) {
		return c
	}
	return err
}

// leaderHint returns the leader's address from a follower's refusal.
func leaderHint(err error) string {
	var other *grpcerr.NotLeaderError
	if errors.As(grpcerr.Decode(err), &other) {
		return other.LeaderAddress
	}
	return ""
}

// refused reports whether a leader turned the registration down for a reason that somebody must mend.
func refused(err error) bool {
	err = grpcerr.Decode(err)
	return errors.Is(err, grpcerr.ErrRefused) || errors.Is(err, grpcerr.ErrInvalid)
}
