// Command job holds the jobs of the end-to-end tests.
package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/orders"
	"github.com/weir-stream/weir/sinks"
	kafkasink "github.com/weir-stream/weir/sinks/kafka"
	"github.com/weir-stream/weir/sinks/kafka/confluent"
	kafkasource "github.com/weir-stream/weir/sources/kafka"
	"github.com/weir-stream/weir/stream"
	"github.com/weir-stream/weir/stream/window"
	"github.com/weir-stream/weir/test/robustness/sequences"
)

func main() { stream.Main(job) }

// options are the flags of the job.
type options struct {
	shape, brokers, in, out, out2, client, guarantee, prefix, policy, deadLetters, start string

	postgres, dir, goroutines, brake string

	mechanism, user, password, ca, cert, key, group string

	txnTimeout, discovery         time.Duration
	skipLost, durable             bool
	maxRecordBytes, fetchBytes    int
	memoryBytes                   int64
	sourceParallelism, maxRestart int
	delay, idle, window           time.Duration
	restartDelay                  time.Duration

	checkpoints stream.CheckpointConfig
}

func parse() (options, error) {
	o := options{checkpoints: stream.DefaultCheckpoints()}
	f := flag.NewFlagSet("job", flag.ContinueOnError)
	f.StringVar(&o.shape, "shape", "orders", "orders, crash, pass, keyed, count, hoard, slow, braked, windows, tables, boom, badplan, or one of package sequences")
	f.StringVar(&o.brokers, "brokers", "", "bootstrap servers")
	f.StringVar(&o.in, "in", "", "input topic")
	f.StringVar(&o.out, "out", "", "output topic")
	f.StringVar(&o.out2, "out2", "", "second output topic, of shape crash")
	f.StringVar(&o.postgres, "postgres", "", "URL of the database, of shape tables")
	f.StringVar(&o.dir, "dir", "", "directory of files, of shape tables")
	f.StringVar(&o.goroutines, "goroutines", "", "directory where each process notes how many goroutines it has, in a file named after its id")
	f.StringVar(&o.client, "client", "native", "native or confluent")
	f.StringVar(&o.guarantee, "guarantee", "exactly-once", "exactly-once or at-least-once")
	f.StringVar(&o.prefix, "prefix", "weir", "prefix of transactional ids")
	f.StringVar(&o.policy, "policy", "fail", "for malformed records: fail, skip, dead-letter")
	f.StringVar(&o.deadLetters, "dead-letters", "", "topic of dead letters")
	f.StringVar(&o.start, "start", "earliest", "earliest or latest")
	f.StringVar(&o.mechanism, "mechanism", "PLAIN", "SASL mechanism")
	f.StringVar(&o.user, "user", "", "SASL user; empty for no login")
	f.StringVar(&o.password, "password", "", "SASL password")
	f.StringVar(&o.ca, "ca", "", "authorities of the brokers' certificates, PEM or a path; empty for no TLS")
	f.StringVar(&o.cert, "cert", "", "client certificate, PEM or a path")
	f.StringVar(&o.key, "key", "", "key of the client certificate, PEM or a path")
	f.StringVar(&o.group, "group", "", "consumer group to commit to")
	f.DurationVar(&o.txnTimeout, "transaction-timeout", 0, "0 takes the broker's limit")
	f.DurationVar(&o.discovery, "discovery", 0, "0 takes the default")
	f.BoolVar(&o.durable, "durable", false, "keep the output of prepared transactions with the checkpoints")
	f.BoolVar(&o.skipLost, "skip-lost", false, "go on where records were deleted")
	f.IntVar(&o.maxRecordBytes, "max-record-bytes", 0, "0 takes the topic's")
	f.IntVar(&o.fetchBytes, "fetch-bytes", 0, "per partition; 0 takes the default")
	f.Int64Var(&o.memoryBytes, "memory-bytes", 0, "of the source, per subtask; 0 takes the default")
	f.IntVar(&o.sourceParallelism, "source-parallelism", 0, "0 takes the job's")
	f.DurationVar(&o.delay, "delay", 0, "of shape slow, for each record with key slow; of shape braked, for each record that is written")
	f.StringVar(&o.brake, "brake", "", "of shape braked, a file: while it is there, writing takes ten times as long")
	f.DurationVar(&o.idle, "idle", -1, "idle timeout of shape windows; 0 for never, -1ns for the default")
	f.DurationVar(&o.window, "window", time.Second, "length of the windows of shape crash")
	f.DurationVar(&o.restartDelay, "restart-delay", -1, "of every restart but the first; -1ns takes the default")
	f.IntVar(&o.maxRestart, "max-restarts", -1, "-1 takes the default")
	f.BoolVar(&o.checkpoints.Enabled, "checkpoints", true, "take checkpoints; without, sinks give no guarantee")
	f.DurationVar(&o.checkpoints.Interval, "interval", o.checkpoints.Interval, "checkpoint interval")
	f.DurationVar(&o.checkpoints.Timeout, "checkpoint-timeout", o.checkpoints.Timeout, "checkpoint timeout")
	f.IntVar(&o.checkpoints.ToleratedFailures, "tolerated-failures", o.checkpoints.ToleratedFailures, "tolerated checkpoint failures")
	f.DurationVar(&o.checkpoints.RecoveryBudget, "recovery-budget", o.checkpoints.RecoveryBudget, "recovery budget")
	return o, f.Parse(os.Args[1:])
}

func job(env *stream.Env) error {
	o, err := parse()
	if err != nil {
		return err
	}
	if o.goroutines != "" {
		go noteGoroutines(o.goroutines)
	}
	env.SetCheckpoints(o.checkpoints)
	restarts := stream.DefaultRestarts()
	if o.maxRestart >= 0 {
		restarts.MaxRestarts = o.maxRestart
	}
	if o.restartDelay >= 0 {
		restarts.InitialDelay, restarts.MaxDelay = o.restartDelay, o.restartDelay
	}
	env.SetRestartPolicy(restarts)
	switch o.shape {
	case "orders":
		orders.Describe(env, orders.Topics{Brokers: strings.Split(o.brokers, ","), Orders: o.in, Totals: o.out}, o.sink()...)
	case "crash":
		o.crash(env)
	case "pass":
		stream.To(o.from(env), "out", o.to())
	case "keyed":
		byKey := stream.KeyBy(o.from(env), keyOf)
		out := stream.Process(byKey, func(*stream.States[string]) stream.Handler[string, message, message] {
			return stream.Handler[string, message, message]{
				Record: func(ctx *stream.Context[string, message], m message) error { return ctx.Emit(m) },
			}
		}).Named("pass")
		stream.To(out, "out", o.to())
	case "count":
		stream.To(count(o.from(env)), "out", o.to())
	case "slow":
		byKey := stream.KeyBy(o.from(env), keyOf)
		out := stream.Process(byKey, func(*stream.States[string]) stream.Handler[string, message, message] {
			return stream.Handler[string, message, message]{
				Record: func(ctx *stream.Context[string, message], m message) error {
					if string(m.Key) == "slow" {
						time.Sleep(o.delay)
					}
					return ctx.Emit(m)
				},
			}
		}).Named("slow")
		stream.To(out, "out", o.to())
	case "braked":
		b := &brake{file: o.brake, delay: o.delay}
		byKey := stream.KeyBy(o.from(env), keyOf)
		out := stream.Process(byKey, func(*stream.States[string]) stream.Handler[string, message, message] {
			return stream.Handler[string, message, message]{
				Record: func(ctx *stream.Context[string, message], m message) error { return ctx.Emit(m) },
			}
		}).Named("pass")
		stream.To(out, "out", kafkasink.New(o.brokers, o.out, func(m message) (kafkasink.Record, error) {
			b.wait()
			return kafkasink.Record{Key: m.Key, Value: m.Value, Headers: m.Headers, Timestamp: m.At}, nil
		}, o.sink()...))
	case "windows":
		strategy := stream.Monotonous()
		switch {
		case o.idle == 0:
			strategy = strategy.WithoutIdleness()
		case o.idle > 0:
			strategy = strategy.WithIdleTimeout(o.idle)
		}
		in := o.from(env).WithWatermarks(messageTime, strategy)
		last := stream.Reduce(stream.Window(stream.KeyBy(in, keyOf), window.Tumbling(time.Second)), func(_, b message) message { return b })
		stream.To(last.Named("last"), "out", o.to())
	case "tables":
		o.tables(env)
	case "hoard":
		stream.To(hoard(o.from(env)), "out", o.to())
	case "boom":
		in := stream.Map(o.from(env), func(m message) message {
			if strings.Contains(string(m.Value), "boom") {
				fmt.Fprintln(os.Stderr, "about to go off")
				panic("boom: " + string(m.Value))
			}
			return m
		}).Named("fuse")
		stream.To(in, "out", o.to())
	case "badplan":
		in := o.from(env)
		stream.To(in, "twin", o.to())
		stream.To(in, "twin", o.to())
		stream.To(in, "impossible", kafkasink.New("", "", func(message) (kafkasink.Record, error) { return kafkasink.Record{}, nil }))
	case string(sequences.PassThrough), string(sequences.Counted), string(sequences.Merged):
		return sequences.Describe(env, sequences.Shape(o.shape), o.brokers, o.in, o.out, o.sink()...)
	default:
		return fmt.Errorf("unknown shape %q", o.shape)
	}
	return nil
}

// message is a Kafka record as it came; a nil key or value is null.
type message struct {
	Key, Value []byte
	Headers    []kafkasource.Header
	At         time.Time
}

func (o options) from(env *stream.Env) *stream.Stream[message] {
	var opts []kafkasource.Option
	switch o.policy {
	case "skip":
		opts = append(opts, kafkasource.SkipMalformed())
	case "dead-letter":
		opts = append(opts, kafkasource.DeadLetterTopic(o.deadLetters))
	}
	if o.start == "latest" {
		opts = append(opts, kafkasource.StartLatest())
	}
	if o.discovery > 0 {
		opts = append(opts, kafkasource.Discovery(o.discovery))
	}
	if o.skipLost {
		opts = append(opts, kafkasource.SkipLostRecords())
	}
	if o.user != "" {
		opts = append(opts, kafkasource.WithLogin(o.mechanism, o.user, o.password))
	}
	if o.ca != "" {
		opts = append(opts, kafkasource.WithTLS(kafkasource.TLS{CA: o.ca, Certificate: o.cert, Key: o.key}))
	}
	if o.group != "" {
		opts = append(opts, kafkasource.CommitTo(o.group))
	}
	if o.fetchBytes > 0 {
		opts = append(opts, kafkasource.FetchBytes(64<<20, o.fetchBytes))
	}
	if o.memoryBytes > 0 {
		opts = append(opts, kafkasource.MemoryBytes(o.memoryBytes))
	}
	in := stream.From(env, "in", kafkasource.New(o.brokers, o.in, func(r kafkasource.Record) (message, error) {
		if string(r.Value) == "malformed" {
			return message{}, errors.New("value is malformed")
		}
		return message{Key: r.Key, Value: r.Value, Headers: r.Headers, At: r.Timestamp}, nil
	}, opts...))
	if o.sourceParallelism > 0 {
		in = in.Parallelism(o.sourceParallelism)
	}
	return in
}

func (o options) sink() []kafkasink.Option {
	opts := []kafkasink.Option{kafkasink.TransactionalIDPrefix(o.prefix)}
	if o.client == "confluent" {
		opts = append(opts, kafkasink.Client(confluent.New(nil)))
	}
	if o.guarantee == "at-least-once" {
		opts = append(opts, kafkasink.Guarantee(graph.AtLeastOnce))
	}
	if o.user != "" {
		opts = append(opts, kafkasink.WithLogin(o.mechanism, o.user, o.password))
	}
	if o.ca != "" {
		opts = append(opts, kafkasink.WithTLS(kafkasink.TLS{CA: o.ca, Certificate: o.cert, Key: o.key}))
	}
	if o.txnTimeout != 0 {
		opts = append(opts, kafkasink.TransactionTimeout(o.txnTimeout))
	}
	if o.durable {
		opts = append(opts, kafkasink.DurableOutput())
	}
	if o.maxRecordBytes > 0 {
		opts = append(opts, kafkasink.MaxRecordBytes(o.maxRecordBytes))
	}
	if o.deadLetters != "" {
		opts = append(opts, kafkasink.DeadLetterTopic(o.deadLetters))
	}
	return opts
}

// brake slows the sinks of a process down, to one rate for all of them. It sleeps in pieces that a clock can measure.
type brake struct {
	file  string
	delay time.Duration

	mu     sync.Mutex
	owed   time.Duration
	looked time.Time
	on     bool
}

func (b *brake) wait() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); now.Sub(b.looked) > 20*time.Millisecond {
		_, err := os.Stat(b.file)
		b.looked, b.on = now, err == nil
	}
	b.owed += b.delay
	if b.on {
		b.owed += 9 * b.delay
	}
	if b.owed >= 2*time.Millisecond {
		begun := time.Now()
		time.Sleep(b.owed)
		b.owed -= time.Since(begun)
	}
}

func messageTime(m message) time.Time { return m.At }

func keyOf(m message) string { return string(m.Key) }

// count emits the running count of each key as eight big-endian bytes.
func count(in *stream.Stream[message]) *stream.Stream[message] {
	return stream.Process(stream.KeyBy(in, keyOf), func(s *stream.States[string]) stream.Handler[string, message, message] {
		counts := stream.ValueOf[uint64](s, "count")
		return stream.Handler[string, message, message]{
			Record: func(ctx *stream.Context[string, message], m message) error {
				if m.Value == nil { // a tombstone deletes
					if err := counts.Delete(); err != nil {
						return err
					}
					return ctx.Emit(message{Key: m.Key, At: m.At})
				}
				n, _, err := counts.Get()
				if err != nil {
					return err
				}
				if err := counts.Put(n + 1); err != nil {
					return err
				}
				return ctx.Emit(message{Key: m.Key, Value: binary.BigEndian.AppendUint64(nil, n+1), At: m.At})
			},
		}
	}).Named("count")
}

// hoard keeps the longest value of each key, and passes on what is shorter.
func hoard(in *stream.Stream[message]) *stream.Stream[message] {
	return stream.Process(stream.KeyBy(in, keyOf), func(s *stream.States[string]) stream.Handler[string, message, message] {
		longest := stream.ValueOf[[]byte](s, "longest")
		return stream.Handler[string, message, message]{
			Record: func(ctx *stream.Context[string, message], m message) error {
				kept, _, err := longest.Get()
				if err != nil {
					return err
				}
				if len(m.Value) > len(kept) {
					return longest.Put(m.Value)
				}
				return ctx.Emit(m)
			},
		}
	}).Named("hoard")
}

func (o options) to() sinks.Sink[message] {
	return kafkasink.New(o.brokers, o.out, func(m message) (kafkasink.Record, error) {
		return kafkasink.Record{Key: m.Key, Value: m.Value, Headers: m.Headers, Timestamp: m.At}, nil
	}, o.sink()...)
}
