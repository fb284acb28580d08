package sequences

import (
	"fmt"
	"strings"

	kafkasink "github.com/weir-stream/weir/sinks/kafka"
	kafkasource "github.com/weir-stream/weir/sources/kafka"
	"github.com/weir-stream/weir/stream"
)

// Describe describes a job of a shape. in names the input topics, separated by commas.
func Describe(env *stream.Env, shape Shape, brokers, in, out string, sinkOptions ...kafkasink.Option) error {
	topics := strings.Split(in, ",")
	if len(topics) != shape.Inputs() {
		return fmt.Errorf("shape %s takes %d input topics, not %q", shape, shape.Inputs(), in)
	}
	var inputs []*stream.Stream[Record]
	for i, topic := range topics {
		inputs = append(inputs, stream.From(env, fmt.Sprintf("in-%d", i), kafkasource.New(brokers, topic, func(r kafkasource.Record) (Record, error) {
			return DecodeRecord(r.Value)
		})))
	}
	var results *stream.Stream[Result]
	switch shape {
	case PassThrough:
		kept := inputs[0].Filter(func(r Record) bool { return shape.keeps(r.Seq) }).Named("some")
		results = stream.Map(kept, func(r Record) Result { return Result{Record: r} }).Named("pass")
	case Counted:
		results = count(inputs[0])
	case Merged:
		results = count(inputs[0].Union(inputs[1:]...).Named("both"))
	default:
		return fmt.Errorf("unknown shape %q", shape)
	}
	stream.To(results, "out", kafkasink.New(brokers, out, func(r Result) (kafkasink.Record, error) {
		return kafkasink.Record{Key: []byte(r.Key), Value: r.Encode()}, nil
	}, sinkOptions...))
	return nil
}

// count counts in two kinds of state.
func count(in *stream.Stream[Record]) *stream.Stream[Result] {
	byKey := stream.KeyBy(in, func(r Record) string { return r.Key })
	return stream.Process(byKey, func(s *stream.States[string]) stream.Handler[string, Record, Result] {
		all := stream.ValueOf[uint64](s, "all")
		own := stream.MapOf[int64, uint64](s, "own")
		return stream.Handler[string, Record, Result]{
			Record: func(ctx *stream.Context[string, Result], r Record) error {
				n, _, err := all.Get()
				if err != nil {
					return err
				}
				m, _, err := own.Get(int64(r.Input))
				if err != nil {
					return err
				}
				if err := all.Put(n + 1); err != nil {
					return err
				}
				if err := own.Put(int64(r.Input), m+1); err != nil {
					return err
				}
				return ctx.Emit(Result{Record: r, Own: m + 1, Count: n + 1})
			},
		}
	}).Named("count")
}
