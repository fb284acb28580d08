package rpc

import (
	"context"
	"log/slog"

	"google.golang.org/grpc"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/jobmanager/driver"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/raftnode"
	"github.com/weir-stream/weir/jobmanager/registry"
	"github.com/weir-stream/weir/statebackend/blob"
)

// Leader is what a member has while it leads.
type Leader struct {
	Term      uint64
	ClusterID string
	Registry  *registry.Registry
	Jobs      *driver.Manager
	Log       driver.Log
}

// Cluster is the member that the services stand on.
type Cluster interface {
	// Leader returns the present leadership, or a *grpcerr.NotLeaderError.
	Leader() (*Leader, error)
	// Verify returns nil when this member led in term at some moment after the call.
	Verify(ctx context.Context, term uint64) error
	View() fsm.View
	// ID is the member's id; LeaderID and LeaderAddress are empty while no leader is known.
	ID() string
	LeaderID() string
	LeaderAddress() string
	Term() uint64
	Members() Members
}

// Members changes the configuration of the Raft cluster.
type Members interface {
	Servers() ([]raftnode.Server, error)
	Add(ctx context.Context, id, address string) error
	Demote(ctx context.Context, id string) error
	Remove(ctx context.Context, id string) error
	TransferLeadership(ctx context.Context) error
	Introduce(ctx context.Context, id, at string) (raftnode.Introduction, error)
}

// Services implements the gRPC services.
type Services struct {
	clusterv1.UnimplementedSessionServiceServer
	clusterv1.UnimplementedMembershipServiceServer
	jobv1.UnimplementedJobServiceServer

	cluster Cluster
	bucket  blob.Bucket
	open    driver.Opener
	logger  *slog.Logger
}

// New returns the services of a member. open opens savepoints.
func New(cluster Cluster, bucket blob.Bucket, open driver.Opener, logger *slog.Logger) *Services {
	return &Services{cluster: cluster, bucket: bucket, open: open, logger: logger}
}

// Register adds the services to a server.
func (s *Services) Register(r grpc.ServiceRegistrar) {
	clusterv1.RegisterSessionServiceServer(r, s)
	clusterv1.RegisterMembershipServiceServer(r, s)
	jobv1.RegisterJobServiceServer(r, s)
}

// Session implements clusterv1.SessionServiceServer.
func (s *Services) Session(stream clusterv1.SessionService_SessionServer) error {
	l, err := s.cluster.Leader()
	if err != nil {
		return err
	}
	return l.Registry.Serve(stream)
}
