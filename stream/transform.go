package stream

import (
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/operator/transform"
)

// Map replaces each record by f of it.
func Map[T, U any](s *Stream[T], f func(T) U) *Stream[U] {
	return unary[U](s, "map", transform.Map(func(v T) (U, error) { return f(v), nil }))
}

// MapErr replaces each record by f of it; an error of f fails the task.
func MapErr[T, U any](s *Stream[T], f func(T) (U, error)) *Stream[U] {
	return unary[U](s, "map", transform.Map(f))
}

// FlatMap replaces each record by what f emits for it: nothing, one record or several. f returns the errors of emit, and its own
// fail the task.
func FlatMap[T, U any](s *Stream[T], f func(v T, emit func(U) error) error) *Stream[U] {
	return unary[U](s, "flatmap", transform.FlatMap(f))
}

// unary adds an operator that takes the records of s and makes records of type U.
func unary[U, T any](s *Stream[T], kind string, f operator.Factory) *Stream[U] {
	n := s.env.add(&node{
		op:     graph.Operator{Kind: kind},
		finish: func(*planner) (operator.Factory, graph.Errors) { return f, nil },
	})
	connect(s, n)
	return &Stream[U]{env: s.env, node: n}
}
