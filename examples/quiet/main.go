// Command quiet reports devices that have not been heard of for a while, with state and timers per device:
//
//	go run ./examples/quiet
package main

import (
	"fmt"
	"time"

	printsink "github.com/weir-stream/weir/sinks/print"
	"github.com/weir-stream/weir/sources/generator"
	"github.com/weir-stream/weir/stream"
)

// patience is how long a device may be silent.
const patience = 10 * time.Second

// signal is a sign of life of a device.
type signal struct {
	Device string
	At     time.Time
}

func main() { stream.Main(job) }

func job(env *stream.Env) error {
	env.SetName("quiet")

	signals := stream.From(env, "signals", generator.New(makeSignal).Count(600)).
		WithWatermarks(func(s signal) time.Time { return s.At }, stream.Monotonous())
	byDevice := stream.KeyBy(signals, func(s signal) string { return s.Device })
	reports := stream.Process(byDevice, watch).Named("watch")
	stream.To(reports, "print", printsink.New[string]()).WithGuarantee(stream.AtLeastOnce)
	return nil
}

// makeSignal makes a signal a second. Device 3 falls silent for a minute in every four.
func makeSignal(n uint64) signal {
	device := n % 4
	if device == 3 && n/60%4 == 1 {
		device = 0
	}
	return signal{Device: fmt.Sprintf("device-%d", device), At: time.Date(2026, 1, 1, 9, 0, int(n), 0, time.UTC)}
}

// watch keeps the time of each device's last signal, and a timer for when it would be missed.
func watch(s *stream.States[string]) stream.Handler[string, signal, string] {
	last := stream.ValueOf[time.Time](s, "last signal")
	return stream.Handler[string, signal, string]{
		Record: func(c *stream.Context[string, string], sig signal) error {
			before, ok, err := last.Get()
			if err != nil {
				return err
			}
			if ok {
				if err := c.DeleteEventTimer(before.Add(patience)); err != nil {
					return err
				}
			}
			if err := last.Put(sig.At); err != nil {
				return err
			}
			return c.SetEventTimer(sig.At.Add(patience))
		},
		EventTimer: func(c *stream.Context[string, string], at time.Time) error {
			return c.Emit(fmt.Sprintf("%s %s has been silent for %s", at.Format(time.TimeOnly), c.Key(), patience))
		},
	}
}
