package statebackend_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/statetest"
)

// perCheckpoint is how many records come between two checkpoints of the benchmarks.
const perCheckpoint = 400_000

func wholeConfig(tb testing.TB) statebackend.Config {
	cfg := config(tb, statetest.NewStore(tb.TempDir()))
	cfg.KeyGroups, cfg.MaxParallelism = keygroup.Range{Last: 127}, 128
	return cfg
}

// randomKeys returns keys below n in an order without pattern.
func randomKeys(n uint64) []uint64 {
	random := rand.New(rand.NewPCG(1, 2))
	keys := make([]uint64, 1<<22)
	for i := range keys {
		keys[i] = random.Uint64N(n)
	}
	return keys
}

// cpuTime is what the process has used, in nanoseconds.
func cpuTime(who int) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		panic(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// run calls record for each of the keys, over and over, with checkpoints beside it. It reports CPU time of all threads.
func run(b *testing.B, be *statebackend.Backend[uint64], keys []uint64, checkpoints bool, record func(k uint64)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i, k := range keys {
		if i%32 == 0 && be.Expects() {
			be.Expect(keys[i : i+32])
		}
		record(k)
	}
	done := make(chan uint64, 1)
	next := uint64(0)
	checkpoint := func() {
		next++
		n, f := next, be.Freeze(next, false)
		go func() {
			if _, err := f.Write(context.Background()); err != nil {
				panic(err)
			}
			done <- n
		}()
	}
	if checkpoints {
		checkpoint()
		be.CheckpointCompleted(<-done)
	}
	b.ReportAllocs()
	b.ResetTimer()
	before, own := cpuTime(syscall.RUSAGE_SELF), cpuTime(1) // RUSAGE_THREAD
	writing := false
	for i := range b.N {
		if i%32 == 0 && be.Expects() {
			at := i % len(keys)
			be.Expect(keys[at : at+32])
		}
		record(keys[i%len(keys)])
		if checkpoints && i%perCheckpoint == perCheckpoint-1 {
			if writing {
				be.CheckpointCompleted(<-done)
			}
			checkpoint()
			writing = true
		}
		if writing && i%512 == 0 {
			select {
			case n := <-done:
				be.CheckpointCompleted(n)
				writing = false
			default:
			}
		}
	}
	if writing {
		be.CheckpointCompleted(<-done)
	}
	own = cpuTime(1) - own
	b.ReportMetric(float64(cpuTime(syscall.RUSAGE_SELF)-before)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(own)/float64(b.N), "own-cpu-ns/op")
}

func benchmarkCount(b *testing.B, checkpoints bool) {
	be := statebackend.New(wholeConfig(b), mustKey[uint64](b))
	v := statebackend.NewValue(be, "count", mustCodec[uint64](b))
	require.NoError(b, be.Open(context.Background()))
	run(b, be, randomKeys(1_000_000), checkpoints, func(k uint64) {
		n, _, _ := v.Get(k)
		_ = v.Put(k, n+1)
	})
	b.StopTimer()
	require.NoError(b, be.Close())
}

// A count for each of a million keys.
func BenchmarkRunningCount(b *testing.B)                { benchmarkCount(b, false) }
func BenchmarkRunningCountWithCheckpoints(b *testing.B) { benchmarkCount(b, true) }

// A count for each of two million keys, of which a quarter fits into memory. The time of all threads is told, and that of the records alone.
func BenchmarkRunningCountUnderBudget(b *testing.B) {
	const all = 2_000_000
	cfg := wholeConfig(b)
	cfg.MemoryBudget = all * 61 / 4
	be := statebackend.New(cfg, mustKey[uint64](b))
	v := statebackend.NewValue(be, "count", mustCodec[uint64](b))
	require.NoError(b, be.Open(context.Background()))
	for k := range uint64(all) {
		require.NoError(b, v.Put(k, 0))
		if k%(all/16) == 0 || k == all-1 {
			_, err := func() (any, error) { f := be.Freeze(k+1<<32, false); return f.Write(context.Background()) }()
			require.NoError(b, err)
			be.CheckpointCompleted(k + 1<<32)
		}
	}
	run(b, be, randomKeys(all), true, func(k uint64) {
		n, _, _ := v.Get(k)
		_ = v.Put(k, n+1)
	})
	b.StopTimer()
	require.NoError(b, be.Close())
}

type total struct{ Count, Sum uint64 }

func benchmarkPanes(b *testing.B, checkpoints bool) {
	be := statebackend.New(wholeConfig(b), mustKey[uint64](b))
	p := statebackend.NewPanes(be, "windows", mustCodec[total](b))
	require.NoError(b, be.Open(context.Background()))
	const perPane = 2_000_000
	i := int64(0)
	run(b, be, randomKeys(100_000), checkpoints, func(k uint64) {
		t, _, _ := p.Acquire(i/perPane, k)
		t.Count++
		t.Sum += k
		if i++; i%perPane == 0 {
			_ = p.Drop(i/perPane - 1)
		}
	})
	b.StopTimer()
	require.NoError(b, be.Close())
}

// Count and sum of 100 000 keys in windows of two million records.
func BenchmarkWindowCount(b *testing.B)                { benchmarkPanes(b, false) }
func BenchmarkWindowCountWithCheckpoints(b *testing.B) { benchmarkPanes(b, true) }
