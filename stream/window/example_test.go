package window_test

import (
	"fmt"
	"time"
	_ "time/tzdata" // zones on machines without them

	"github.com/weir-stream/weir/stream/window"
)

func ExampleTumbling() {
	hourly := window.Tumbling(time.Hour).WithOffset(15 * time.Minute)
	at := time.Date(2026, 3, 8, 12, 10, 0, 0, time.UTC)
	fmt.Println(hourly.Pane(at.UnixMilli()))
	// Output: [2026-03-08T11:15:00Z, 2026-03-08T12:15:00Z)
}

func ExampleSliding() {
	w := window.Sliding(time.Hour, 20*time.Minute)
	at := time.Date(2026, 3, 8, 12, 10, 0, 0, time.UTC)
	pane := w.Pane(at.UnixMilli()).Start
	for s := w.First(pane); s.Start <= pane; s = w.Next(s) {
		fmt.Println(s)
	}
	// Output:
	// [2026-03-08T11:20:00Z, 2026-03-08T12:20:00Z)
	// [2026-03-08T11:40:00Z, 2026-03-08T12:40:00Z)
	// [2026-03-08T12:00:00Z, 2026-03-08T13:00:00Z)
}

func ExampleDaily() {
	newYork, err := time.LoadLocation("America/New_York")
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 3, 8, 12, 0, 0, 0, time.UTC) // clocks are set forward
	day := window.Daily(newYork).Pane(at.UnixMilli())
	fmt.Println(day, day.EndTime().Sub(day.StartTime()))
	fmt.Println(window.Daily(time.Local).Validate() != nil)
	// Output:
	// [2026-03-08T05:00:00Z, 2026-03-09T04:00:00Z) 23h0m0s
	// true
}
