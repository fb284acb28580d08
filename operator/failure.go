package operator

import (
	"context"
	"errors"
	"net"
)

// Class says what a failure leads to. The values match weir.worker.v1.FailureClass.
type Class int

// The classes of failures. ClassOf decides about an error without one.
const (
	// ClassRestart: passing trouble; the job restarts under its policy.
	ClassRestart Class = iota + 1
	// ClassFatal: a restart cannot mend it; the job fails.
	ClassFatal
	// ClassDataLoss: output or input is proven lost; the job stops and an operator decides.
	ClassDataLoss
	// ClassStorage: trouble of checkpoint storage; the job restarts without using up its budget.
	ClassStorage
	// ClassUnavailable: a system that the job reads from or writes to does not answer; the job restarts without using up its budget, for
	// as long as that takes.
	ClassUnavailable
)

// Passing tells whether the same thing may succeed when it is tried again.
func (c Class) Passing() bool { return c == ClassRestart || c == ClassUnavailable }

// ErrRefused is wrapped by errors that tell that another system refuses us: login, rights, certificate. Repeating the request at once is
// pointless, so whoever repeats in place gives up; a later restart may find it mended.
var ErrRefused = errors.New("refused")

type classified struct {
	class Class
	err   error
}

func (c *classified) Error() string       { return c.err.Error() }
func (c *classified) Unwrap() error       { return c.err }
func (c *classified) FailureClass() Class { return c.class }

// Fatal marks err as one that a restart cannot mend, such as a setting that the broker refuses.
func Fatal(err error) error { return &classified{ClassFatal, err} }

// DataLoss marks err as proof that input or output is lost.
func DataLoss(err error) error { return &classified{ClassDataLoss, err} }

// Storage marks err as trouble of checkpoint storage.
func Storage(err error) error { return &classified{ClassStorage, err} }

// Unavailable marks err as the silence of a system outside of Weir, such as a broker or a database that is down or cut off.
func Unavailable(err error) error { return &classified{ClassUnavailable, err} }

// ClassOf returns the class of the outermost error in err's tree that has a FailureClass method. Without one it is ClassUnavailable when
// the tree holds an error of the network or a deadline that passed, and wraps no ErrRefused, which is an answer; else it is ClassRestart.
func ClassOf(err error) Class {
	var c interface{ FailureClass() Class }
	if errors.As(err, &c) {
		return c.FailureClass()
	}
	if unanswered(err) {
		return ClassUnavailable
	}
	return ClassRestart
}

// unanswered looks for what the standard library says when another machine does not answer.
func unanswered(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return !errors.Is(err, ErrRefused) &&
		(errors.As(err, &op) || errors.As(err, &dns) || errors.Is(err, context.DeadlineExceeded))
}
