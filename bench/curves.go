package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/weir-stream/weir/bench/internal/curve"
	"github.com/weir-stream/weir/bench/internal/work"
)

// growthCurve is how throughput changes with one thing.
type growthCurve struct {
	name    string
	points  []point
	picture curve.Picture
}

// upTo returns the values that are measured: the quick form leaves large ones out.
func (b *bench) upTo(quick int, values ...int) []int {
	if b.quick {
		values = slices.DeleteFunc(values, func(v int) bool { return v > quick })
	}
	return values
}

// curves lists all curves. Their sizes are such that each run takes some seconds on two cores.
func (b *bench) curves() []growthCurve {
	return []growthCurve{
		b.byTaskManagers(), b.byParallelism(), b.byKeys(), b.byRecordSize(), b.byPartitions(), b.byJobs(), b.byOperators(),
	}
}

const (
	counting = "count per key"
	copying  = "pass-through"
)

// byTaskManagers splits the same eight subtasks over more and more processes, between which ever more records travel.
func (b *bench) byTaskManagers() growthCurve {
	c := growthCurve{name: "taskmanagers", picture: curve.Picture{
		Title: "The same 8 subtasks in more and more TaskManagers", X: "TaskManagers", LogX: true, Panels: curve.Throughput,
	}}
	for _, n := range b.upTo(4, 1, 2, 4, 8) {
		c.points = append(c.points, point{
			series: counting, x: float64(n), job: []string{"--workload", "exchange"}, every: work.Every,
			in:           growthInput{partitions: 8, records: b.records, size: work.Size, keys: 100_000},
			taskManagers: n, slots: 8, parallelism: 8, jobs: 1,
		})
	}
	return c
}

func (b *bench) byParallelism() growthCurve {
	c := growthCurve{name: "parallelism", picture: curve.Picture{
		Title: "Parallelism of a job in one TaskManager", X: "parallelism", LogX: true, Panels: curve.Throughput,
	}}
	for _, n := range b.upTo(16, 1, 2, 4, 8, 16, 32) {
		c.points = append(c.points, point{
			series: counting, x: float64(n), job: []string{"--workload", "exchange"}, every: work.Every,
			in:           growthInput{partitions: 32, records: b.records, size: work.Size, keys: 100_000},
			taskManagers: 1, slots: n, parallelism: n, jobs: 1,
		})
	}
	return c
}

// byKeys has each key once first, so that the state has its size when measuring begins.
func (b *bench) byKeys() growthCurve {
	c := growthCurve{name: "keys", picture: curve.Picture{
		Title: "Keys, each with a count in the state", X: "keys", LogX: true, Panels: append(slices.Clone(curve.Throughput), curve.Memory),
	}}
	for _, n := range b.upTo(1_000_000, 10_000, 100_000, 1_000_000, 10_000_000) {
		c.points = append(c.points, point{
			series: "running count", x: float64(n), job: []string{"--workload", "running-count"}, every: 1, loaded: true, interval: time.Second,
			in:           growthInput{partitions: 2, records: n + b.records, size: work.Size, keys: n},
			taskManagers: 1, slots: 2, parallelism: 2, jobs: 1,
		})
	}
	return c
}

// mostInput bounds the bytes of an input: large records are fewer.
const mostInput = 1 << 30

func (b *bench) byRecordSize() growthCurve {
	c := growthCurve{name: "record-size", picture: curve.Picture{
		Title: "Size of a record", X: "bytes of a record", LogX: true, Panels: append(slices.Clone(curve.Throughput), curve.Bytes),
	}}
	for _, n := range b.upTo(10_000, 10, 100, 1000, 10_000, 100_000) {
		c.points = append(c.points, point{
			series: copying, x: float64(n), job: []string{"--workload", "copy"},
			in:           growthInput{partitions: 2, records: min(b.records, mostInput/n), size: n},
			taskManagers: 1, slots: 2, parallelism: 2, jobs: 1,
		})
	}
	return c
}

func (b *bench) byPartitions() growthCurve {
	c := growthCurve{name: "partitions", picture: curve.Picture{
		Title: "Partitions of the input and of the output, two subtasks", X: "partitions", LogX: true, Panels: curve.Throughput,
	}}
	for _, n := range b.upTo(64, 1, 4, 16, 64, 256) {
		c.points = append(c.points, point{
			series: copying, x: float64(n), job: []string{"--workload", "copy"},
			in:           growthInput{partitions: n, records: b.records, size: work.Size},
			taskManagers: 1, slots: 2, parallelism: 2, jobs: 1,
		})
	}
	return c
}

// byJobs has the same number of records read in all, by more and more jobs. They run before the records are written, so that all of them
// do at once.
func (b *bench) byJobs() growthCurve {
	c := growthCurve{name: "jobs", picture: curve.Picture{
		Title: "Jobs of a cluster that share the load", X: "jobs", LogX: true, Panels: append(slices.Clone(curve.Throughput), curve.Memory),
	}}
	for _, n := range b.upTo(10, 1, 3, 10, 30, 100) {
		c.points = append(c.points, point{
			series: copying, x: float64(n), job: []string{"--workload", "copy"}, late: true,
			in:           growthInput{partitions: 1, records: 2 * b.records / n, size: work.Size},
			taskManagers: 1, slots: n, parallelism: 1, jobs: n,
		})
	}
	return c
}

func (b *bench) byOperators() growthCurve {
	c := growthCurve{name: "operators", picture: curve.Picture{
		Title: "Operators between source and sink", X: "operators", Panels: append(slices.Clone(curve.Throughput), curve.Cost),
	}}
	for _, chained := range []bool{true, false} {
		series := map[bool]string{true: "chained", false: "a task each"}[chained]
		for _, n := range b.upTo(50, 1, 10, 25, 50) {
			records := b.records
			if !chained && n > 3 {
				records /= 4 // it takes longer
			}
			job := []string{"--workload", "copy", "--operators", fmt.Sprint(n), "--chained=" + strconv.FormatBool(chained)}
			c.points = append(c.points, point{
				series: series, x: float64(n), job: job,
				in:           growthInput{partitions: 2, records: records, size: work.Size},
				taskManagers: 1, slots: 2, parallelism: 2, jobs: 1,
			})
		}
	}
	return c
}
