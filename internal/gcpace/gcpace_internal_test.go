package gcpace

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercent(t *testing.T) {
	const slack = 256 << 20
	require.Equal(t, 400, percent(0, slack))
	require.Equal(t, 400, percent(64<<20, slack))
	require.Equal(t, 200, percent(128<<20, slack))
	require.Equal(t, 100, percent(256<<20, slack))
	require.Equal(t, 100, percent(10<<30, slack))
}

// The pace follows the heap, and is what it was after the end.
func TestThePaceFollowsTheHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	before := current()
	stop := Start()
	require.Equal(t, 400, current())
	ballast := make([]byte, 400<<20)
	require.Eventually(t, func() bool {
		runtime.GC()
		return current() == 100
	}, time.Minute, time.Millisecond)
	runtime.KeepAlive(ballast) // and no longer
	require.Eventually(t, func() bool {
		runtime.GC()
		return current() == 400
	}, time.Minute, time.Millisecond)
	stop()
	require.Equal(t, before, current())
	runtime.GC()
	require.Equal(t, before, current())
}

func TestTheEnvironmentHasPrecedence(t *testing.T) {
	t.Setenv("GOGC", "77")
	before := current()
	stop := Start()
	require.Equal(t, before, current())
	stop()
	require.Equal(t, before, current())
}

func current() int {
	p := debug.SetGCPercent(100)
	debug.SetGCPercent(p)
	return p
}
