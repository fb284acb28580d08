package filesink

import (
	"time"

	"github.com/weir-stream/weir/sinks"
)

// New makes a sink that writes files of a format to a place.
func New[T any](place Place, format Format[T], opts ...Option) sinks.Sink[T] {
	return NewPartitioned(place, format, nil, opts...)
}

// NewPartitioned is New with records spread over directories. partition returns a record's: a relative path such as date=2026-01-31,
// empty for none. at is the record's event time in UTC, the zero time when it has none. A path comes to be with its first finished file.
func NewPartitioned[T any](place Place, format Format[T], partition func(v T, at time.Time) string, opts ...Option) sinks.Sink[T] {
	s := newSettings(place, opts)
	target := "files"
	if place != nil {
		target = place.String()
	}
	newParts := func() parts[T] { return parts[T]{settings: &s, format: format, partition: partition} }
	return sinks.TwoPhase(sinks.TwoPhaseConfig[T, txn]{
		Kind:      "file",
		Target:    target,
		Guarantee: s.guarantee,
		Validate:  s.validate,
		New: func() (sinks.TwoPhaseCommitSink[T, txn], error) {
			return &transactional[T]{parts: newParts()}, nil
		},
		NewWriter: func() (sinks.Writer[T], error) { return &plain[T]{parts: newParts()}, nil },
	})
}
