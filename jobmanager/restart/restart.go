// Package restart decides what a failure of a job leads to. It is pure: the history, the time and the random number are values.
package restart

import (
	"fmt"
	"math"
	"slices"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/graph"
)

// Action is what happens to the job.
type Action uint8

// The actions.
const (
	// Restart: a new attempt begins after the delay.
	Restart Action = iota + 1
	// Fail: a restart cannot help, or the budget is used up.
	Fail
	// Stop: input or output is proven lost. The job must not go on by itself, since an operator has to decide about the loss.
	Stop
)

// Decision is the answer to one failure.
type Decision struct {
	Action Action
	// Delay before the new attempt begins; for Restart only.
	Delay time.Duration
	// Counted tells that the restart uses up the budget. It belongs into the history with the failure.
	Counted bool
	// Reason says why the job ends; empty for Restart.
	Reason string
}

// Former is a failure that led to a restart.
type Former struct {
	// At is when it happened, with a monotonic reading: budgets and delays must not depend on a wall clock that is set, nor on that of
	// another machine.
	At time.Time
	// Counted tells that it used up some of the budget; Host that it was the loss of a TaskManager.
	Counted, Host bool
}

// Remember adds a failure to a history and drops what Decide will not look at any more.
func Remember(p graph.RestartPolicy, history []Former, f Former) []Former {
	history = slices.DeleteFunc(history, func(e Former) bool { return f.At.Sub(e.At) > p.Window })
	return append(history, f)
}

// Decide answers a failure of the given class at now. The history holds the failures before this one that led to a restart, oldest
// first; those longer ago than the policy's window are not looked at. random is uniform in [0, 1).
//
// The first restart within the window has no delay. The n-th waits InitialDelay × Multiplier^(n−2), at most MaxDelay, of which the
// last half is scaled by random, so that jobs that failed together do not come back together. Failures of storage and of other systems
// that do not answer lengthen the delay and leave the budget alone.
//
// host tells that the failure is the loss of a TaskManager. Machines die and are replaced without the job's fault: such a restart neither
// uses up the budget nor lengthens later delays, and waits only when the one before it was less than InitialDelay ago.
func Decide(p graph.RestartPolicy, history []Former, class workerv1.FailureClass, host bool, now time.Time, random float64) Decision {
	switch class {
	case workerv1.FailureClass_FAILURE_CLASS_FATAL:
		return Decision{Action: Fail, Reason: "a restart cannot mend this failure"}
	case workerv1.FailureClass_FAILURE_CLASS_DATA_LOSS:
		return Decision{Action: Stop, Reason: "data is proven lost: an operator must decide how to go on"}
	}
	if p.MaxRestarts <= 0 {
		return Decision{Action: Fail, Reason: "the job's policy allows no restart"}
	}
	if host {
		d := Decision{Action: Restart}
		if n := len(history); n > 0 && now.Sub(history[n-1].At) < p.InitialDelay {
			d.Delay = delay(p, 0, random)
		}
		return d
	}
	former, counted := 0, 0
	for _, e := range history {
		if e.Host || now.Sub(e.At) > p.Window {
			continue
		}
		former++
		if e.Counted {
			counted++
		}
	}
	d := Decision{Action: Restart, Counted: !outside(class)}
	if d.Counted && counted >= p.MaxRestarts {
		return Decision{Action: Fail, Counted: true, Reason: fmt.Sprintf(
			"restarted %d times within %v, which is all that the job's policy allows", counted, p.Window)}
	}
	if former > 0 {
		d.Delay = delay(p, former-1, random)
	}
	return d
}

// outside tells of classes that say nothing about the job: what fails is a system that it uses.
func outside(class workerv1.FailureClass) bool {
	return class == workerv1.FailureClass_FAILURE_CLASS_STORAGE || class == workerv1.FailureClass_FAILURE_CLASS_UNAVAILABLE
}

// NeverWorked tells whether a failure of that class before the job was ever prepared most likely comes of how the job was written or
// submitted, such as a wrong address, so that whoever submitted it should be told instead of waiting.
func NeverWorked(class workerv1.FailureClass) bool {
	return class == workerv1.FailureClass_FAILURE_CLASS_RESTART || class == workerv1.FailureClass_FAILURE_CLASS_UNAVAILABLE
}

// delay returns the jittered delay after the given number of multiplications.
func delay(p graph.RestartPolicy, multiplications int, random float64) time.Duration {
	longest := float64(max(p.MaxDelay, 0))
	d := float64(max(p.InitialDelay, 0)) * math.Pow(max(p.Multiplier, 1), float64(multiplications))
	// Written so that an overflow to infinity, or infinity times zero, is bounded too.
	if !(d <= longest) {
		d = longest
	}
	random = min(max(random, 0), 1)
	return time.Duration(d/2 + d/2*random)
}

// PolicyOf returns a job's policy from its compiled graph.
func PolicyOf(g *jobv1.Graph) graph.RestartPolicy {
	p := g.GetRestarts()
	return graph.RestartPolicy{
		InitialDelay: milliseconds(p.GetInitialDelayMs()),
		MaxDelay:     milliseconds(p.GetMaxDelayMs()),
		Multiplier:   p.GetMultiplier(),
		MaxRestarts:  int(p.GetMaxRestarts()),
		Window:       milliseconds(p.GetWindowMs()),
	}
}

// milliseconds saturates where the product would overflow.
func milliseconds(ms uint64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
}
