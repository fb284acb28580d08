package kafkasource

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/sources"
)

// Header is a record header. A nil Value is null, which differs from an empty one.
type Header = kgo.RecordHeader

// Record is what decode gets. Key, Value and Headers point into the fetched batch, whose bytes are never used again: they stay valid and
// unchanged for as long as they are referred to, so that decode may keep them without a copy; whoever keeps a small piece keeps the whole
// batch in memory. They must not be modified.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	// Key and Value are null when nil, which differs from empty. A null Value is a tombstone.
	Key, Value []byte
	Headers    []Header
	// Timestamp is the record's time; the zero value when it has none.
	Timestamp time.Time
}

// New makes a source that reads topics, given as names separated by commas. brokers lists host:port pairs, separated by commas. decode
// turns a record into a value; an error of it fails the task with the record's coordinates unless an option says otherwise.
func New[T any](brokers, topics string, decode func(Record) (T, error), opts ...Option) sources.Source[T] {
	return &source[T]{settings: newSettings(brokers, topics, opts), decode: decode}
}

type source[T any] struct {
	settings settings
	decode   func(Record) (T, error)
}

func (s *source[T]) Kind() string { return "kafka" }

func (s *source[T]) Validate(job sources.JobSettings) error { return s.settings.validate(job) }
