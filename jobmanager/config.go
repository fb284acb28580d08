package jobmanager

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weir-stream/weir/internal/config"
	"github.com/weir-stream/weir/internal/loopback"
	"github.com/weir-stream/weir/internal/nodetls"
	"github.com/weir-stream/weir/jobmanager/access"
)

// Config describes a JobManager. Addresses are host:port.
type Config struct {
	// ID is this JobManager's stable id: letters, digits, "-", "_" and "."; default "jm1".
	ID string `yaml:"id" help:"stable id of this JobManager"`
	// DataDir holds the Raft log and its snapshots. It belongs to one process; there is no default.
	DataDir string `yaml:"data_dir" help:"directory for the Raft log, for this process alone"`
	// Listen is the address of the gRPC listener; default 127.0.0.1:6123.
	Listen string `yaml:"listen" help:"host:port of the gRPC listener"`
	// Advertise is the address by which users and TaskManagers reach the gRPC listener; empty takes the listener's own.
	Advertise string `yaml:"advertise" help:"host:port by which users and TaskManagers reach this JobManager"`
	// RaftListen is the address of the listener for other JobManagers; default 127.0.0.1:6124.
	RaftListen string `yaml:"raft_listen" help:"host:port of the listener for other JobManagers"`
	// RaftAdvertise is the address by which other JobManagers reach it; empty takes this member's entry in Members, or the
	// listener's own.
	RaftAdvertise string `yaml:"raft_advertise" help:"host:port by which other JobManagers reach this one"`
	// Members lists all JobManagers of the cluster, this one included, as id=raft-address; the same list on each. All of them must
	// be up for the first start. Empty means a cluster of this one alone. At most 7.
	Members []Member `yaml:"members" help:"all JobManagers as id=raft-address, separated by commas"`
	// Storage is the URL of checkpoint storage, for example file:///srv/weir, which every TaskManager must reach too; no default.
	Storage string `yaml:"storage_url" help:"root of checkpoint storage, such as file:///mnt/shared/weir, s3://bucket/weir?region=eu-central-1 or hdfs://namenode:8020/weir"`
	// Admin is the address for metrics, health and, on loopback, profiles; default 127.0.0.1:6125; empty turns it off.
	Admin string `yaml:"admin_address" help:"host:port of metrics, health and profiles; empty turns them off"`
	// HeartbeatInterval is the pause between heartbeats of a TaskManager's session; default 1s, 100ms to 1m.
	HeartbeatInterval time.Duration `yaml:"heartbeat_interval" help:"pause between heartbeats of a TaskManager"`
	// HeartbeatTimeout is the silence after which a TaskManager is lost; default 4s, at least twice the interval.
	HeartbeatTimeout time.Duration `yaml:"heartbeat_timeout" help:"silence after which a TaskManager is lost"`
	// ReconnectGrace is the time in which a TaskManager whose session broke may come back before it is lost; default 500ms, at most
	// 1m.
	ReconnectGrace time.Duration `yaml:"reconnect_grace" help:"how long a TaskManager whose session broke may take to come back"`
	// RegisterGrace is the time a new leader waits for the TaskManagers of a running job before it restarts the job; default 6s, at
	// most 1m. A TaskManager notices a silent leader after HeartbeatTimeout, so that a shorter time restarts jobs needlessly.
	RegisterGrace time.Duration `yaml:"register_grace" help:"how long a new leader waits for the TaskManagers of a running job; longer than heartbeat_timeout"`
	// RaftHeartbeat is the time without a leader after which an election begins; default 500ms, 50ms to 1m.
	RaftHeartbeat time.Duration `yaml:"raft_heartbeat" help:"time without a leader before an election"`
	// RaftElection is the time an election may take; default 500ms, at least RaftHeartbeat.
	RaftElection time.Duration `yaml:"raft_election" help:"how long an election may take"`
	// SlotsWait is the time a job waits for free slots before that is logged as a warning; it goes on waiting; default 30s.
	SlotsWait time.Duration `yaml:"slots_wait" help:"how long a job waits for slots before that is logged"`
	// AutoSettle is how long the number of slots must have been the same before a job with parallelism auto that runs follows it; default
	// 10s. A job that has lost slots goes down at once.
	AutoSettle time.Duration `yaml:"auto_settle" help:"how long the number of slots must have been the same before a running job with parallelism auto follows it"`
	// CancelDeadline is the time a worker gets to stop before it is killed; default 5s, 100ms to 10m.
	CancelDeadline time.Duration `yaml:"cancel_deadline" help:"how long a worker may take to stop before it is killed"`
	// PrepareWarning is the time after which a deployment that waits for tasks says for which; default 1m.
	PrepareWarning time.Duration `yaml:"prepare_warning" help:"how long a deployment waits before it says for which tasks"`
	// PrepareTimeout is the time after which a deployment that is not prepared fails the attempt; default 10m.
	PrepareTimeout time.Duration `yaml:"prepare_timeout" help:"how long a deployment may take to prepare"`
	// RecoveryBudget bounds the settling of an ended job: afterwards the result is recorded with what is unsettled; default 2m, 1s
	// to 1h.
	RecoveryBudget time.Duration `yaml:"recovery_budget" help:"how long the settling of an ended job may take"`
	// ShutdownTimeout bounds the orderly shutdown; default 10s, 1s to 5m.
	ShutdownTimeout time.Duration `yaml:"shutdown_timeout" help:"how long an orderly shutdown may take"`
	// TLSCert, TLSKey and TLSCA are PEM files of this node's certificate, its key, and the authorities that sign nodes' certificates.
	// All three or none. They are read again when they change.
	TLSCert string `yaml:"tls_cert" help:"PEM file of this node's certificate, for serverAuth and clientAuth; turns TLS on with tls_key and tls_ca"`
	TLSKey  string `yaml:"tls_key" help:"PEM file of the certificate's key"`
	TLSCA   string `yaml:"tls_ca" help:"PEM file of the authorities that sign the certificates of nodes"`
	// UserCA is the PEM file of authorities that sign users' certificates, others than those of TLSCA; empty for none. It needs TLS.
	UserCA string `yaml:"user_ca" help:"PEM file of the authorities that sign the certificates of users; empty for none"`
	// UserTokens is the file of users' tokens, one on a line, followed by a name; empty for none. It is read again when it changes.
	UserTokens string `yaml:"user_tokens_file" help:"file of users' tokens, one on a line, after it a name; empty for none"`
	// Insecure allows addresses that are not loopback without TLS. Whoever reaches them can run code.
	Insecure bool `yaml:"insecure" help:"allow addresses other than loopback without TLS"`
}

// Member is one JobManager of the fixed list. Its text form is id=host:port.
type Member struct {
	ID          string
	RaftAddress string
}

var (
	_ encoding.TextMarshaler   = Member{}
	_ encoding.TextUnmarshaler = (*Member)(nil)
)

// MarshalText implements encoding.TextMarshaler.
func (m Member) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Member) UnmarshalText(text []byte) error {
	id, addr, ok := strings.Cut(string(text), "=")
	if !ok || id == "" || addr == "" {
		return fmt.Errorf("member %q is not of the form id=host:port", text)
	}
	m.ID, m.RaftAddress = id, addr
	return nil
}

// String returns id=host:port.
func (m Member) String() string { return m.ID + "=" + m.RaftAddress }

// Default returns the configuration with every default filled in. DataDir and Storage must still be set.
func Default() Config {
	return Config{
		ID:                "jm1",
		Listen:            "127.0.0.1:6123",
		RaftListen:        "127.0.0.1:6124",
		Admin:             "127.0.0.1:6125",
		HeartbeatInterval: time.Second,
		HeartbeatTimeout:  4 * time.Second,
		ReconnectGrace:    500 * time.Millisecond,
		RegisterGrace:     6 * time.Second,
		RaftHeartbeat:     500 * time.Millisecond,
		RaftElection:      500 * time.Millisecond,
		SlotsWait:         30 * time.Second,
		AutoSettle:        10 * time.Second,
		CancelDeadline:    5 * time.Second,
		PrepareWarning:    time.Minute,
		PrepareTimeout:    10 * time.Minute,
		RecoveryBudget:    2 * time.Minute,
		ShutdownTimeout:   10 * time.Second,
	}
}

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

const maxMembers = 7

// Validate returns all problems of the configuration at once, joined, each naming its key.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if !idPattern.MatchString(c.ID) {
		bad("id: %q must be 1 to 63 letters, digits, '-', '_' or '.', beginning with a letter or digit", c.ID)
	}
	if c.DataDir == "" {
		bad("data_dir: is required; set it to a directory that belongs to this JobManager alone")
	}
	if !strings.Contains(c.Storage, "://") {
		bad("storage_url: %q is not a URL; set it to checkpoint storage that every TaskManager reaches, for example file:///srv/weir", c.Storage)
	}
	if err := c.tls().ValidateNode(); err != nil {
		errs = append(errs, err)
	}
	c.validateAddresses(bad)
	c.validateMembers(bad)
	for _, d := range []struct {
		key      string
		v        time.Duration
		min, max time.Duration
	}{
		{"heartbeat_interval", c.HeartbeatInterval, 100 * time.Millisecond, time.Minute},
		{"heartbeat_timeout", c.HeartbeatTimeout, 2 * c.HeartbeatInterval, time.Hour},
		{"reconnect_grace", c.ReconnectGrace, 0, time.Minute},
		{"register_grace", c.RegisterGrace, 0, time.Minute},
		{"raft_heartbeat", c.RaftHeartbeat, 50 * time.Millisecond, time.Minute},
		{"raft_election", c.RaftElection, c.RaftHeartbeat, time.Minute},
		{"slots_wait", c.SlotsWait, 0, 24 * time.Hour},
		{"auto_settle", c.AutoSettle, 0, time.Hour},
		{"cancel_deadline", c.CancelDeadline, 100 * time.Millisecond, 10 * time.Minute},
		{"prepare_warning", c.PrepareWarning, time.Second, 24 * time.Hour},
		{"prepare_timeout", c.PrepareTimeout, time.Second, 24 * time.Hour},
		{"recovery_budget", c.RecoveryBudget, time.Second, time.Hour},
		{"shutdown_timeout", c.ShutdownTimeout, time.Second, 5 * time.Minute},
	} {
		if d.v < d.min || d.v > d.max {
			bad("%s: %s is not between %s and %s", d.key, d.v, d.min, d.max)
		}
	}
	return errors.Join(errs...)
}

// CheckFiles reads the files that the configuration names and tells what is wrong with them.
func (c Config) CheckFiles() error {
	var errs []error
	if c.tls().Enabled() {
		_, err := nodetls.OpenNode(c.tls(), c.hosts(), slog.New(slog.DiscardHandler))
		errs = append(errs, err)
	}
	if c.UserTokens != "" {
		_, err := access.OpenTokens(c.UserTokens, slog.New(slog.DiscardHandler))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Warnings tells what is allowed and probably not meant.
func (c Config) Warnings() []string {
	var out []string
	// A TaskManager leaves a silent leader after heartbeat_timeout, and not before four intervals.
	if noticed := max(c.HeartbeatTimeout, 4*c.HeartbeatInterval); c.RegisterGrace <= noticed {
		out = append(out, fmt.Sprintf("register_grace: %s is not longer than the %s after which a TaskManager leaves a silent leader "+
			"(heartbeat_timeout, at least 4 × heartbeat_interval): a leader that hangs or is cut off restarts the jobs", c.RegisterGrace, noticed))
	}
	_, listens, _ := net.SplitHostPort(c.RaftListen)
	if _, listed, _ := net.SplitHostPort(c.raftAdvertise()); c.RaftAdvertise == "" && listed != "" && listed != listens {
		out = append(out, fmt.Sprintf("raft_listen: %s has another port than %s, by which the list of members says that this one is reached",
			c.RaftListen, c.raftAdvertise()))
	}
	return out
}

func (c Config) validateAddresses(bad func(string, ...any)) {
	for _, a := range []struct {
		key, v        string
		empty, listen bool
	}{
		{"listen", c.Listen, false, true},
		{"advertise", c.Advertise, true, false},
		{"raft_listen", c.RaftListen, false, true},
		{"raft_advertise", c.RaftAdvertise, true, false},
		{"admin_address", c.Admin, true, true},
	} {
		if a.v == "" && a.empty {
			continue
		}
		host, _, err := config.HostPort(a.v)
		if err != nil {
			bad("%s: %w", a.key, err)
			continue
		}
		if c.Insecure || loopback.Host(host) {
			continue
		}
		switch {
		case a.key == "admin_address":
			bad("%s: %s is reachable from other machines, and it has no TLS; use a loopback address, or allow it with insecure: true (--insecure)", a.key, a.v)
		case a.listen && !c.tls().Enabled():
			bad("%s: %s is reachable from other machines, and whoever reaches it can run code; set tls_cert, tls_key and tls_ca, use a loopback address, or allow it with insecure: true (--insecure)", a.key, a.v)
		}
	}
	for _, a := range [][3]string{{"advertise", c.Advertise, c.Listen}, {"raft_advertise", c.raftAdvertise(), c.RaftListen}} {
		if host, _, err := net.SplitHostPort(a[2]); err == nil && a[1] == "" && unspecified(host) {
			bad("%s: is required when listening on every address (%s)", a[0], a[2])
		}
	}
}

func (c Config) validateMembers(bad func(string, ...any)) {
	if len(c.Members) > maxMembers {
		bad("members: %d are more than %d", len(c.Members), maxMembers)
	}
	if n := len(c.Members); n > 0 && n%2 == 0 {
		bad("members: %d is even; an odd number survives as many failures with fewer JobManagers", n)
	}
	ids, addrs, self := map[string]bool{}, map[string]bool{}, len(c.Members) == 0
	for _, m := range c.Members {
		if !idPattern.MatchString(m.ID) {
			bad("members: id %q is malformed", m.ID)
		}
		if _, port, err := config.HostPort(m.RaftAddress); err != nil || port == 0 {
			bad("members: %s: address %q is not host:port", m.ID, m.RaftAddress)
		}
		if ids[m.ID] {
			bad("members: id %s is listed twice", m.ID)
		}
		if addrs[m.RaftAddress] {
			bad("members: address %s is listed twice", m.RaftAddress)
		}
		ids[m.ID], addrs[m.RaftAddress] = true, true
		self = self || m.ID == c.ID
	}
	if !self {
		bad("members: this JobManager's id %q is not in the list", c.ID)
	}
}

// raftAdvertise returns the configured Raft address of this member; empty leaves it to the listener.
func (c Config) raftAdvertise() string {
	if c.RaftAdvertise != "" {
		return c.RaftAdvertise
	}
	for _, m := range c.Members {
		if m.ID == c.ID {
			return m.RaftAddress
		}
	}
	return ""
}

// tls returns the files of TLS.
func (c Config) tls() nodetls.Files {
	return nodetls.Files{Cert: c.TLSCert, Key: c.TLSKey, CA: c.TLSCA, UserCA: c.UserCA}
}

// hosts returns those by which others reach this node, each once.
func (c Config) hosts() []string {
	var out []string
	for _, address := range []string{cmp.Or(c.Advertise, c.Listen), cmp.Or(c.raftAdvertise(), c.RaftListen)} {
		if host, _, err := net.SplitHostPort(address); err == nil && !slices.Contains(out, host) {
			out = append(out, host)
		}
	}
	return out
}

func unspecified(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || (ip != nil && ip.IsUnspecified())
}
