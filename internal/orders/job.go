package orders

import (
	"encoding/json"
	"strings"
	"time"

	kafkasink "github.com/weir-stream/weir/sinks/kafka"
	kafkasource "github.com/weir-stream/weir/sources/kafka"
	"github.com/weir-stream/weir/stream"
	"github.com/weir-stream/weir/stream/window"
)

// Describe describes the job that turns orders into totals: what every user ordered within each window.
func Describe(env *stream.Env, t Topics, sinkOptions ...kafkasink.Option) {
	brokers := strings.Join(t.Brokers, ",")
	in := stream.From(env, "orders", kafkasource.New(brokers, t.Orders, func(r kafkasource.Record) (Order, error) {
		return DecodeOrder(r.Value)
	}))
	in = in.WithWatermarks(func(o Order) time.Time { return time.UnixMilli(o.At) }, stream.BoundedOutOfOrder(OutOfOrder))
	byUser := stream.KeyBy(in, func(o Order) string { return o.User })
	totals := stream.Aggregate(stream.Window(byUser, window.Tumbling(Window)), sum{}).Named("totals")
	stream.To(totals, "out", kafkasink.New(brokers, t.Totals, encodeTotal, sinkOptions...))
}

// account is what sum gathers of one user and window.
type account struct {
	Count, Cents int64
}

// sum adds up orders.
type sum struct{}

// Add implements stream.Aggregator.
func (sum) Add(acc *account, o Order) {
	acc.Count++
	acc.Cents += o.Cents
}

// Merge implements stream.Aggregator.
func (sum) Merge(into *account, from account) {
	into.Count += from.Count
	into.Cents += from.Cents
}

// Result implements stream.Aggregator.
func (sum) Result(user string, w window.Span, acc account) Total {
	return Total{User: user, Start: w.Start, Count: acc.Count, Cents: acc.Cents}
}

func encodeTotal(t Total) (kafkasink.Record, error) {
	value, err := json.Marshal(t)
	return kafkasink.Record{Key: []byte(t.User), Value: value}, err
}
