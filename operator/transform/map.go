package transform

import "github.com/weir-stream/weir/operator"

// Map returns the operator that replaces each record by f of it. An error of f fails the task.
func Map[T, U any](f func(T) (U, error)) operator.Factory {
	return operator.FactoryFunc(func(outs []any) (operator.Instance, error) {
		out, err := operator.Fanout[U](outs)
		return &mapper[T, U]{f: f, out: out}, err
	})
}

type mapper[T, U any] struct {
	operator.Base
	f   func(T) (U, error)
	out operator.Collector[U]
}

// Input implements operator.Instance.
func (m *mapper[T, U]) Input() any { return operator.Collector[T](m) }

// Collect implements operator.Collector.
func (m *mapper[T, U]) Collect(v T, timestamp int64) error {
	u, err := m.f(v)
	if err != nil {
		return err
	}
	return m.out.Collect(u, timestamp)
}

// Filter returns the operator that keeps the records for which keep is true. An error of keep fails the task.
func Filter[T any](keep func(T) (bool, error)) operator.Factory {
	return operator.FactoryFunc(func(outs []any) (operator.Instance, error) {
		out, err := operator.Fanout[T](outs)
		return &filter[T]{keep: keep, out: out}, err
	})
}

type filter[T any] struct {
	operator.Base
	keep func(T) (bool, error)
	out  operator.Collector[T]
}

// Input implements operator.Instance.
func (f *filter[T]) Input() any { return operator.Collector[T](f) }

// Collect implements operator.Collector.
func (f *filter[T]) Collect(v T, timestamp int64) error {
	if ok, err := f.keep(v); err != nil || !ok {
		return err
	}
	return f.out.Collect(v, timestamp)
}

// FlatMap returns the operator that replaces each record by what f emits for it, with the record's timestamp. An error of f or
// emit fails the task.
func FlatMap[T, U any](f func(v T, emit func(U) error) error) operator.Factory {
	return operator.FactoryFunc(func(outs []any) (operator.Instance, error) {
		out, err := operator.Fanout[U](outs)
		m := &flatMapper[T, U]{f: f}
		m.emit = func(u U) error { return out.Collect(u, m.timestamp) }
		return m, err
	})
}

type flatMapper[T, U any] struct {
	operator.Base
	f         func(v T, emit func(U) error) error
	emit      func(U) error
	timestamp int64 // of the record being handled
}

// Input implements operator.Instance.
func (m *flatMapper[T, U]) Input() any { return operator.Collector[T](m) }

// Collect implements operator.Collector.
func (m *flatMapper[T, U]) Collect(v T, timestamp int64) error {
	m.timestamp = timestamp
	return m.f(v, m.emit)
}

// Union returns the operator that passes the records of all its inputs on.
func Union[T any]() operator.Factory {
	return operator.FactoryFunc(func(outs []any) (operator.Instance, error) {
		out, err := operator.Fanout[T](outs)
		return &union[T]{out: out}, err
	})
}

type union[T any] struct {
	operator.Base
	out operator.Collector[T]
}

// Input implements operator.Instance.
func (u *union[T]) Input() any { return u.out }
