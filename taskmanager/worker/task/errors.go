package task

import (
	"errors"
	"fmt"

	"github.com/weir-stream/weir/internal/stack"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/statebackend"
)

// ErrCanceled is why a task ended that was told to stop at once.
var ErrCanceled = errors.New("task canceled")

// Error is a failure of an operator.
type Error struct {
	// Operator is the name of the operator, or of the chain where it is not known which of its operators failed.
	Operator string
	Doing    string
	Err      error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("operator %s: %s: %v", e.Operator, e.Doing, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// PanicError is a panic in an operator's code.
type PanicError struct {
	Value any
	// Stack is the panicking goroutine's.
	Stack string
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Class returns what a failure leads to.
func Class(err error) operator.Class {
	c := operator.ClassOf(err)
	var lost *statebackend.LostError
	var storage *statebackend.StorageError
	switch {
	case !c.Passing():
		return c
	case errors.As(err, &lost):
		return operator.ClassDataLoss
	case errors.Is(err, statebackend.ErrSchema), errors.Is(err, statebackend.ErrDroppedState):
		return operator.ClassFatal
	case errors.As(err, &storage):
		return operator.ClassStorage
	}
	return c
}

// Stack returns the stack of a panic in err's tree from the function that panicked on, or nothing.
func Stack(err error) string {
	var p *PanicError
	if errors.As(err, &p) {
		return stack.Trim(p.Stack)
	}
	return ""
}
