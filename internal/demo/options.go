package demo

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weir-stream/weir/internal/localcluster"
)

// Options describe a run.
type Options struct {
	// Binary is the weir executable: it runs every node, and is the job binary too.
	Binary string
	// Dir keeps data and logs of the cluster; it must be empty.
	Dir string
	// Records is the number of orders, at Rate a second.
	Records, Rate uint64
	// Kills are the roles of the processes to kill, one after the other.
	Kills []localcluster.Role
	// Brokers are those of a running Kafka; empty starts an embedded broker.
	Brokers []string
	// Interval between checkpoints.
	Interval time.Duration
	// Progress takes the live account; nil for none. Live rewrites one line, as a terminal can.
	Progress io.Writer
	Live     bool
	// Width is the number of columns of the terminal; 0 when unknown.
	Width int
}

// Bounds of a run that a person waits for.
const (
	MinRecords = 1000
	MaxRecords = 100_000_000
	MinRate    = 100 // records a second
	MaxRate    = 1_000_000
)

// Validate returns every problem of the options at once.
func (o Options) Validate() error {
	var errs []error
	if o.Records < MinRecords || o.Records > MaxRecords {
		errs = append(errs, fmt.Errorf("--records: %d is not within %d and %d", o.Records, MinRecords, MaxRecords))
	}
	if o.Rate < MinRate || o.Rate > MaxRate {
		errs = append(errs, fmt.Errorf("--rate: %d is not within %d and %d records a second", o.Rate, MinRate, MaxRate))
	}
	if o.Interval < 10*time.Millisecond || o.Interval > time.Minute {
		errs = append(errs, fmt.Errorf("--checkpoint-interval: %s is not within 10ms and 1m", o.Interval))
	}
	return errors.Join(errs...)
}

// Kill tells what a kill did.
type Kill struct {
	Role string `json:"role"`
	ID   string `json:"id"`
	PID  int    `json:"pid"`
	// GapMS is the longest time in milliseconds without committed output from the kill to the next one.
	GapMS int64 `json:"gap_ms"`
}

// Report is the result of a run.
type Report struct {
	Produced        uint64 `json:"produced"`
	ExpectedWindows int    `json:"expected_windows"`
	Missing         int    `json:"missing"`
	Duplicated      int    `json:"duplicated"`
	Wrong           int    `json:"wrong"`
	Kills           []Kill `json:"kills"`
	Checkpoints     uint64 `json:"checkpoints"`
	JobRestarts     uint64 `json:"job_restarts"`
	// DurationMS is the time in milliseconds from the first order to the last result.
	DurationMS int64 `json:"duration_ms"`
}

// Right reports whether every expected result was seen exactly once.
func (r Report) Right() bool { return r.Missing == 0 && r.Duplicated == 0 && r.Wrong == 0 }
