package checkpoint

import (
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

// Coordinator decides about the checkpoints of one attempt.
type Coordinator struct {
	cfg Config
}

// New returns the coordinator of an attempt that has just been started, and its first effects.
func New(cfg Config, now time.Time) (*Coordinator, []Effect) {
	panic("not written yet")
}

// Handle takes an event that happened at now and returns what follows from it. Times must not go back.
func (c *Coordinator) Handle(now time.Time, ev Event) []Effect {
	panic("not written yet")
}

// Deadline returns the time at which the coordinator wants a [Tick]; ok is false when it waits for events only. It changes only in
// Handle.
func (c *Coordinator) Deadline() (at time.Time, ok bool) {
	panic("not written yet")
}

// Statistics returns the checkpoint in progress, if any, followed by the finished ones of this attempt, newest first.
func (c *Coordinator) Statistics(now time.Time) []*jobv1.Checkpoint {
	panic("not written yet")
}
