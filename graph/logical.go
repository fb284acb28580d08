package graph

import (
	"errors"
	"fmt"

	"github.com/weir-stream/weir/internal/keygroup"
)

// Logical is a job graph before it is compiled.
type Logical struct {
	Name string
	// MaxParallelism is the number of key groups; 0 takes keygroup.DefaultMaxParallelism.
	MaxParallelism int
	// Parallelism is the number of subtasks of operators that choose none; 0 means 1.
	Parallelism int
	Operators   []Operator
	// Edges connect the operators. An edge without a Partitioning becomes Forward where both sides have one parallelism, else
	// Rebalance.
	Edges       []Edge
	Checkpoints CheckpointConfig
	Restarts    RestartPolicy
}

// What can be wrong with a job graph. Every error of [Logical.Compile] is an *Error around one of these.
var (
	// ErrName: the job has no name.
	ErrName = errors.New("the job has no name")
	// ErrDuplicateUID: two operators have one uid.
	ErrDuplicateUID = errors.New("uid used twice")
	// ErrUnnamedState: state could not be found again after a change of the job.
	ErrUnnamedState = errors.New("keeps state and has no name")
	// ErrSharedResource: two sinks write to something that only one may write to.
	ErrSharedResource = errors.New("resource used by two sinks")
	// ErrParallelism: a parallelism is out of bounds.
	ErrParallelism = errors.New("parallelism out of bounds")
	// ErrNoSource: nothing would ever flow.
	ErrNoSource = errors.New("the job has no source")
	// ErrNoSink: nothing would ever come out.
	ErrNoSink = errors.New("the job has no sink")
	// ErrCycle: records would go round for ever.
	ErrCycle = errors.New("operators form a cycle")
	// ErrNoCheckpoints: exactly-once rests on checkpoints.
	ErrNoCheckpoints = errors.New("exactly-once needs checkpoints")
	// ErrEdge: an edge does not fit its operators.
	ErrEdge = errors.New("edge does not fit")
	// ErrCheckpoints: a checkpoint setting is out of bounds.
	ErrCheckpoints = errors.New("checkpoint setting out of bounds")
)

// Error is one thing wrong with a job graph.
type Error struct {
	// Operator names the operator as people know it; empty when the whole job is meant.
	Operator string
	// Detail says what is wrong and what to do about it.
	Detail string
	// Err is one of the package's errors.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Operator == "" {
		return e.Detail
	}
	return fmt.Sprintf("operator %q: %s", e.Operator, e.Detail)
}

// Unwrap returns the kind of error.
func (e *Error) Unwrap() error { return e.Err }

// Errors are all things wrong with a job.
type Errors []error

// Error implements error, one problem a line.
func (es Errors) Error() string { return errors.Join(es...).Error() }

// Unwrap returns the single errors.
func (es Errors) Unwrap() []error { return es }

// label is what people call the operator.
func (o Operator) label() string {
	if o.Name != "" {
		return o.Name
	}
	return o.UID
}

// normalized returns a copy of l with defaults filled in.
func (l *Logical) normalized() Logical {
	n := *l
	if n.MaxParallelism == 0 {
		n.MaxParallelism = keygroup.DefaultMaxParallelism
	}
	if n.Parallelism == 0 {
		n.Parallelism = 1
	}
	n.Operators = append([]Operator(nil), l.Operators...)
	for i := range n.Operators {
		if n.Operators[i].Parallelism == 0 {
			n.Operators[i].Parallelism = n.Parallelism
		}
	}
	n.Edges = append([]Edge(nil), l.Edges...)
	parallelism := make(map[string]int, len(n.Operators))
	for _, o := range n.Operators {
		parallelism[o.UID] = o.Parallelism
	}
	for i, e := range n.Edges {
		if e.Partitioning != 0 {
			continue
		}
		n.Edges[i].Partitioning = Rebalance
		if parallelism[e.From] == parallelism[e.To] {
			n.Edges[i].Partitioning = Forward
		}
	}
	return n
}
