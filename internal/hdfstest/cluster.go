package hdfstest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-stream/weir/internal/child"
	"github.com/weir-stream/weir/internal/javatest"
	"github.com/weir-stream/weir/internal/loopback"
)

// EnvNameNode names the environment variable with the host:port of a NameNode that is used instead of starting one. Its user must be the
// superuser, and what tests write there is not removed.
const EnvNameNode = "WEIR_TEST_HDFS"

// startTimeout bounds one start.
const startTimeout = 90 * time.Second

//go:embed pom.xml
var pom []byte

// Cluster is a NameNode and a DataNode. Files have one replica.
type Cluster struct {
	jars    *javatest.Jars
	process *child.Process // nil when somebody else runs it
	dir     string
	address string
}

// Start returns when the NameNode takes files. The context bounds the start only; the caller owns the cluster and must Close it.
func Start(ctx context.Context) (_ *Cluster, err error) {
	jars, err := javatest.Locate(ctx, "hdfs", pom, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("prepare an HDFS: %w", err)
	}
	if address := os.Getenv(EnvNameNode); address != "" {
		return &Cluster{jars: jars, address: address}, nil
	}
	c := &Cluster{jars: jars}
	if c.dir, err = os.MkdirTemp("", "weir-hdfs-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	ports, err := loopback.FreePorts(1)
	if err != nil {
		return nil, err
	}
	c.address = loopback.Address(ports[0])
	c.process = &child.Process{Name: "the HDFS", Log: filepath.Join(c.dir, "server.log"), StopTimeout: 20 * time.Second}
	return c, c.boot(ctx, "-format")
}

// StartFor starts a cluster for one test and closes it at the test's end.
func StartFor(t testing.TB) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c, err := Start(ctx)
	if err != nil {
		t.Fatalf("no HDFS: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the HDFS: %v", err)
		}
	})
	return c
}

func (c *Cluster) boot(ctx context.Context, flags ...string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	_, port, _ := strings.Cut(c.address, ":")
	details := filepath.Join(c.dir, "details.json")
	if err := os.Remove(details); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	args := append(c.java("512m"), "org.apache.hadoop.mapreduce.MiniHadoopClusterManager", "-nomr", "-nnport", port, "-writeDetails", details,
		"-Dhdfs.minidfs.basedir="+filepath.Join(c.dir, "data"), "-Ddfs.replication=1", "-Ddfs.namenode.fs-limits.min-block-size=4096")
	cmd := exec.Command(c.jars.Java, append(args, flags...)...)
	cmd.Dir = c.dir
	if err := c.process.Start(cmd, os.O_TRUNC); err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if text, err := os.ReadFile(details); err == nil && strings.HasSuffix(strings.TrimSpace(string(text)), "}") {
				return nil
			}
		case <-c.process.Done():
			return fmt.Errorf("the HDFS has ended:\n%s", c.log())
		case <-ctx.Done():
			return fmt.Errorf("the HDFS is not up after %s:\n%s", startTimeout, c.log())
		}
	}
}

func (c *Cluster) java(heap string) []string {
	return []string{
		"-Xmx" + heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true",
		"-Djava.net.preferIPv4Stack=true", "-cp", c.jars.Classpath,
	}
}

func (c *Cluster) log() string {
	text, err := os.ReadFile(c.process.Log)
	if err != nil {
		return err.Error()
	}
	return javatest.Tail(text, 30)
}

// Address returns the NameNode's host:port.
func (c *Cluster) Address() string { return c.address }

// Admin runs dfsadmin with arguments, such as -setSpaceQuota 1m /dir.
func (c *Cluster) Admin(ctx context.Context, args ...string) error {
	all := append(c.java("128m"), "org.apache.hadoop.hdfs.tools.DFSAdmin", "-fs", "hdfs://"+c.address)
	if out, err := exec.CommandContext(ctx, c.jars.Java, append(all, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("dfsadmin %s: %w\n%s", strings.Join(args, " "), err, javatest.Tail(out, 20))
	}
	return nil
}

// Freeze stops the processes of the cluster where they are, until Thaw.
func (c *Cluster) Freeze() error { return c.process.Freeze() }

// Thaw lets them go on.
func (c *Cluster) Thaw() error { return c.process.Thaw() }

// Close ends the cluster and removes its files.
func (c *Cluster) Close() error {
	if c.process == nil {
		return nil
	}
	err := c.process.End(syscall.SIGKILL)
	if errors.Is(err, child.ErrNotRunning) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}
