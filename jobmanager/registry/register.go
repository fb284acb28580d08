package registry

import (
	"context"
	"fmt"
	"time"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/internal/version"
)

// register takes a TaskManager through registration: Register, Registered, Probe.
func (s *session) register(ctx context.Context) (TaskManager, error) {
	msg, err := s.recv()
	if err != nil {
		return TaskManager{}, err
	}
	reg := msg.GetRegister()
	if err := s.r.check(reg); err != nil {
		return TaskManager{}, err
	}
	if err := s.awaitFormer(ctx, reg); err != nil {
		return TaskManager{}, err
	}
	object, content, err := s.r.cfg.Probe(ctx)
	if err != nil {
		return TaskManager{}, fmt.Errorf("%w: the leader cannot read its probe object: %w", grpcerr.ErrStorage, err)
	}
	err = s.send(&clusterv1.SessionResponse{Message: &clusterv1.SessionResponse_Registered{Registered: &clusterv1.Registered{
		ClusterId:           s.r.cfg.ClusterID,
		Term:                s.r.cfg.Term,
		HeartbeatIntervalMs: uint64(s.r.cfg.HeartbeatInterval.Milliseconds()),
		HeartbeatTimeoutMs:  uint64(s.r.cfg.HeartbeatTimeout.Milliseconds()),
		Stop:                s.r.cfg.Handler.Stale(reg.GetRunning()),
		ProbeObject:         object,
	}}})
	if err != nil {
		return TaskManager{}, err
	}
	probe, err := s.awaitProbe(reg, content)
	if err != nil {
		return TaskManager{}, err
	}
	if err := s.r.checkProbe(reg, object, content, probe); err != nil {
		return TaskManager{}, err
	}
	s.freeSlots.Store(int64(reg.GetSlots()))
	if err := s.r.admit(s, reg); err != nil {
		return TaskManager{}, err
	}
	return s.tm(), nil
}

func (s *session) tm() TaskManager {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return s.entry.tm
}

// awaitProbe returns the TaskManager's Probe. One that has read the object before may send its content with Register.
func (s *session) awaitProbe(reg *clusterv1.Register, content string) (*clusterv1.Probe, error) {
	if reg.GetProbe() == content {
		return &clusterv1.Probe{Content: reg.GetProbe()}, nil
	}
	for {
		msg, err := s.recv()
		if err != nil {
			return nil, err
		}
		if p := msg.GetProbe(); p != nil {
			return p, nil
		}
	}
}

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{grpcerr.ErrRefused}, args...)...)
}

// check refuses a TaskManager that cannot work in this cluster.
func (r *Registry) check(reg *clusterv1.Register) error {
	switch {
	case reg == nil:
		return fmt.Errorf("%w: a session begins with Register", grpcerr.ErrInvalid)
	case reg.GetTaskmanagerId() == "" || reg.GetIncarnation() == "" || reg.GetSlots() == 0:
		return fmt.Errorf("%w: Register needs an id, an incarnation and at least one slot", grpcerr.ErrInvalid)
	}
	if _, ok := version.Common(reg.GetProtocolMin(), reg.GetProtocolMax()); !ok {
		return refused("TaskManager %s (version %s) speaks protocol %d to %d, this JobManager (version %s) speaks %d to %d; upgrade the older one",
			reg.GetTaskmanagerId(), reg.GetVersion(), reg.GetProtocolMin(), reg.GetProtocolMax(),
			version.Version, version.ProtocolMin, version.ProtocolMax)
	}
	if c := reg.GetClusterId(); c != "" && c != r.cfg.ClusterID {
		return refused("TaskManager %s belongs to cluster %s, this is cluster %s; give it an empty data directory to move it",
			reg.GetTaskmanagerId(), c, r.cfg.ClusterID)
	}
	if reg.GetPlatform() == "" {
		return refused("TaskManager %s does not tell its platform", reg.GetTaskmanagerId())
	}
	for _, tm := range r.TaskManagers() {
		if tm.ID != reg.GetTaskmanagerId() && tm.Platform != reg.GetPlatform() {
			return refused("TaskManager %s runs on %s, the others on %s; one job binary must run on all of them",
				reg.GetTaskmanagerId(), reg.GetPlatform(), tm.Platform)
		}
	}
	return nil
}

// awaitFormer waits until a former process with the same id is gone, at most until it counts as silent, and refuses the new one when
// the former is alive: two processes over copies of a data directory would replace each other for ever, and neither's workers would be
// dead when the other registers.
func (s *session) awaitFormer(ctx context.Context, reg *clusterv1.Register) error {
	r := s.r
	r.mu.Lock()
	var former *session
	var host string
	if e := r.tms[reg.GetTaskmanagerId()]; e != nil && e.accepted && e.tm.Incarnation != reg.GetIncarnation() {
		former, host = e.session, e.tm.Host
	}
	r.mu.Unlock()
	if former == nil {
		return nil
	}
	// What a process sent before it died may still be read now, so that only a later message proves that it lives.
	asked, late := time.Now(), r.cfg.HeartbeatInterval/2
	t := time.NewTicker(max(time.Millisecond, late/2))
	defer t.Stop()
	for {
		select {
		case <-former.ended:
			return nil
		case <-t.C:
			s.lastSeen.Store(int64(time.Since(s.start))) // the silence is ours
			if time.Since(asked)-former.silence() > late {
				return refused("TaskManager %s is alive on %s, and another process on %s has the same id: its data directory is a copy; "+
					"give it an empty one", reg.GetTaskmanagerId(), host, reg.GetHost())
			}
		case <-s.ended:
			return s.cause
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// checkProbe refuses a TaskManager that does not see the same checkpoint storage.
func (r *Registry) checkProbe(reg *clusterv1.Register, object, content string, p *clusterv1.Probe) error {
	if p.GetError() == "" && p.GetContent() == content {
		return nil
	}
	what := "reads something else there"
	if p.GetError() != "" {
		what = "cannot read it: " + p.GetError()
	}
	return refused("TaskManager %s on %s does not see the cluster's checkpoint storage: the JobManager wrote %s to %s, the TaskManager (storage %s) %s; "+
		"a file:// storage must be one shared directory (for example NFS) that is mounted at its path on every machine",
		reg.GetTaskmanagerId(), reg.GetHost(), object, r.cfg.StorageURL, reg.GetStorageUrl(), what)
}
