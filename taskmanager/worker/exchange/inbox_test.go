package exchange_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/taskmanager/worker/exchange"
)

func TestInboxRoundRobinAndBlocking(t *testing.T) {
	in := exchange.NewInbox(3)
	for ch := range 3 {
		s := exchange.NewLocal(in, ch)
		for range 2 {
			require.NoError(t, s.Idle(ch > 0))
		}
	}
	in.Block(1)
	var got []int
	for {
		ch, e, ok := in.Poll()
		if !ok {
			break
		}
		require.Equal(t, ch > 0, e.Kind == exchange.Idle)
		got = append(got, ch)
	}
	require.Equal(t, []int{0, 2, 0, 2}, got)
	in.UnblockAll()
	ch, _, ok := in.Poll()
	require.True(t, ok)
	require.Equal(t, 1, ch)
}

func TestInboxCloseFreesProducers(t *testing.T) {
	in := exchange.NewInbox(1)
	s := exchange.NewLocal(in, 0)
	released := 0
	send := func() error {
		b := numbers(0, 512)
		b.released = func() { released++ }
		return s.Send(b)
	}
	require.NoError(t, send())
	in.Close()
	for range 3 {
		require.NoError(t, send(), "a second batch would wait for an open inbox")
	}
	require.Equal(t, 4, released)
	_, _, ok := in.Poll()
	require.False(t, ok)
}

func TestInboxKeepsTheLastWatermark(t *testing.T) {
	in := exchange.NewInbox(1)
	s := exchange.NewLocal(in, 0)
	in.Block(0)
	for wm := range int64(1000) {
		require.NoError(t, s.Watermark(wm))
	}
	require.NoError(t, s.Send(numbers(0, 1)))
	require.NoError(t, s.Watermark(2000))
	in.UnblockAll()
	_, e, _ := in.Poll()
	require.Equal(t, int64(999), e.Watermark)
	_, e, _ = in.Poll()
	require.Equal(t, exchange.Data, e.Kind)
	_, e, _ = in.Poll()
	require.Equal(t, int64(2000), e.Watermark)
	_, _, ok := in.Poll()
	require.False(t, ok)
}
