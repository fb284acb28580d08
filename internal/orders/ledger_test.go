package orders

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLedgerCountsEveryKindOfFault(t *testing.T) {
	s := Stream{Orders: 5000, Base: 1_700_000_000_000, Rate: 1000}
	want := s.Expected()
	var all []Total
	for _, total := range want {
		all = append(all, total)
	}
	now := time.Unix(0, 0)

	right := NewLedger(want)
	for _, total := range all {
		right.Add(total, now)
	}
	require.True(t, right.Complete())
	require.Zero(t, right.Duplicated)
	require.Empty(t, right.Wrong())
	require.Equal(t, s.Orders, right.Committed)

	lost := NewLedger(want)
	for _, total := range all[1:] {
		lost.Add(total, now)
	}
	require.False(t, lost.Complete())
	require.Equal(t, 1, lost.Missing())

	twice := NewLedger(want)
	for _, total := range all {
		twice.Add(total, now)
	}
	twice.Add(all[0], now)
	require.Equal(t, 1, twice.Duplicated)

	wrong := NewLedger(want)
	bad := all[0]
	bad.Cents++
	wrong.Add(bad, now)
	wrong.Add(Total{User: "nobody", Start: 1}, now)
	require.Len(t, wrong.Wrong(), 2)
}

func TestOrdersAreNeverLate(t *testing.T) {
	s := Stream{Orders: 20_000, Base: 1_700_000_000_000, Rate: 10_000}
	var newest [Partitions]int64
	for n := range s.Orders {
		o, p := s.Order(n), s.Partition(n)
		require.Greater(t, o.At, newest[p]-OutOfOrder.Milliseconds(), "order %d", n)
		newest[p] = max(newest[p], o.At)
	}
	for _, end := range newest {
		require.Greater(t, s.Flush().At-OutOfOrder.Milliseconds(), end+Window.Milliseconds())
	}
}
