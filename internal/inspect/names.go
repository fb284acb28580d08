package inspect

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
)

// ErrNoState tells that a filter names an operator or state that is not there.
var ErrNoState = errors.New("no such operator or state")

// noStateError names what there is instead.
type noStateError string

func (e noStateError) Error() string { return string(e) }
func (noStateError) Unwrap() error   { return ErrNoState }

// check returns an error unless the filter names what is there.
func (s *Snapshot) check(f Filter) error {
	operators, states := s.names()
	if f.Operator != "" && !slices.Contains(operators, f.Operator) {
		return noStateError(fmt.Sprintf("there is no operator %q; there are %s", f.Operator, listed(operators)))
	}
	if f.State == "" {
		return nil
	}
	var others []string
	for _, operator := range operators {
		if f.Operator != "" && operator != f.Operator {
			continue
		}
		if slices.Contains(states[operator], f.State) {
			return nil
		}
		for _, state := range states[operator] {
			if f.Operator == "" {
				state += " of " + operator
			}
			others = append(others, state)
		}
	}
	of := ""
	if f.Operator != "" {
		of = " in operator " + f.Operator
	}
	return noStateError(fmt.Sprintf("there is no state %q%s; there are %s", f.State, of, listed(others)))
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// names lists the operators and the states of each, in the order of the snapshot.
func (s *Snapshot) names() (operators []string, states map[string][]string) {
	states = make(map[string][]string)
	for _, task := range s.tasks {
		for _, op := range task.GetOperators() {
			if !slices.Contains(operators, op.GetUid()) {
				operators = append(operators, op.GetUid())
			}
			for _, state := range stateNames(op) {
				if !slices.Contains(states[op.GetUid()], state) {
					states[op.GetUid()] = append(states[op.GetUid()], state)
				}
			}
		}
	}
	return operators, states
}

func stateNames(op *snapshotv1.OperatorSnapshot) (names []string) {
	for _, list := range op.GetOperatorStates() {
		names = append(names, list.GetName())
	}
	for _, d := range op.GetKeyed().GetSchemas() {
		if d.GetName() != "" { // else it was dropped
			names = append(names, d.GetName())
		}
	}
	return names
}
