package operator

import (
	"context"
	"fmt"
)

// Base is the embeddable part of an instance that keeps no state and passes watermarks on.
type Base struct{}

// Open does nothing.
func (Base) Open(context.Context, *Runtime) error { return nil }

// Watermark passes wm on.
func (Base) Watermark(wm int64) (int64, error) { return wm, nil }

// Snapshot has no state to keep.
func (Base) Snapshot(context.Context, Barrier) (Finish, error) { return nil, nil }

// EndInput does nothing.
func (Base) EndInput() error { return nil }

// Close releases nothing.
func (Base) Close() error { return nil }

// FactoryFunc makes a function a [Factory].
type FactoryFunc func(outs []any) (Instance, error)

// New calls f.
func (f FactoryFunc) New(outs []any) (Instance, error) { return f(outs) }

// Fanout turns the outputs given to [Factory.New] into one collector: the output itself when there is one, none of them into one
// that drops its records.
func Fanout[T any](outs []any) (Collector[T], error) {
	collectors := make([]Collector[T], len(outs))
	for i, out := range outs {
		c, ok := out.(Collector[T])
		if !ok {
			return nil, fmt.Errorf("output %d takes %T and not records of type %T", i, out, *new(T))
		}
		collectors[i] = c
	}
	if len(collectors) == 1 {
		return collectors[0], nil
	}
	return fanout[T](collectors), nil
}

// fanout passes each record to all of its collectors.
type fanout[T any] []Collector[T]

// Collect implements Collector.
func (f fanout[T]) Collect(v T, timestamp int64) error {
	for _, c := range f {
		if err := c.Collect(v, timestamp); err != nil {
			return err
		}
	}
	return nil
}
