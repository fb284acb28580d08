package orders

import (
	"encoding/json"
	"fmt"
	"time"
)

// The shape of the input: everything about order n follows from n alone, so that the right answer can be computed again.
const (
	// Partitions is the number of partitions of both topics.
	Partitions = 4
	users      = 500
	// jitter is how far an order's event time may lie behind that of an earlier one, in milliseconds.
	jitter = 400
	// OutOfOrder is the bound for the watermarks of a job that reads orders; it is above the jitter, so no order is late.
	OutOfOrder = 500 * time.Millisecond
	// Window is the size of the tumbling windows that are expected.
	Window = time.Second
	// flushUser marks the orders that push the watermark past the last window; they are in no expected window.
	flushUser = "~flush"
)

// Order is one record of the input topic.
type Order struct {
	Seq   uint64 `json:"seq"`
	User  string `json:"user"`
	Cents int64  `json:"cents"`
	// At is the event time in milliseconds since the Unix epoch.
	At int64 `json:"at"`
}

// Total is one record of the output topic: what a user ordered within one window.
type Total struct {
	User string `json:"user"`
	// Start is the first millisecond of the window.
	Start int64 `json:"start"`
	Count int64 `json:"count"`
	Cents int64 `json:"cents"`
}

// Stream describes the input of one run.
type Stream struct {
	Orders uint64
	// Base is the event time of order 0, in milliseconds since the Unix epoch.
	Base int64
	// Rate is the number of orders per second, of event time and of the wall clock while producing.
	Rate uint64
}

// mix spreads the bits of n (the finaliser of SplitMix64).
func mix(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// Order returns order n.
func (s Stream) Order(n uint64) Order {
	r := mix(n)
	return Order{
		Seq:   n,
		User:  fmt.Sprintf("user-%03d", r%users),
		Cents: int64(r >> 32 % 10_000),
		At:    s.Base + int64(n*1000/s.Rate) - int64(r>>16%jitter),
	}
}

// Flush returns an order that moves the watermark of its partition past every window.
func (s Stream) Flush() Order {
	return Order{Seq: s.Orders, User: flushUser, At: s.Base + int64(s.Orders*1000/s.Rate) + 10*Window.Milliseconds()}
}

// Partition returns the input partition of order n.
func (s Stream) Partition(n uint64) int32 { return int32(n % Partitions) }

// Pane identifies one result.
type Pane struct {
	User  string
	Start int64
}

// Expected computes the right answer.
func (s Stream) Expected() map[Pane]Total {
	out := make(map[Pane]Total)
	for n := range s.Orders {
		o := s.Order(n)
		start := o.At - o.At%Window.Milliseconds()
		k := Pane{o.User, start}
		t := out[k]
		out[k] = Total{User: o.User, Start: start, Count: t.Count + 1, Cents: t.Cents + o.Cents}
	}
	return out
}

// DecodeOrder decodes the value of an input record.
func DecodeOrder(value []byte) (Order, error) {
	var o Order
	if err := json.Unmarshal(value, &o); err != nil {
		return Order{}, fmt.Errorf("decode order: %w", err)
	}
	return o, nil
}
