package kafkasource

import (
	"errors"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/sources"
)

// Option sets one thing about the source.
type Option func(*settings)

type startKind int

const (
	startEarliest startKind = iota
	startLatest
	startTimestamp
	startGroup
)

type decodePolicy int

const (
	decodeFail decodePolicy = iota
	decodeSkip
	decodeDeadLetter
)

type settings struct {
	brokers     []string
	topics      []string
	start       startKind
	startAt     time.Time
	group       string
	discovery   time.Duration
	skipLost    bool
	policy      decodePolicy
	deadLetters string
	fetchBytes  int32
	partBytes   int32
	memory      int64
	deadline    time.Duration
	security    kafkaconn.Security
	options     []kgo.Opt
}

const (
	defaultDiscovery  = 30 * time.Second
	defaultFetchBytes = 16 << 20
	defaultPartBytes  = 1 << 20
	defaultMemory     = 64 << 20
	defaultDeadline   = 10 * time.Second
)

func newSettings(brokers, topics string, opts []Option) settings {
	s := settings{
		brokers: kafkaconn.SplitList(brokers), topics: kafkaconn.SplitList(topics), discovery: defaultDiscovery,
		fetchBytes: defaultFetchBytes, partBytes: defaultPartBytes, memory: defaultMemory, deadline: defaultDeadline,
	}
	for _, o := range opts {
		o(&s)
	}
	return s
}

// StartEarliest reads each partition from its oldest record when the job starts without a checkpoint. It is the default.
func StartEarliest() Option { return func(s *settings) { s.start = startEarliest } }

// StartLatest reads only what is written after the job's first start.
func StartLatest() Option { return func(s *settings) { s.start = startLatest } }

// StartAt reads each partition from the first record with a timestamp at or after at.
func StartAt(at time.Time) Option {
	return func(s *settings) { s.start, s.startAt = startTimestamp, at }
}

// StartCommitted reads from the offsets that a consumer group has committed, and from the oldest record of partitions where it has
// none.
func StartCommitted(group string) Option {
	return func(s *settings) { s.start, s.group = startGroup, group }
}

// CommitTo commits the offsets of completed checkpoints to a consumer group, for lag tools only: the job never reads them unless
// StartCommitted says so.
func CommitTo(group string) Option { return func(s *settings) { s.group = group } }

// Discovery sets how often new partitions are looked for; default 30 s, 0 for never.
func Discovery(every time.Duration) Option { return func(s *settings) { s.discovery = every } }

// SkipLostRecords goes on at the oldest record kept when retention has deleted the wanted one, and counts the gap, instead of stopping
// the job.
func SkipLostRecords() Option { return func(s *settings) { s.skipLost = true } }

// SkipMalformed skips records that decode refuses, counting each and logging one line with its coordinates, instead of failing the
// task.
func SkipMalformed() Option { return func(s *settings) { s.policy = decodeSkip } }

// DeadLetterTopic copies records that decode refuses to a topic, at least once, and goes on.
func DeadLetterTopic(topic string) Option {
	return func(s *settings) { s.policy, s.deadLetters = decodeDeadLetter, topic }
}

// FetchBytes bounds the bytes of one fetch request's answer, and of one partition in it; defaults 16 MiB and 1 MiB. A single larger
// record arrives all the same.
func FetchBytes(total, perPartition int) Option {
	return func(s *settings) { s.fetchBytes, s.partBytes = int32(total), int32(perPartition) }
}

// MemoryBytes bounds what one subtask keeps of fetched records that are not yet emitted, after decompression; default 64 MiB.
func MemoryBytes(n int64) Option { return func(s *settings) { s.memory = n } }

// Deadline bounds requests that answer at once, such as metadata; default 10 s.
func Deadline(d time.Duration) Option { return func(s *settings) { s.deadline = d } }

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

// ClientOptions passes options to the franz-go client, for what has no option of its own: connections and requests. Those of its consumer do
// nothing, but for WithDecompressor.
func ClientOptions(opts ...kgo.Opt) Option {
	return func(s *settings) { s.options = append(s.options, opts...) }
}

func (s *settings) validate(sources.JobSettings) error {
	var problems []error
	bad := func(problem string) { problems = append(problems, errors.New(problem)) }
	if len(s.brokers) == 0 {
		bad("no brokers given: name at least one as host:port")
	}
	if len(s.topics) == 0 {
		bad("no topic given")
	}
	if s.start == startGroup && s.group == "" {
		bad("StartCommitted needs the name of a consumer group")
	}
	if s.policy == decodeDeadLetter && s.deadLetters == "" {
		bad("DeadLetterTopic needs the name of a topic")
	}
	if s.fetchBytes <= 0 || s.partBytes <= 0 {
		bad("FetchBytes must be positive")
	}
	if s.memory <= 0 {
		bad("MemoryBytes must be positive")
	}
	if s.discovery < 0 {
		bad("Discovery must not be negative")
	}
	if s.deadline <= 0 {
		bad("Deadline must be positive")
	}
	if err := s.security.Validate(); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// answer names the wait for the cluster.
func (s settings) answer() string { return "Kafka at " + strings.Join(s.brokers, ",") + " to answer" }
