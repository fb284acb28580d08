package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/child"
	"github.com/weir-stream/weir/internal/javatest"
	"github.com/weir-stream/weir/internal/loopback"
)

// Config describes a broker. The zero value is good.
type Config struct {
	// Dir holds configuration, log and data; default a temporary directory that Close removes.
	Dir string
	// Port is that for clients on loopback; the two after it are used as well. Default: free ones.
	Port int
	// Properties are added to server.properties and override what is there.
	Properties map[string]string
	// Features sets finalized feature levels when the data is formatted, for example transaction.version to 0.
	Features map[string]int
	// Advertise is the host:port that the broker tells its clients; default its own. Set it to a [Proxy]'s address.
	Advertise string
	// Listeners are further ones for clients; see [SecureConfig].
	Listeners []Listener
	// Heap is the JVM's heap size; default 512m.
	Heap string
	// StartTimeout bounds one start; default 90 s.
	StartTimeout time.Duration

	jvm []string
	// node and controller are those of a cluster of several; see [StartNodes].
	node       int
	controller string
}

// Listener is a listener besides the usual one.
type Listener struct {
	// Name is upper case; Protocol is Kafka's security protocol, such as SASL_SSL.
	Name, Protocol string
	// Properties are those of this listener, without the prefix.
	Properties map[string]string
}

// Broker is one Kafka node.
type Broker struct {
	cfg      Config
	dist     *distribution
	process  *child.Process
	dir      string
	ownDir   bool
	listen   string
	internal string
	further  map[string]string // address by name of listener
}

// Start fetches the broker's software when needed, formats its data and returns when the broker answers. The context bounds the
// start only; the caller owns the broker and must Close it.
func Start(ctx context.Context, cfg Config) (*Broker, error) {
	d, err := locate(ctx)
	if err != nil {
		return nil, fmt.Errorf("prepare a Kafka broker: %w", err)
	}
	return start(ctx, d, cfg)
}

func start(ctx context.Context, d *distribution, cfg Config) (_ *Broker, err error) {
	b := &Broker{cfg: cfg, dist: d, dir: cfg.Dir}
	if b.cfg.Heap == "" {
		b.cfg.Heap = "512m"
	}
	b.cfg.node = max(b.cfg.node, 1)
	if b.cfg.StartTimeout == 0 {
		b.cfg.StartTimeout = 90 * time.Second
	}
	if b.dir == "" {
		if b.dir, err = os.MkdirTemp("", "weir-kafka-"); err != nil {
			return nil, err
		}
		b.ownDir = true
	} else if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return nil, err
	}
	b.process = &child.Process{Name: "the broker", Log: filepath.Join(b.dir, "server.log"), StopTimeout: 20 * time.Second}
	defer func() {
		if err != nil {
			_ = b.Close()
		}
	}()
	ports, err := loopback.FreePorts(3 + len(cfg.Listeners))
	if err != nil {
		return nil, err
	}
	if cfg.Port > 0 {
		ports = append([]int{cfg.Port, cfg.Port + 1, cfg.Port + 2}, ports[3:]...)
	}
	b.further = map[string]string{}
	for i, l := range cfg.Listeners {
		b.further[l.Name] = loopback.Address(ports[3+i])
	}
	b.listen, b.internal = loopback.Address(ports[0]), loopback.Address(ports[1])
	controller := b.cfg.controller
	if controller == "" {
		controller = loopback.Address(ports[2])
	}
	if err := os.WriteFile(b.file("server.properties"), []byte(b.properties(controller)), 0o644); err != nil {
		return nil, err
	}
	if err := b.format(ctx); err != nil {
		return nil, err
	}
	return b, b.boot(ctx)
}

func (b *Broker) file(name string) string { return filepath.Join(b.dir, name) }

// controls tells that this node is the controller of its cluster.
func (b *Broker) controls() bool { return b.cfg.node == 1 }

// properties returns server.properties. Clients use the first listener, which may be advertised as a proxy; the broker's own traffic
// (transaction markers among it) takes the second and never passes the proxy.
func (b *Broker) properties(controller string) string {
	advertised := b.listen
	if b.cfg.Advertise != "" {
		advertised = b.cfg.Advertise
	}
	props := map[string]string{
		"process.roles":                       "broker,controller",
		"node.id":                             strconv.Itoa(b.cfg.node),
		"listeners":                           "PLAINTEXT://" + b.listen + ",INTERNAL://" + b.internal + ",CONTROLLER://" + controller,
		"advertised.listeners":                "PLAINTEXT://" + advertised + ",INTERNAL://" + b.internal + ",CONTROLLER://" + controller,
		"listener.security.protocol.map":      "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":          "INTERNAL",
		"controller.listener.names":           "CONTROLLER",
		"controller.quorum.bootstrap.servers": controller,
		"log.dirs":                            b.file("data"),
		"auto.create.topics.enable":           "false",
		"group.initial.rebalance.delay.ms":    "0",

		// One node holds the only replica of the internal topics.
		"offsets.topic.replication.factor":                 "1",
		"offsets.topic.num.partitions":                     "4",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"transaction.state.log.num.partitions":             "4",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",

		// Quick elections and a quick return after a kill.
		"broker.session.timeout.ms":                                   "1500",
		"broker.heartbeat.interval.ms":                                "250",
		"controller.quorum.election.timeout.ms":                       "200",
		"controller.quorum.fetch.timeout.ms":                          "1000",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",

		// A small footprint.
		"num.network.threads":            "2",
		"num.io.threads":                 "4",
		"background.threads":             "2",
		"log.cleaner.dedupe.buffer.size": "8388608",
		"log.initial.task.delay.ms":      "500",
	}
	if !b.controls() {
		props["process.roles"] = "broker"
		props["listeners"] = "PLAINTEXT://" + b.listen + ",INTERNAL://" + b.internal
		props["advertised.listeners"] = "PLAINTEXT://" + advertised + ",INTERNAL://" + b.internal
	}
	for _, l := range b.cfg.Listeners {
		at := "," + l.Name + "://" + b.further[l.Name]
		props["listeners"] += at
		props["advertised.listeners"] += at
		props["listener.security.protocol.map"] += "," + l.Name + ":" + l.Protocol
		for k, v := range l.Properties {
			props["listener.name."+strings.ToLower(l.Name)+"."+k] = v
		}
	}
	maps.Copy(props, b.cfg.Properties)
	var out strings.Builder
	for _, k := range slices.Sorted(maps.Keys(props)) {
		fmt.Fprintf(&out, "%s=%s\n", k, props[k])
	}
	return out.String()
}

func (b *Broker) format(ctx context.Context) error {
	if _, err := os.Stat(b.file("data/meta.properties")); err == nil {
		return nil
	}
	args := b.dist.command("128m", []string{"-XX:TieredStopAtLevel=1"})
	args = append(args, "kafka.tools.StorageTool", "format", "-t", "d2VpcnRlc3RjbHVzdGVyMA", "-c", b.file("server.properties"))
	if b.controls() {
		args = append(args, "--standalone")
	}
	for _, name := range slices.Sorted(maps.Keys(b.cfg.Features)) {
		args = append(args, "--feature", fmt.Sprintf("%s=%d", name, b.cfg.Features[name]))
	}
	if out, err := exec.CommandContext(ctx, b.dist.java, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("format the broker's storage: %w\n%s", err, javatest.Tail(out, 20))
	}
	return nil
}

// boot starts the JVM and waits until the broker answers.
func (b *Broker) boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.StartTimeout)
	defer cancel()
	args := append(b.dist.command(b.cfg.Heap, b.cfg.jvm), "kafka.Kafka", b.file("server.properties"))
	if err := b.process.Start(exec.Command(b.dist.java, args...), os.O_TRUNC); err != nil {
		return err
	}
	done := b.process.Done()
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return fmt.Errorf("the broker died while starting:\n%s", b.LogTail(20))
		case <-ctx.Done():
			return fmt.Errorf("the broker was not ready in time: %w\n%s", ctx.Err(), b.LogTail(20))
		case <-tick.C:
		}
		// The line comes when the broker is unfenced and its listeners take requests; asking before would log refusals only.
		if log, err := os.ReadFile(b.process.Log); err == nil && strings.Contains(string(log), "Kafka Server started") {
			break
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.internal))
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := cl.Ping(ctx); err != nil {
		return fmt.Errorf("ask the broker: %w", err)
	}
	return nil
}

// Addr returns the host:port for clients: the advertised address.
func (b *Broker) Addr() string {
	if b.cfg.Advertise != "" {
		return b.cfg.Advertise
	}
	return b.listen
}

// At returns the host:port of a further listener.
func (b *Broker) At(listener string) string { return b.further[listener] }

// Listen returns the host:port on which the broker takes what a proxy forwards.
func (b *Broker) Listen() string { return b.listen }

// Direct returns a host:port that never leads through a proxy.
func (b *Broker) Direct() string {
	if b.internal != "" {
		return b.internal
	}
	return b.Addr()
}

// PID returns the process id of the broker, 0 for one that this package did not start.
func (b *Broker) PID() int {
	if b.process == nil {
		return 0
	}
	return b.process.PID()
}

// Done is closed when the broker's process ends; nil for one that this package did not start.
func (b *Broker) Done() <-chan struct{} {
	if b.process == nil {
		return nil
	}
	return b.process.Done()
}

// LogTail returns the last lines of the broker's log.
func (b *Broker) LogTail(lines int) string {
	if b.process == nil {
		return ""
	}
	out, err := os.ReadFile(b.process.Log)
	if err != nil {
		return err.Error()
	}
	return javatest.Tail(out, lines)
}

var errForeign = errors.New("the broker named by " + EnvBroker + " is not managed by the tests")

// Kill ends the broker at once, as kill -9 does; its data stays.
func (b *Broker) Kill() error { return b.signal(syscall.SIGKILL) }

// Pause freezes the broker until Resume.
func (b *Broker) Pause() error {
	if b.process == nil {
		return errForeign
	}
	return b.process.Freeze()
}

// Resume undoes Pause.
func (b *Broker) Resume() error {
	if b.process == nil {
		return errForeign
	}
	return b.process.Thaw()
}

func (b *Broker) signal(sig syscall.Signal) error {
	if b.process == nil {
		return errForeign
	}
	return b.process.End(sig)
}

// Restart starts a stopped or killed broker again on the same data and the same ports.
func (b *Broker) Restart(ctx context.Context) error {
	if b.process == nil {
		return errForeign
	}
	return b.boot(ctx)
}

// Close ends the broker and removes its directory unless the caller chose it.
func (b *Broker) Close() error {
	if b.process == nil {
		return nil
	}
	sig := syscall.SIGKILL // nobody reads the data again
	if !b.ownDir || len(b.cfg.jvm) > 0 {
		sig = syscall.SIGTERM
	}
	err := b.process.End(sig)
	if errors.Is(err, child.ErrNotRunning) {
		err = nil
	}
	if b.ownDir {
		err = errors.Join(err, os.RemoveAll(b.dir))
	}
	return err
}
