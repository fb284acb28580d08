package taskmanager

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"runtime"
	"time"

	"github.com/weir-stream/weir/internal/config"
	"github.com/weir-stream/weir/internal/loopback"
	"github.com/weir-stream/weir/internal/nodetls"
	"github.com/weir-stream/weir/internal/sysmem"
)

// Config configures a TaskManager. The yaml tags are the keys of its file; WEIR_TM_<KEY> and --<key> override them.
type Config struct {
	// DataDir holds the TaskManager's id, caches, logs and scratch files. One process at a time. Default: ./weir-taskmanager.
	DataDir string `yaml:"data_dir" help:"directory for identity, caches, logs and scratch files"`
	// Slots is the number of parallel pipeline slices that run here, 1 to 10000. Default: the number of CPUs.
	Slots int `yaml:"slots" help:"parallel pipeline slices that run here" default:"number of CPUs"`
	// JobManagers are the host:port addresses of the JobManagers; any subset that can be reached will do. Default: 127.0.0.1:6123.
	JobManagers []string `yaml:"jobmanagers" help:"host:port of the JobManagers, separated by commas"`
	// BindHost is the address on which workers listen for each other's data. Default: 127.0.0.1.
	BindHost string `yaml:"bind_host" help:"address on which workers listen for data"`
	// AdvertiseHost is the name or address by which other workers reach these. Default: BindHost, or the host name where that is a
	// wildcard.
	AdvertiseHost string `yaml:"advertise_host" help:"name or address by which other workers reach these"`
	// WorkerPorts are the ports on which workers listen for each other's data, one for each worker process; empty means any free one.
	WorkerPorts PortRange `yaml:"worker_ports" help:"ports on which workers listen for data, such as 7100-7199, one for each worker process; empty for any"`
	// Host is the name shown to people. Default: the machine's host name.
	Host string `yaml:"host" help:"name shown to people" default:"host name"`
	// StorageURL is the root of checkpoint storage, the same for every node of the cluster. Required.
	StorageURL string `yaml:"storage_url" help:"root of checkpoint storage, such as file:///mnt/shared/weir, s3://bucket/weir?region=eu-central-1 or hdfs://namenode:8020/weir"`
	// AdminAddress is the host:port of metrics, health and profiles; port 0 takes a free one, which is logged; empty turns it off.
	// Default: 127.0.0.1:0, as several TaskManagers may share a machine.
	AdminAddress string `yaml:"admin_address" help:"host:port of metrics, health and profiles; port 0 takes a free one, which is logged; empty turns them off"`
	// LogRetention bounds the kept output of workers in bytes, from 1 MiB. Default: 256 MiB.
	LogRetention config.Bytes `yaml:"log_retention" help:"bytes of worker output kept"`
	// LogPerWorker bounds the kept output of one worker process in bytes, 64 KiB to LogRetention. Default: 16 MiB.
	LogPerWorker config.Bytes `yaml:"log_per_worker" help:"bytes of output kept of one worker process"`
	// ArtifactCache bounds the cached job binaries in bytes, from 1 MiB; binaries in use stay beyond it. Default: 2 GiB.
	ArtifactCache config.Bytes `yaml:"artifact_cache" help:"bytes of job binaries cached"`
	// SegmentCache bounds the local copies of state files in bytes; 0 means no bound; files that running jobs need for their next restore stay beyond it.
	// Default: 20 GiB.
	SegmentCache config.Bytes `yaml:"segment_cache" help:"bytes of state files cached; 0 means no bound"`
	// SegmentDownloads bounds how many state files are downloaded at a time, from 1. Default: 8.
	SegmentDownloads int `yaml:"segment_downloads" help:"state files downloaded at a time"`
	// SegmentDownloadRate bounds what all downloads of state files together read, in bytes per second; 0 means no bound. Default: 0.
	SegmentDownloadRate config.Bytes `yaml:"segment_download_rate" help:"bytes per second of all downloads of state files; 0 means no bound"`
	// SegmentVerifyRate is at how many bytes per second local copies of state files are read again in the background, to find damage
	// before they are needed; 0 means not at all. Default: 4 MiB.
	SegmentVerifyRate config.Bytes `yaml:"segment_verify_rate" help:"bytes per second at which local copies of state files are verified again; 0 means not at all"`
	// StateMemory bounds the keyed state that the tasks here hold in memory, in bytes, by estimate; each slot has its part. State beyond
	// it is read from local files. 0 means no bound, else at least 1 MiB for each slot. Default: a quarter of the memory of the machine
	// or of the container.
	StateMemory config.Bytes `yaml:"state_memory" help:"bytes of keyed state held in memory by all tasks here; 0 means no bound" default:"a quarter of the memory"`
	// CancelDeadline is how long a worker may take to stop before it is killed, 0 to 10 min. Default: 5 s.
	CancelDeadline time.Duration `yaml:"cancel_deadline" help:"how long a worker may take to stop before it is killed"`
	// ConnectTimeout is how long a worker process may take to connect after its start, 1 s to 10 min. Default: 20 s.
	ConnectTimeout time.Duration `yaml:"connect_timeout" help:"how long a worker may take to connect after its start"`
	// StallTimeout is how long a worker may be silent before it is killed, 2 s to 10 min. Default: 4 s.
	StallTimeout time.Duration `yaml:"stall_timeout" help:"how long a worker may be silent before it is killed"`
	// PlanTimeout bounds a run of a job binary in plan mode, 1 s to 10 min. Default: 30 s.
	PlanTimeout time.Duration `yaml:"plan_timeout" help:"how long a job binary may take to plan"`
	// TLSCert, TLSKey and TLSCA are PEM files of this node's certificate, its key, and the authorities that sign nodes' certificates.
	// All three or none, as on the JobManagers. They are read again when they change. With them, workers encrypt what they exchange.
	TLSCert string `yaml:"tls_cert" help:"PEM file of this node's certificate, for clientAuth; turns TLS on with tls_key and tls_ca"`
	TLSKey  string `yaml:"tls_key" help:"PEM file of the certificate's key"`
	TLSCA   string `yaml:"tls_ca" help:"PEM file of the authorities that sign the certificates of nodes"`
	// Insecure allows addresses other than loopback without TLS. Default: false.
	Insecure bool `yaml:"insecure" help:"allow addresses other than loopback without TLS"`
}

// Default returns the configuration without any setting.
func Default() Config {
	return Config{
		DataDir:       "weir-taskmanager",
		Slots:         runtime.NumCPU(),
		JobManagers:   []string{"127.0.0.1:6123"},
		BindHost:      "127.0.0.1",
		AdminAddress:  "127.0.0.1:0",
		Host:          hostname(),
		LogRetention:  256 << 20,
		LogPerWorker:  16 << 20,
		ArtifactCache: 2 << 30,
		SegmentCache:  20 << 30,

		SegmentDownloads:  8,
		SegmentVerifyRate: 4 << 20,

		StateMemory:    config.Bytes(sysmem.Total() / 4),
		CancelDeadline: 5 * time.Second,
		ConnectTimeout: 20 * time.Second,
		StallTimeout:   4 * time.Second,
		PlanTimeout:    30 * time.Second,
	}
}

// Validate returns every problem of the configuration at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %w", key, fmt.Errorf(format, args...)))
	}
	if c.DataDir == "" {
		bad("data_dir", "must be set")
	}
	if err := c.tls().ValidateNode(); err != nil {
		errs = append(errs, err)
	}
	if c.Slots < 1 || c.Slots > 10000 {
		bad("slots", "%d is not within 1 and 10000", c.Slots)
	}
	if len(c.JobManagers) == 0 {
		bad("jobmanagers", "needs at least one host:port")
	}
	for _, a := range c.JobManagers {
		if _, _, err := config.HostPort(a); err != nil {
			bad("jobmanagers", "%w", err)
		} else if !c.open() && !loopback.Is(a) {
			bad("jobmanagers", "%s is not a loopback address and there is no TLS: set tls_cert, tls_key and tls_ca, or allow it with insecure: true", a)
		}
	}
	if c.BindHost == "" {
		bad("bind_host", "must be set")
	} else if !c.open() && !loopback.Host(c.BindHost) {
		bad("bind_host", "%s is not a loopback address and there is no TLS: set tls_cert, tls_key and tls_ca, or allow it with insecure: true", c.BindHost)
	}
	if c.AdminAddress != "" {
		if _, _, err := config.HostPort(c.AdminAddress); err != nil {
			bad("admin_address", "%w", err)
		} else if !c.Insecure && !loopback.Is(c.AdminAddress) {
			bad("admin_address", "%s is not a loopback address, and it has no TLS: allow it with insecure: true", c.AdminAddress)
		}
	}
	switch u, err := url.Parse(c.StorageURL); {
	case c.StorageURL == "":
		bad("storage_url", "must be set to the storage that all nodes share, such as file:///mnt/shared/weir")
	case err != nil || u.Scheme == "":
		bad("storage_url", "%q is not a URL such as file:///mnt/shared/weir", c.StorageURL)
	}
	if c.LogRetention < 1<<20 {
		bad("log_retention", "%s is less than 1MiB", c.LogRetention)
	}
	if c.LogPerWorker < 64<<10 || c.LogPerWorker > c.LogRetention {
		bad("log_per_worker", "%s is not within 64KiB and log_retention (%s)", c.LogPerWorker, c.LogRetention)
	}
	if c.ArtifactCache < 1<<20 {
		bad("artifact_cache", "%s is less than 1MiB", c.ArtifactCache)
	}
	if c.SegmentCache < 0 {
		bad("segment_cache", "must not be negative")
	}
	if c.SegmentDownloads < 1 {
		bad("segment_downloads", "must be at least 1")
	}
	if c.SegmentDownloadRate < 0 {
		bad("segment_download_rate", "must not be negative")
	}
	if c.SegmentVerifyRate < 0 {
		bad("segment_verify_rate", "must not be negative")
	}
	if c.StateMemory != 0 && c.StateMemory < config.Bytes(c.Slots)<<20 {
		bad("state_memory", "%s is less than 1MiB for each of %d slots", c.StateMemory, c.Slots)
	}
	for _, d := range []struct {
		key      string
		value    time.Duration
		min, max time.Duration
	}{
		{"cancel_deadline", c.CancelDeadline, 0, 10 * time.Minute},
		{"connect_timeout", c.ConnectTimeout, time.Second, 10 * time.Minute},
		{"stall_timeout", c.StallTimeout, 2 * time.Second, 10 * time.Minute},
		{"plan_timeout", c.PlanTimeout, time.Second, 10 * time.Minute},
	} {
		if d.value < d.min || d.value > d.max {
			bad(d.key, "%v is not within %v and %v", d.value, d.min, d.max)
		}
	}
	return errors.Join(errs...)
}

// CheckFiles reads the files that the configuration names and tells what is wrong with them.
func (c Config) CheckFiles() error {
	if !c.tls().Enabled() {
		return nil
	}
	_, err := nodetls.OpenNode(c.tls(), nil, slog.New(slog.DiscardHandler))
	return err
}

// advertise returns the host that other workers are told.
func (c Config) advertise() string {
	if c.AdvertiseHost != "" {
		return c.AdvertiseHost
	}
	if ip := net.ParseIP(c.BindHost); ip != nil && ip.IsUnspecified() {
		return c.Host
	}
	return c.BindHost
}

// path returns a name below the data directory.
func (c Config) path(elem ...string) string {
	return filepath.Join(append([]string{c.DataDir}, elem...)...)
}

// tls returns the files of TLS.
func (c Config) tls() nodetls.Files {
	return nodetls.Files{Cert: c.TLSCert, Key: c.TLSKey, CA: c.TLSCA}
}

// open reports whether addresses beyond this machine may be used.
func (c Config) open() bool { return c.Insecure || c.tls().Enabled() }
