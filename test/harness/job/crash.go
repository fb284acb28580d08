package main

import (
	"encoding/binary"

	kafkasink "github.com/weir-stream/weir/sinks/kafka"
	"github.com/weir-stream/weir/stream"
	"github.com/weir-stream/weir/stream/window"
)

// crash is the job of the crash table: the number at the beginning of each record goes to one topic as it came, and what the numbers of
// each key and window add up to to another. A window keeps the last record, so that each checkpoint has state to store.
func (o options) crash(env *stream.Env) {
	in := o.from(env).WithWatermarks(messageTime, stream.Monotonous().WithoutIdleness())
	numbers := stream.Map(in, func(m message) message { return message{Key: m.Key, Value: m.Value[:8], At: m.At} }).Named("number")
	stream.To(numbers, "copies", o.to())
	sums := stream.Aggregate(stream.Window(stream.KeyBy(in, keyOf), window.Tumbling(o.window)), addition{}).Named("sums")
	stream.To(sums, "totals", kafkasink.New(o.brokers, o.out2, func(s message) (kafkasink.Record, error) {
		return kafkasink.Record{Key: s.Key, Value: s.Value}, nil
	}, o.sink()...))
}

type sums struct {
	Count, Sum uint64
	Last       []byte
}

type addition struct{}

// Add implements stream.Aggregator.
func (addition) Add(acc *sums, m message) {
	acc.Count++
	acc.Sum += binary.BigEndian.Uint64(m.Value)
	acc.Last = m.Value
}

// Merge implements stream.Aggregator.
func (addition) Merge(into *sums, from sums) {
	into.Count += from.Count
	into.Sum += from.Sum
	into.Last = from.Last
}

// Result implements stream.Aggregator: the window's start, the number of records and their sum.
func (addition) Result(key string, w window.Span, acc sums) message {
	value := binary.BigEndian.AppendUint64(nil, uint64(w.Start))
	value = binary.BigEndian.AppendUint64(value, acc.Count)
	return message{Key: []byte(key), Value: binary.BigEndian.AppendUint64(value, acc.Sum)}
}
