package localcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	"github.com/weir-stream/weir/internal/client"
	"github.com/weir-stream/weir/internal/loopback"
	"github.com/weir-stream/weir/jobmanager"
	"github.com/weir-stream/weir/taskmanager"
)

// Config describes a cluster.
type Config struct {
	// Binary is the weir executable.
	Binary string
	// Dir holds data, configuration, logs and checkpoints of all nodes.
	Dir string
	// JobManagers is 1, 3 or 5. TaskManagers may be 0. Slots are those of each TaskManager.
	JobManagers, TaskManagers, Slots int
	// TLS puts every connection under TLS, with certificates made for the cluster.
	TLS bool
	// Token is the user's token where the JobManagers demand one.
	Token string
	// ConfigureJobManager and ConfigureTaskManager change a node's configuration before its first start.
	ConfigureJobManager  func(*jobmanager.Config)
	ConfigureTaskManager func(*taskmanager.Config)
	// Environment returns what is added to the environment of a node, by its id; nil adds nothing.
	Environment func(id string) []string
}

// Cluster is a running cluster.
type Cluster struct {
	cfg Config
	// Security is nil without TLS.
	Security *Security

	mu           sync.Mutex
	jobManagers  []*Process
	taskManagers []*Process
	ports        map[int]bool // given to nodes, which may not listen yet
}

// Start starts every node and waits until a leader answers and all TaskManagers have registered.
func Start(ctx context.Context, cfg Config) (_ *Cluster, err error) {
	c := &Cluster{cfg: cfg, ports: make(map[int]bool)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if err := os.MkdirAll(c.checkpointDir(), 0o755); err != nil {
		return nil, err
	}
	if cfg.TLS {
		if c.Security, err = newSecurity(filepath.Join(cfg.Dir, "tls")); err != nil {
			return nil, err
		}
	}
	if err := c.addJobManagers(); err != nil {
		return nil, err
	}
	for range cfg.TaskManagers {
		if _, err := c.AddTaskManager(); err != nil {
			return nil, err
		}
	}
	return c, c.WaitReady(ctx)
}

// StorageURL returns the URL of the cluster's checkpoint storage.
func (c *Cluster) StorageURL() string { return "file://" + c.checkpointDir() }

func (c *Cluster) checkpointDir() string { return filepath.Join(c.cfg.Dir, "storage") }

// Addresses returns the JobManagers' gRPC addresses, separated by commas, as the command line takes them.
func (c *Cluster) Addresses() string { return strings.Join(c.addresses(), ",") }

// Environ returns the variables with which the command line talks to the cluster. They override those of the user's own cluster.
func (c *Cluster) Environ() []string {
	var ca, cert, key string
	if c.Security != nil {
		ca, cert, key = c.Security.CA(), c.Security.path("user.crt"), c.Security.path("user.key")
	}
	return []string{
		"WEIR_JOBMANAGER=" + c.Addresses(), "WEIR_TLS_CA=" + ca, "WEIR_TLS_CERT=" + cert, "WEIR_TLS_KEY=" + key,
		"WEIR_API_TOKEN=" + c.cfg.Token, "WEIR_TOKEN_FILE=",
	}
}

// ClientConfig returns what a client of the cluster needs.
func (c *Cluster) ClientConfig() client.Config {
	cfg := client.Config{Addresses: c.addresses(), Token: c.cfg.Token}
	if c.Security != nil {
		cfg.TLS = c.Security.user
	}
	return cfg
}

func (c *Cluster) addresses() []string {
	var out []string
	for _, p := range c.JobManagers() {
		out = append(out, p.Address)
	}
	return out
}

// JobManagers returns the JobManagers.
func (c *Cluster) JobManagers() []*Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*Process(nil), c.jobManagers...)
}

// TaskManagers returns the TaskManagers.
func (c *Cluster) TaskManagers() []*Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*Process(nil), c.taskManagers...)
}

func (c *Cluster) addJobManagers() error {
	n := c.cfg.JobManagers
	ports, err := c.freePorts(3 * n)
	if err != nil {
		return err
	}
	var members []jobmanager.Member
	for i := range n {
		members = append(members, jobmanager.Member{ID: fmt.Sprintf("jm%d", i+1), RaftAddress: loopback.Address(ports[n+i])})
	}
	for i, m := range members {
		cfg := jobmanager.Default()
		cfg.ID = m.ID
		cfg.DataDir = filepath.Join(c.cfg.Dir, m.ID)
		cfg.Listen = loopback.Address(ports[i])
		cfg.RaftListen = m.RaftAddress
		cfg.Members = members
		cfg.Storage = c.StorageURL()
		cfg.Admin = loopback.Address(ports[2*n+i])
		if c.Security != nil {
			if err := c.Security.jobManager(&cfg); err != nil {
				return err
			}
		}
		if c.cfg.ConfigureJobManager != nil {
			c.cfg.ConfigureJobManager(&cfg)
		}
		p, err := c.process(JobManager, m.ID, cfg)
		if err != nil {
			return err
		}
		p.Address, p.Admin = cmp.Or(cfg.Advertise, cfg.Listen), cfg.Admin
		c.jobManagers = append(c.jobManagers, p)
		if err := p.Start(); err != nil {
			return err
		}
	}
	return nil
}

// freePorts returns ports that are free and given to no other node.
func (c *Cluster) freePorts(n int) ([]int, error) {
	for {
		ports, err := loopback.FreePorts(n)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(ports, func(p int) bool { return c.ports[p] }) {
			continue
		}
		for _, p := range ports {
			c.ports[p] = true
		}
		return ports, nil
	}
}

// AddTaskManager starts one more TaskManager.
func (c *Cluster) AddTaskManager() (*Process, error) {
	addresses := c.addresses()
	c.mu.Lock()
	defer c.mu.Unlock()
	ports, err := c.freePorts(1)
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("tm%d", len(c.taskManagers)+1)
	cfg := taskmanager.Default()
	cfg.DataDir = filepath.Join(c.cfg.Dir, id)
	cfg.Slots = c.cfg.Slots
	cfg.JobManagers = addresses
	cfg.Host = id
	cfg.StorageURL = c.StorageURL()
	cfg.AdminAddress = loopback.Address(ports[0])
	if c.Security != nil {
		if err := c.Security.taskManager(&cfg); err != nil {
			return nil, err
		}
	}
	if c.cfg.ConfigureTaskManager != nil {
		c.cfg.ConfigureTaskManager(&cfg)
	}
	p, err := c.process(TaskManager, id, cfg)
	if err != nil {
		return nil, err
	}
	p.Admin = cfg.AdminAddress
	c.taskManagers = append(c.taskManagers, p)
	return p, p.Start()
}

// process writes a node's configuration file.
func (c *Cluster) process(role Role, id string, cfg any) (*Process, error) {
	text, err := yaml.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("write the configuration of %s: %w", id, err)
	}
	p := &Process{
		Role: role, ID: id, binary: c.cfg.Binary,
		config: filepath.Join(c.cfg.Dir, id+".yaml"), log: filepath.Join(c.cfg.Dir, id+".log"),
	}
	if c.cfg.Environment != nil {
		p.environment = c.cfg.Environment(id)
	}
	return p, os.WriteFile(p.config, text, 0o644)
}

// WaitReady waits until a leader answers and every running TaskManager has registered with it.
func (c *Cluster) WaitReady(ctx context.Context) error {
	return c.poll(ctx, "the cluster to be ready", func(ctx context.Context) error {
		for _, p := range append(c.JobManagers(), c.TaskManagers()...) {
			if !p.Running() {
				return &exitedError{p}
			}
		}
		leader, err := c.Leader(ctx)
		if err != nil {
			return err
		}
		list, err := c.listMembers(ctx, leader.Address)
		if err != nil {
			return err
		}
		if want := len(c.TaskManagers()); len(list.GetTaskmanagers()) < want {
			return fmt.Errorf("%d of %d TaskManagers have registered", len(list.GetTaskmanagers()), want)
		}
		return nil
	})
}

// exitedError tells that a node ended by itself, which waiting does not mend.
type exitedError struct{ p *Process }

func (e *exitedError) Error() string {
	return fmt.Sprintf("%s has exited; its last output:\n%s", e.p.ID, e.p.LogTail(15))
}

// Leader returns the JobManager that leads, as it says itself.
func (c *Cluster) Leader(ctx context.Context) (*Process, error) {
	var errs []error
	for _, p := range c.JobManagers() {
		if !p.Running() {
			continue
		}
		info, err := c.info(ctx, p.Address)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.ID, err))
			continue
		}
		if info.GetLeaderId() == p.ID {
			return p, nil
		}
	}
	return nil, errors.Join(append(errs, errors.New("no JobManager leads"))...)
}

// Leads reports whether a JobManager says that it leads.
func (c *Cluster) Leads(ctx context.Context, p *Process) bool {
	info, err := c.info(ctx, p.Address)
	return err == nil && info.GetLeaderId() == p.ID
}

// WaitLeader waits for a leader.
func (c *Cluster) WaitLeader(ctx context.Context) (*Process, error) {
	var leader *Process
	err := c.poll(ctx, "a leader", func(ctx context.Context) (err error) {
		leader, err = c.Leader(ctx)
		return err
	})
	return leader, err
}

// WaitWhole waits until every JobManager runs and follows one leader, and every TaskManager has registered with it.
func (c *Cluster) WaitWhole(ctx context.Context) error {
	if err := c.WaitReady(ctx); err != nil {
		return err
	}
	return c.poll(ctx, "all JobManagers to follow one leader", func(ctx context.Context) error {
		leaders := make(map[string]bool)
		for _, p := range c.JobManagers() {
			info, err := c.info(ctx, p.Address)
			if err != nil {
				return fmt.Errorf("%s: %w", p.ID, err)
			}
			leaders[info.GetLeaderId()] = true
		}
		if len(leaders) != 1 || leaders[""] {
			return fmt.Errorf("they name %v", leaders)
		}
		return nil
	})
}

func (c *Cluster) poll(ctx context.Context, what string, check func(context.Context) error) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check(ctx)
		var exited *exitedError
		if err == nil || errors.As(err, &exited) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (%w)", what, err, ctx.Err())
		case <-ticker.C:
		}
	}
}

// Close kills every node.
func (c *Cluster) Close() error {
	var errs []error
	for _, p := range append(c.TaskManagers(), c.JobManagers()...) {
		if p.Running() {
			errs = append(errs, p.Kill())
		}
	}
	return errors.Join(errs...)
}

func (c *Cluster) dial(address string) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if c.Security != nil {
		creds = c.Security.user.ClientCredentials(nil)
	}
	return grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
}

// authorized returns a context for calls of the cluster's user.
func (c *Cluster) authorized(ctx context.Context) context.Context {
	if c.cfg.Token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.cfg.Token)
}

func (c *Cluster) info(ctx context.Context, address string) (*clusterv1.GetInfoResponse, error) {
	conn, err := c.dial(address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(c.authorized(ctx), 2*time.Second)
	defer cancel()
	return clusterv1.NewMembershipServiceClient(conn).GetInfo(ctx, &clusterv1.GetInfoRequest{})
}

func (c *Cluster) listMembers(ctx context.Context, address string) (*clusterv1.ListMembersResponse, error) {
	conn, err := c.dial(address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(c.authorized(ctx), 2*time.Second)
	defer cancel()
	return clusterv1.NewMembershipServiceClient(conn).ListMembers(ctx, &clusterv1.ListMembersRequest{})
}
