package streamtest

import (
	"time"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/stream"
)

// Pipe is a part of a job, usually one operator, with its two ends in the hands of a test.
type Pipe[In, Out any] struct {
	*Job
	build  func(*stream.Stream[In]) *stream.Stream[Out]
	source *Source[In]
	sink   *Sink[Out]
}

// NewPipe starts the operators that build adds to a stream. Its sink is without guarantee, so that results show at once.
func NewPipe[In, Out any](build func(*stream.Stream[In]) *stream.Stream[Out], opts ...Option) (*Pipe[In, Out], error) {
	p := &Pipe[In, Out]{build: build, source: NewSource[In](1), sink: NewSink[Out]()}
	return p, p.start(opts...)
}

func (p *Pipe[In, Out]) start(opts ...Option) error {
	job, err := Start(func(env *stream.Env) error {
		in := stream.From(env, "in", p.source).WithWatermarks(nil, stream.Monotonous())
		stream.To(p.build(in), "out", p.sink).WithGuarantee(stream.None)
		return nil
	}, opts...)
	if err != nil {
		return err
	}
	none := operator.MinWatermark
	job.handWatermark = &none
	p.Job = job
	return nil
}

// Push handles records without timestamps.
func (p *Pipe[In, Out]) Push(values ...In) error {
	p.source.Push(0, values...)
	return p.Step()
}

// PushAt handles a record with a timestamp.
func (p *Pipe[In, Out]) PushAt(at time.Time, v In) error {
	p.source.PushAt(0, at, v)
	return p.Step()
}

// Watermark moves event time: no record of this time or before will follow. It is moved by nothing else.
func (p *Pipe[In, Out]) Watermark(at time.Time) error {
	wm := at.UnixMilli()
	p.handWatermark = &wm
	return p.Step()
}

// End ends the input.
func (p *Pipe[In, Out]) End() error {
	p.source.End()
	return p.Step()
}

// Take returns the results since the last call.
func (p *Pipe[In, Out]) Take() []Record[Out] {
	records := p.sink.Records()
	p.sink.Clear()
	return records
}

// Restore replaces the operators by new ones with the state of a checkpoint. Records pushed after it are handled again.
func (p *Pipe[In, Out]) Restore(cp *Checkpoint, opts ...Option) error {
	now := p.Now()
	if err := p.Close(); err != nil {
		return err
	}
	return p.start(append([]Option{At(now), From(cp)}, opts...)...)
}
