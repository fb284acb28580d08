package demo

import (
	"encoding/json"
	"fmt"
	"time"
)

// The shape of the demo's input: everything about order n follows from n alone, so that the right answer can be computed again.
const (
	partitions = 4
	users      = 500
	// jitter is how far an order's event time may lie behind that of an earlier one, in milliseconds.
	jitter = 400
	// lateness is the out-of-order bound of the job's watermarks; it is above jitter, so no order is late.
	lateness = 500 * time.Millisecond
	window   = time.Second
	// flushUser marks the orders that push the watermark past the last window; they are in no expected window.
	flushUser = "~flush"
)

// Order is one record of the demo's input topic.
type Order struct {
	Seq   uint64 `json:"seq"`
	User  string `json:"user"`
	Cents int64  `json:"cents"`
	// At is the event time in milliseconds since the Unix epoch.
	At int64 `json:"at"`
}

// Total is one record of the demo's output topic: what a user ordered within one window.
type Total struct {
	User string `json:"user"`
	// Start is the first millisecond of the window.
	Start int64 `json:"start"`
	Count int64 `json:"count"`
	Cents int64 `json:"cents"`
}

// stream describes the input of one run.
type stream struct {
	orders uint64
	// base is the event time of order 0, in milliseconds since the Unix epoch.
	base int64
	// rate is the number of orders per second of event time.
	rate uint64
}

// mix spreads the bits of n (the finaliser of SplitMix64).
func mix(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// order returns order n.
func (s stream) order(n uint64) Order {
	r := mix(n)
	return Order{
		Seq:   n,
		User:  fmt.Sprintf("user-%03d", r%users),
		Cents: int64(r >> 32 % 10_000),
		At:    s.base + int64(n*1000/s.rate) - int64(r>>16%jitter),
	}
}

// flush returns an order that moves the watermark of its partition past every window.
func (s stream) flush() Order {
	return Order{Seq: s.orders, User: flushUser, At: s.base + int64(s.orders*1000/s.rate) + 10*window.Milliseconds()}
}

// partition returns the input partition of order n.
func (s stream) partition(n uint64) int32 { return int32(n % partitions) }

// pane identifies one result.
type pane struct {
	user  string
	start int64
}

// expected computes the right answer.
func (s stream) expected() map[pane]Total {
	out := make(map[pane]Total)
	for n := range s.orders {
		o := s.order(n)
		start := o.At - o.At%window.Milliseconds()
		k := pane{o.User, start}
		t := out[k]
		out[k] = Total{User: o.User, Start: start, Count: t.Count + 1, Cents: t.Cents + o.Cents}
	}
	return out
}

func decodeOrder(value []byte) (Order, error) {
	var o Order
	if err := json.Unmarshal(value, &o); err != nil {
		return Order{}, fmt.Errorf("decode order: %w", err)
	}
	return o, nil
}
