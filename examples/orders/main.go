// Command orders adds up what each user spends per minute of event time, from orders that arrive out of order:
//
//	go run ./examples/orders
//
// The orders are made up, a bounded number of them, so the program ends by itself.
package main

import (
	"fmt"
	"time"

	printsink "github.com/weir-stream/weir/sinks/print"
	"github.com/weir-stream/weir/sources/generator"
	"github.com/weir-stream/weir/stream"
	"github.com/weir-stream/weir/stream/window"
)

// order is what a user bought.
type order struct {
	User  string
	Cents int64
	At    time.Time
}

// total is what a user spent in a minute.
type total struct {
	User   string
	Minute time.Time
	Cents  int64
	Orders int
}

// String implements fmt.Stringer.
func (t total) String() string {
	return fmt.Sprintf("%s %-4s %4d.%02d in %d orders", t.Minute.Format(time.DateTime), t.User, t.Cents/100, t.Cents%100, t.Orders)
}

func main() { stream.Main(job) }

func job(env *stream.Env) error {
	env.SetName("orders")

	orders := stream.From(env, "orders", generator.New(makeOrder).Count(2000)).
		WithWatermarks(func(o order) time.Time { return o.At }, stream.BoundedOutOfOrder(5*time.Second))
	byUser := stream.KeyBy(orders, func(o order) string { return o.User })
	totals := stream.Aggregate(stream.Window(byUser, window.Tumbling(time.Minute)), sumCents{}).Named("totals")
	stream.To(totals, "print", printsink.New[total]()).WithGuarantee(stream.AtLeastOnce)
	return nil
}

var (
	users = []string{"ann", "bob", "eve"}
	start = time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
)

// makeOrder makes five orders a second, each up to two seconds out of order.
func makeOrder(n uint64) order {
	at := start.Add(time.Duration(n)*200*time.Millisecond - time.Duration(n*7919%2000)*time.Millisecond)
	return order{User: users[n*31%uint64(len(users))], Cents: int64(100 + n*271%4900), At: at}
}

// spent is the accumulator of sumCents.
type spent struct {
	Cents  int64
	Orders int
}

type sumCents struct{}

// Add implements stream.Aggregator.
func (sumCents) Add(s *spent, o order) {
	s.Cents += o.Cents
	s.Orders++
}

// Merge implements stream.Aggregator.
func (sumCents) Merge(into *spent, from spent) {
	into.Cents += from.Cents
	into.Orders += from.Orders
}

// Result implements stream.Aggregator.
func (sumCents) Result(user string, w window.Span, s spent) total {
	return total{User: user, Minute: w.StartTime(), Cents: s.Cents, Orders: s.Orders}
}
