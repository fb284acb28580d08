package statebackend_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/statetest"
)

func filled(b *testing.B, n int) (single[int64], []string) {
	s := newSingle[int64](b, config(b, statetest.NewStore(b.TempDir())))
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("user-%08d", i)
		require.NoError(b, s.v.Put(keys[i], int64(i)))
	}
	return s, keys
}

func BenchmarkValueGet(b *testing.B) {
	s, keys := filled(b, 100_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_, _, _ = s.v.Get(keys[i%len(keys)])
	}
}

func BenchmarkValuePut(b *testing.B) {
	s, keys := filled(b, 100_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_ = s.v.Put(keys[i%len(keys)], int64(i))
	}
}

func BenchmarkPanesAcquire(b *testing.B) {
	be := statebackend.New(config(b, statetest.NewStore(b.TempDir())), mustKey[string](b))
	p := statebackend.NewPanes(be, "p", mustCodec[int64](b))
	require.NoError(b, be.Open(context.Background()))
	keys := make([]string, 100_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("user-%08d", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		acc, _, _ := p.Acquire(60_000, keys[i%len(keys)])
		*acc++
	}
	require.NoError(b, be.Close())
}

func BenchmarkTimersAddAndDelete(b *testing.B) {
	be := statebackend.New(config(b, statetest.NewStore(b.TempDir())), mustKey[string](b))
	timers := statebackend.NewTimers(be, "t")
	require.NoError(b, be.Open(context.Background()))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_ = timers.Add(int64(i), "key")
		_ = timers.Delete(int64(i-100), "key")
	}
	require.NoError(b, be.Close())
}

// BenchmarkFreeze reports the pause of the task with a million changed keys, and the cost of writing them.
func BenchmarkFreeze(b *testing.B) {
	s, keys := filled(b, 1_000_000)
	var pause, written time.Duration
	n := uint64(0)
	for b.Loop() {
		for i, k := range keys {
			_ = s.v.Put(k, int64(i))
		}
		n++
		start := time.Now()
		f := s.Freeze(n, false)
		pause += time.Since(start)
		start = time.Now()
		_, err := f.Write(context.Background())
		require.NoError(b, err)
		written += time.Since(start)
		s.CheckpointCompleted(n)
	}
	b.ReportMetric(float64(pause.Nanoseconds())/float64(b.N), "pause-ns/op")
	b.ReportMetric(written.Seconds()/float64(b.N), "write-s/op")
}

// BenchmarkFirstGetAfterRestore must not depend on the number of keys.
func BenchmarkFirstGetAfterRestore(b *testing.B) {
	for _, n := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			store := statetest.NewStore(b.TempDir())
			s := newSingle[int64](b, config(b, store))
			for i := range n {
				require.NoError(b, s.v.Put(fmt.Sprintf("user-%08d", i), int64(i)))
			}
			h := write(b, s.Backend, 1)
			for b.Loop() {
				be := statebackend.New(config(b, store, h), mustKey[string](b))
				v := statebackend.NewValue(be, "v", mustCodec[int64](b))
				require.NoError(b, be.Open(context.Background()))
				got, ok, err := v.Get("user-00000777")
				require.True(b, ok && err == nil && got == 777)
				require.NoError(b, be.Close())
			}
		})
	}
}
