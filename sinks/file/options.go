package filesink

import (
	"errors"
	"time"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/sources"
)

// Option sets one thing about the sink.
type Option func(*settings)

type settings struct {
	place     Place
	guarantee graph.Guarantee
	maxBytes  int64
	maxAge    time.Duration
	maxOpen   int
	deadline  time.Duration
}

const (
	defaultMaxBytes = 128 << 20
	defaultMaxOpen  = 64
	defaultDeadline = time.Minute
)

func newSettings(place Place, opts []Option) settings {
	s := settings{place: place, maxBytes: defaultMaxBytes, maxOpen: defaultMaxOpen, deadline: defaultDeadline}
	for _, o := range opts {
		o(&s)
	}
	return s
}

// Guarantee asks for a delivery guarantee; by default the job's holds.
func Guarantee(g graph.Guarantee) Option { return func(s *settings) { s.guarantee = g } }

// MaxBytes is the size in bytes at which a file is ended and the next one begun; default 128 MiB. A file may get larger by what its
// format buffers.
func MaxBytes(n int64) Option { return func(s *settings) { s.maxBytes = n } }

// MaxAge is the age at which a file is ended with the next record; 0, the default, for none. Every barrier ends files in any case, so this
// matters only where it is shorter than the checkpoint interval.
func MaxAge(d time.Duration) Option { return func(s *settings) { s.maxAge = d } }

// MaxOpen bounds the files that a subtask has open at a time, one per partition; default 64. When one more is needed, the one that was
// longest without a record is ended.
func MaxOpen(n int) Option { return func(s *settings) { s.maxOpen = n } }

// Deadline bounds every wait for the store; default 1 min. A local file system may keep a call for longer, which nobody can end.
func Deadline(d time.Duration) Option { return func(s *settings) { s.deadline = d } }

func (s *settings) validate(sources.JobSettings) error {
	var problems []error
	bad := func(text string) { problems = append(problems, errors.New(text)) }
	if s.place == nil {
		bad("no place given: name one such as filesink.Directory")
	} else if err := s.place.Validate(); err != nil {
		problems = append(problems, err)
	}
	if s.maxBytes < 1 {
		bad("MaxBytes must be positive")
	}
	if s.maxAge < 0 {
		bad("MaxAge must not be negative")
	}
	if s.maxOpen < 1 {
		bad("MaxOpen must be positive")
	}
	if s.deadline <= 0 {
		bad("Deadline must be positive")
	}
	return errors.Join(problems...)
}
