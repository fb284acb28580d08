package kafkasink

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/sources"
)

// Partitioner says how a record without an explicit partition finds its own.
type Partitioner int

// The partitioners.
const (
	// JavaCompatible spreads records with a key by the murmur2 hash that the Java client uses, an empty key included, and sends
	// records without a key to one partition per batch. It is the default.
	JavaCompatible Partitioner = iota
	// Sticky ignores keys: one partition per batch.
	Sticky
)

// Option sets one thing about the sink.
type Option func(*settings)

type settings struct {
	brokers     []string
	topic       string
	guarantee   graph.Guarantee
	timeout     *time.Duration
	prefix      string
	maxRecord   int
	deadLetters string
	partitioner Partitioner
	deadline    time.Duration
	linger      time.Duration
	security    kafkaconn.Security
	options     []kgo.Opt
	newProducer NewProducer
	durable     bool
}

const (
	defaultPrefix   = "weir"
	defaultDeadline = 30 * time.Second
	defaultLinger   = 5 * time.Millisecond
)

func newSettings(brokers, topic string, opts []Option) settings {
	s := settings{
		brokers: kafkaconn.SplitList(brokers), topic: topic, prefix: defaultPrefix, deadline: defaultDeadline, linger: defaultLinger,
		newProducer: NewNative,
	}
	for _, o := range opts {
		o(&s)
	}
	return s
}

// Guarantee asks for a delivery guarantee; by default the job's holds.
func Guarantee(g graph.Guarantee) Option { return func(s *settings) { s.guarantee = g } }

// TransactionTimeout sets transaction.timeout.ms: how long the broker lets a transaction stay open, and so the longest outage that
// loses nothing. The default is the broker's own limit, transaction.max.timeout.ms.
func TransactionTimeout(d time.Duration) Option { return func(s *settings) { s.timeout = &d } }

// DurableOutput keeps the records of prepared transactions with the checkpoints. When an outage lasts longer than the transaction timeout, so
// that the broker aborts what a completed checkpoint has promised, they are written again, each visible once and in its order. Without it
// such a job stops. It costs the disk and the checkpoint storage as many bytes as the job writes, and asks for the right to read the
// topics.
func DurableOutput() Option { return func(s *settings) { s.durable = true } }

// TransactionalIDPrefix begins every transactional id, for access rules on the broker; default "weir".
func TransactionalIDPrefix(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

// MaxRecordBytes lowers the size in bytes, encoded and uncompressed, from which a record counts as too large. The default is the
// topic's max.message.bytes.
func MaxRecordBytes(n int) Option { return func(s *settings) { s.maxRecord = n } }

// DeadLetterTopic sends a note on each record that is too large to a topic, in the same transaction, instead of failing the task.
func DeadLetterTopic(topic string) Option { return func(s *settings) { s.deadLetters = topic } }

// PartitionBy chooses the partitioner.
func PartitionBy(p Partitioner) Option { return func(s *settings) { s.partitioner = p } }

// Deadline bounds every call that waits for the broker; default 30 s. A flush past it fails the task, a commit past it goes on by
// other means.
func Deadline(d time.Duration) Option { return func(s *settings) { s.deadline = d } }

// Linger is how long a batch waits for more records; default 5 ms. Without transactions a small one leaves as soon as the input is worked
// off.
func Linger(d time.Duration) Option { return func(s *settings) { s.linger = d } }

// TLS describes an encrypted connection: certificates and keys are PEM text, as ${file:PATH} in an argument yields it, or absolute paths
// of files on the TaskManager's machine.
type TLS = kafkaconn.TLS

// The SASL mechanisms.
const (
	Plain       = kafkaconn.MechanismPlain
	ScramSHA256 = kafkaconn.MechanismScramSHA256
	ScramSHA512 = kafkaconn.MechanismScramSHA512
)

// WithLogin logs in by SASL. Give the password to the job as a reference such as ${file:PATH} or ${env:NAME}.
func WithLogin(mechanism, user, password string) Option {
	return func(s *settings) {
		s.security.Login = &kafkaconn.Login{Mechanism: mechanism, User: user, Password: password}
	}
}

// WithTLS encrypts the connection and checks the brokers' certificates; the zero value trusts the system's authorities.
func WithTLS(t TLS) Option { return func(s *settings) { s.security.TLS = &t } }

// client returns the settings with everything that a client of the cluster needs among the options. Files are read now.
func (s settings) client() (settings, error) {
	own, err := s.security.Options()
	if err != nil {
		return s, err
	}
	s.options = append(own, s.options...)
	return s, nil
}

// ClientOptions passes options to every franz-go client of the sink, such as compression; what else is about franz-go's own producer has no
// effect. They also serve the connection that finishes
// transactions when another client writes.
func ClientOptions(opts ...kgo.Opt) Option {
	return func(s *settings) { s.options = append(s.options, opts...) }
}

// Client chooses the client that writes; the default is [NewNative].
func Client(n NewProducer) Option { return func(s *settings) { s.newProducer = n } }

// maxPrefix leaves room for a hash in a broker's longest id.
const maxPrefix = 100

// validate checks everything that needs no broker.
func (s *settings) validate(job sources.JobSettings) error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if len(s.brokers) == 0 {
		bad("no brokers given: name at least one as host:port")
	}
	if s.topic == "" {
		bad("no topic given")
	}
	if len(s.prefix) > maxPrefix {
		bad("transactional id prefix is longer than %d bytes", maxPrefix)
	}
	if s.maxRecord < 0 {
		bad("MaxRecordBytes must not be negative")
	}
	if s.deadline <= 0 {
		bad("Deadline must be positive")
	}
	if err := s.security.Validate(); err != nil {
		problems = append(problems, err)
	}
	if s.timeout != nil && job.Guarantee == graph.ExactlyOnce {
		if *s.timeout < time.Millisecond {
			bad("transaction timeout %s: it must be positive", *s.timeout)
		} else if err := checkTimeout(*s.timeout, job.Checkpoints); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// leastTimeout is the shortest transaction timeout that outlives the failures the job tolerates and a recovery.
func leastTimeout(c graph.CheckpointConfig) time.Duration {
	return time.Duration(c.ToleratedFailures+1)*(c.Interval+c.Timeout) + c.RecoveryBudget
}

func checkTimeout(timeout time.Duration, c graph.CheckpointConfig) error {
	if least := leastTimeout(c); timeout < least {
		return fmt.Errorf("transaction timeout %s is too short: with checkpoint interval %s, checkpoint timeout %s, %d tolerated failures and recovery budget %s "+
			"a transaction may have to stay open for %s; raise kafkasink.TransactionTimeout, and where that is the limit the brokers' transaction.max.timeout.ms, "+
			"or lower Interval, Timeout, ToleratedFailures or RecoveryBudget of the stream.CheckpointConfig that the job gives to env.SetCheckpoints",
			timeout, c.Interval, c.Timeout, c.ToleratedFailures, c.RecoveryBudget, least)
	}
	return nil
}

// slotBound is the largest number of transactional ids of one subtask: one being written, one per checkpoint that may fail, and room
// for late notices.
func slotBound(c graph.CheckpointConfig) int { return c.ToleratedFailures + 4 }
