package graph

import (
	"fmt"
	"strings"

	"github.com/weir-stream/weir/internal/keygroup"
)

// validate returns everything wrong with a normalized graph, operators and edges in the order they were declared.
func (l *Logical) validate() Errors {
	var errs Errors
	report := func(kind error, operator, format string, args ...any) {
		errs = append(errs, &Error{Operator: operator, Detail: fmt.Sprintf(format, args...), Err: kind})
	}
	if l.Name == "" {
		report(ErrName, "", "the job has no name; give it one with env.SetName or weir submit --name")
	}
	maxInBounds := l.MaxParallelism >= 1 && l.MaxParallelism <= keygroup.MaxMaxParallelism
	if !maxInBounds {
		report(ErrParallelism, "", "the maximum parallelism %d is not between 1 and %d", l.MaxParallelism, keygroup.MaxMaxParallelism)
	}
	l.validateCheckpoints(report)
	l.validateOperators(report, maxInBounds)
	l.validateEdges(report)
	if cycle := l.cycle(); len(cycle) > 0 {
		report(ErrCycle, "", "operators %s form a cycle; a job graph must not lead back to itself", strings.Join(cycle, ", "))
	}
	return errs
}

type reporter func(kind error, operator, format string, args ...any)

func (l *Logical) validateCheckpoints(report reporter) {
	c := l.Checkpoints
	if !c.Enabled {
		return
	}
	if c.Interval <= 0 {
		report(ErrCheckpoints, "", "the checkpoint interval %s is not positive; switch checkpoints off instead", c.Interval)
	}
	if c.Timeout <= 0 {
		report(ErrCheckpoints, "", "the checkpoint timeout %s is not positive", c.Timeout)
	}
	if c.MinPause < 0 || c.ToleratedFailures < 0 || c.RecoveryBudget < 0 {
		report(ErrCheckpoints, "", "minimum pause, tolerated failures and recovery budget of checkpoints must not be negative")
	}
	if c.Retained < 1 {
		report(ErrCheckpoints, "", "at least one checkpoint must be retained, not %d", c.Retained)
	}
}

func (l *Logical) validateOperators(report reporter, maxInBounds bool) {
	seen := make(map[string]string)
	resources := make(map[string]string)
	inputs := make(map[string]int)
	for _, e := range l.Edges {
		inputs[e.To]++
	}
	var source, sink bool
	for _, o := range l.Operators {
		source = source || o.Source
		sink = sink || o.Sink
		switch other, dup := seen[o.UID]; {
		case o.UID == "":
			report(ErrDuplicateUID, o.label(), "it has no uid")
		case dup:
			report(ErrDuplicateUID, o.label(), "its uid %q is also that of operator %q; give one of them another name or uid", o.UID, other)
		default:
			seen[o.UID] = o.label()
		}
		switch {
		case o.Parallelism < 1:
			report(ErrParallelism, o.label(), "parallelism %d is not positive", o.Parallelism)
		case maxInBounds && o.Parallelism > l.MaxParallelism:
			report(ErrParallelism, o.label(), "parallelism %d is above the job's maximum parallelism %d; lower it, or raise the maximum before the job's first start",
				o.Parallelism, l.MaxParallelism)
		}
		if o.Stateful && !o.NamedByUser {
			report(ErrUnnamedState, o.label(), "it keeps state, which a changed job finds again by name, and its name is ambiguous; give it one with Named")
		}
		if o.Resource != "" {
			if other, dup := resources[o.Resource]; dup {
				report(ErrSharedResource, o.label(), "it uses %q, as operator %q does; two sinks must not share it", o.Resource, other)
			}
			resources[o.Resource] = o.label()
		}
		if o.Guarantee == ExactlyOnce && !l.Checkpoints.Enabled {
			report(ErrNoCheckpoints, o.label(), "exactly-once needs checkpoints, and they are off; switch them on or choose at-least-once or none for this sink")
		}
		switch n := inputs[o.UID]; {
		case o.Source && n > 0:
			report(ErrEdge, o.label(), "a source cannot have an input")
		case !o.Source && n == 0:
			report(ErrEdge, o.label(), "it has no input")
		}
	}
	if !source {
		report(ErrNoSource, "", "the job has no source; begin with stream.From")
	}
	if !sink {
		report(ErrNoSink, "", "the job has no sink; end it with stream.To")
	}
}

func (l *Logical) validateEdges(report reporter) {
	ops := make(map[string]Operator, len(l.Operators))
	for _, o := range l.Operators {
		ops[o.UID] = o
	}
	ids := make(map[string]bool)
	for _, e := range l.Edges {
		from, okFrom := ops[e.From]
		to, okTo := ops[e.To]
		if e.ID == "" || ids[e.ID] {
			report(ErrEdge, from.label(), "the id %q of an edge is empty or used twice", e.ID)
		}
		ids[e.ID] = true
		if !okFrom || !okTo {
			report(ErrEdge, "", "edge %q leads from %q to %q, of which one does not exist", e.ID, e.From, e.To)
			continue
		}
		if from.Sink {
			report(ErrEdge, from.label(), "a sink cannot have an output")
		}
		if e.Partitioning == Forward && from.Parallelism != to.Parallelism {
			report(ErrEdge, to.label(), "it takes its records forward from operator %q, whose parallelism is %d and not %d", from.label(), from.Parallelism, to.Parallelism)
		}
		if e.Partitioning < Forward || e.Partitioning > Broadcast {
			report(ErrEdge, to.label(), "unknown partitioning %d of edge %q", e.Partitioning, e.ID)
		}
	}
}

// order returns the indexes of the operators in topological order, as near to the order of declaration as possible; operators on or
// behind a cycle are left out.
func (l *Logical) order() []int {
	index := make(map[string]int, len(l.Operators))
	for i, o := range l.Operators {
		if _, dup := index[o.UID]; !dup {
			index[o.UID] = i
		}
	}
	indegree := make([]int, len(l.Operators))
	for _, e := range l.Edges {
		if to, ok := index[e.To]; ok {
			if _, ok := index[e.From]; ok {
				indegree[to]++
			}
		}
	}
	done := make([]bool, len(l.Operators))
	var order []int
	for progress := true; progress; {
		progress = false
		for i, o := range l.Operators {
			if done[i] || indegree[i] > 0 {
				continue
			}
			done[i], progress = true, true
			order = append(order, i)
			if index[o.UID] != i {
				continue
			}
			for _, e := range l.Edges {
				if e.From != o.UID {
					continue
				}
				if to, ok := index[e.To]; ok {
					indegree[to]--
				}
			}
		}
	}
	return order
}

// cycle returns the names of the operators that lie on or behind a cycle; empty without one.
func (l *Logical) cycle() []string {
	order := l.order()
	ordered := make([]bool, len(l.Operators))
	for _, i := range order {
		ordered[i] = true
	}
	var names []string
	for i, o := range l.Operators {
		if !ordered[i] {
			names = append(names, fmt.Sprintf("%q", o.label()))
		}
	}
	return names
}
