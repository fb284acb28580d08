package operator

import "errors"

// Class says what a failure leads to. The values match weir.worker.v1.FailureClass.
type Class int

// The classes of failures, mildest first. An error without a class is Restart.
const (
	// ClassRestart: passing trouble; the job restarts under its policy.
	ClassRestart Class = iota + 1
	// ClassFatal: a restart cannot mend it; the job fails.
	ClassFatal
	// ClassDataLoss: output or input is proven lost; the job stops and an operator decides.
	ClassDataLoss
	// ClassStorage: trouble of checkpoint storage; the job restarts without using up its budget.
	ClassStorage
)

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

// ClassOf returns the class of the outermost error in err's tree that has a FailureClass method; ClassRestart without one.
func ClassOf(err error) Class {
	var c interface{ FailureClass() Class }
	if errors.As(err, &c) {
		return c.FailureClass()
	}
	return ClassRestart
}
