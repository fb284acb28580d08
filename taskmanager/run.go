package taskmanager

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	"github.com/weir-stream/weir/internal/adminhttp"
	"github.com/weir-stream/weir/internal/nodetls"
	"github.com/weir-stream/weir/internal/version"
	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/statebackend/blob/storage"
	"github.com/weir-stream/weir/taskmanager/segmentstore"
	"github.com/weir-stream/weir/taskmanager/session"
	"github.com/weir-stream/weir/taskmanager/supervisor"
)

// flushLimit is how long the last reports may take to reach the leader at shutdown.
const flushLimit = 2 * time.Second

// Run runs a TaskManager until ctx ends, then says goodbye, stops the workers within the cancel deadline and returns nil.
func Run(ctx context.Context, cfg Config, logger *slog.Logger) (err error) {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("invalid configuration:\n%w", err)
	}
	data, err := openDataDir(cfg.DataDir)
	if err != nil {
		return err
	}
	defer data.close()
	bucket, err := storage.OpenURL(ctx, cfg.StorageURL)
	if err != nil {
		return err
	}
	defer bucket.Close()
	segments, err := segmentstore.Open(segmentstore.Config{
		Dir: cfg.path("segments"), Bucket: bucket, MaxBytes: int64(cfg.SegmentCache), OpenBucket: storage.OpenURL, Logger: logger,
		Downloads: cfg.SegmentDownloads, DownloadRate: int64(cfg.SegmentDownloadRate), VerifyRate: int64(cfg.SegmentVerifyRate),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, segments.Close()) }()

	var secure *nodetls.Keeper
	if cfg.tls().Enabled() {
		if secure, err = nodetls.OpenNode(cfg.tls(), nil, logger); err != nil {
			return err
		}
		watching, stop := context.WithCancel(ctx)
		var watch sync.WaitGroup
		watch.Go(func() { secure.Watch(watching) })
		defer func() {
			stop()
			watch.Wait()
		}()
	}
	n := &node{cfg: cfg, data: data, tls: secure, bucket: bucket, logger: logger}
	n.supervisor, err = supervisor.New(supervisor.Config{
		Dir: cfg.DataDir, Slots: cfg.Slots, Bucket: bucket, Segments: segments,
		BindHost: cfg.BindHost, AdvertiseHost: cfg.advertise(),
		Encrypt: secure != nil, FirstPort: cfg.WorkerPorts.First, LastPort: cfg.WorkerPorts.Last,
		StateMemory:    int64(cfg.StateMemory),
		CancelDeadline: cfg.CancelDeadline, ConnectTimeout: cfg.ConnectTimeout, StallTimeout: cfg.StallTimeout, PlanTimeout: cfg.PlanTimeout,
		LogRetention: int64(cfg.LogRetention), LogPerWorker: int64(cfg.LogPerWorker), ArtifactCache: int64(cfg.ArtifactCache),
		Report: func(m *clusterv1.SessionRequest) { n.session.Send(m) },
		Logger: logger,
	})
	if err != nil {
		return err
	}
	n.supervisor.SetCluster(data.cluster)
	n.session = session.New(session.Config{
		Addresses: cfg.JobManagers,
		Register: &clusterv1.Register{
			TaskmanagerId: data.id, Incarnation: rand.Text(), Host: cfg.Host, Slots: uint32(cfg.Slots),
			ProtocolMin: version.ProtocolMin, ProtocolMax: version.ProtocolMax, Version: version.Version,
			Platform: runtime.GOOS + "/" + runtime.GOARCH, StorageUrl: cfg.StorageURL, ClusterId: data.cluster,
		},
		Handler: n, TLS: secure, Logger: logger,
	})

	adminAddress := "off"
	if cfg.AdminAddress != "" {
		registry := prometheus.NewRegistry()
		n.register(registry, segments)
		admin, err := adminhttp.Start(adminhttp.Config{Listen: cfg.AdminAddress, Metrics: registry, Ready: n.ready, Logger: logger})
		if err != nil {
			n.supervisor.Close(ctx)
			return err
		}
		defer func() {
			short, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
			defer cancel()
			_ = admin.Shutdown(short) // a scrape that hangs is cut
		}()
		adminAddress = admin.Address()
	}
	logger.Info("taskmanager started", "id", data.id, "host", cfg.Host, "slots", cfg.Slots, "version", version.Version, "admin_address", adminAddress)
	return n.run(ctx)
}

// node acts on what the leader says.
type node struct {
	cfg        Config
	data       *dataDir
	bucket     blob.Bucket
	tls        *nodetls.Keeper // nil for none
	logger     *slog.Logger
	supervisor *supervisor.Supervisor
	session    *session.Session
}

// run keeps the session until ctx ends, and then stops in order: goodbye, workers, their last reports, the session.
func (n *node) run(ctx context.Context) error {
	sessionCtx, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	var talk sync.WaitGroup
	var sessionErr error
	ended := make(chan struct{})
	talk.Go(func() {
		sessionErr = n.session.Run(sessionCtx)
		close(ended)
	})
	select {
	case <-ctx.Done():
		n.logger.Info("taskmanager stops", "workers", len(n.supervisor.Running()))
		n.session.Goodbye()
	case <-ended:
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cfg.CancelDeadline+flushLimit)
	defer cancel()
	n.supervisor.Close(stopCtx)
	flushCtx, cancelFlush := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
	defer cancelFlush()
	n.session.Flushed(flushCtx)
	hangUp()
	talk.Wait()
	return sessionErr
}

// Running implements session.Handler.
func (n *node) Running() []*clusterv1.RunningAttempt { return n.supervisor.Running() }

// FreeSlots implements session.Handler.
func (n *node) FreeSlots() int { return n.supervisor.FreeSlots() }

// Registered implements session.Handler: it binds the data directory to the cluster.
func (n *node) Registered(m *clusterv1.Registered) error {
	if err := n.data.join(m.GetClusterId()); err != nil {
		return err
	}
	n.supervisor.SetCluster(m.GetClusterId())
	return nil
}

// maxProbe bounds the probe object in bytes; it holds one short line.
const maxProbe = 64 << 10

// Probe implements session.Handler.
func (n *node) Probe(ctx context.Context, name string) (string, error) {
	r, err := n.bucket.Open(ctx, name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", n.cfg.StorageURL, err)
	}
	defer r.Close()
	content, err := io.ReadAll(io.LimitReader(r, maxProbe))
	if err != nil {
		return "", fmt.Errorf("%s: %w", n.cfg.StorageURL, err)
	}
	return string(content), nil
}

// Handle implements session.Handler.
func (n *node) Handle(m *clusterv1.SessionResponse) {
	switch m := m.GetMessage().(type) {
	case *clusterv1.SessionResponse_PlanJob:
		n.supervisor.Plan(m.PlanJob)
	case *clusterv1.SessionResponse_StartWorker:
		n.supervisor.Start(m.StartWorker)
	case *clusterv1.SessionResponse_WorkerCommand:
		n.supervisor.Command(m.WorkerCommand)
	case *clusterv1.SessionResponse_StopWorker:
		n.supervisor.Stop(m.StopWorker)
	case *clusterv1.SessionResponse_ReadLogs:
		n.supervisor.ReadLogs(m.ReadLogs)
	default:
		n.logger.Warn("message of an unknown kind ignored", "kind", fmt.Sprintf("%T", m))
	}
}

var errNotRegistered = errors.New("no leading JobManager has taken this TaskManager on")

func (n *node) ready() error {
	if !n.session.Connected() {
		return errNotRegistered
	}
	return nil
}

var _ session.Handler = (*node)(nil)

// hostname returns the machine's name for people.
func hostname() string {
	if h, err := os.Hostname(); err == nil {
		return h
	}
	return "localhost"
}
