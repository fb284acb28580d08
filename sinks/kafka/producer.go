package kafkasink

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/kafkaconn"
)

// Producer is a Kafka client that writes with one transactional id, or without transactions. It always asks for the acknowledgement
// of all in-sync replicas and for idempotence.
//
// One goroutine at a time calls its methods.
type Producer interface {
	// Init initialises the transactional id, which ends whatever is open on it. It is called once, before anything else; without
	// a transactional id it does nothing.
	Init(ctx context.Context) error
	// Begin starts a transaction.
	Begin() error
	// Send hands a record to the client, which takes over everything it refers to, but not r itself, and of r's fields only Key, Value and
	// Headers count. millis is the record's time in milliseconds since the epoch. Send must not wait for the broker. The outcome of each
	// record sent is told to ProducerConfig.Delivered, alone or with its neighbours.
	Send(topic string, partition int32, r *Record, millis int64) error
	// Flush waits until the outcome of every record sent has been told.
	Flush(ctx context.Context) error
	// Identity returns what names the transaction that was flushed without an error.
	Identity(ctx context.Context) (Identity, error)
	// Commit ends the flushed transaction by the client's own call. Any error leaves it undecided.
	Commit(ctx context.Context) error
	// TransactionsV2 reports whether the client writes with the second transaction protocol. With the first one an id is
	// initialised anew, by a new client, before it is used again.
	TransactionsV2() bool
	// Close releases the client. It ends no transaction and may be repeated.
	Close()
}

// Identity names one transaction at the broker.
type Identity struct {
	ProducerID    int64
	ProducerEpoch int16
	// EndTxnVersion is the version of the EndTxn request that ends it: 5 for transactions v2, else at most 4.
	EndTxnVersion int16
}

// Versions of the EndTxn request by transaction protocol.
const (
	EndTxnV1 int16 = 4
	EndTxnV2 int16 = 5
)

// Delivery is the outcome of records with successive offsets in one partition.
type Delivery struct {
	Topic     string
	Partition int32
	// Offset is that of the first record.
	Offset  int64
	Records int64
	// Bytes is the size of the keys, values and headers.
	Bytes int
	Err   error
}

// ProducerConfig is what a client needs.
type ProducerConfig struct {
	Brokers []string
	// TransactionalID is empty for a client without transactions.
	TransactionalID    string
	TransactionTimeout time.Duration
	// TransactionsV2 tells that the cluster's finalized feature allows the second transaction protocol.
	TransactionsV2 bool
	Partitioner    Partitioner
	Linger         time.Duration
	// Deadline bounds single requests.
	Deadline time.Duration
	// MaxRecordBytes is the largest record of a topic; larger ones are never sent.
	MaxRecordBytes func(topic string) int
	// Security is the user's login and certificates, for clients other than franz-go.
	Security Security
	// Options are what a franz-go client needs, Security's part among it.
	Options []kgo.Opt
	// Writing asks the coordinator for producer id and epoch of the transaction that is open, for clients that do not tell.
	Writing func(context.Context) (Identity, error)
	// Delivered is called with the outcome of records sent, from one goroutine at a time. It must not block.
	Delivered func(Delivery)
	Logger    *slog.Logger
}

// Security is a login and certificates.
type Security = kafkaconn.Security

// NewProducer makes a client. It does no I/O.
type NewProducer func(ProducerConfig) (Producer, error)
