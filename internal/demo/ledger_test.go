package demo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLedgerCountsEveryKindOfFault(t *testing.T) {
	s := stream{orders: 5000, base: 1_700_000_000_000, rate: 1000}
	want := s.expected()
	var all []Total
	for _, total := range want {
		all = append(all, total)
	}
	now := time.Unix(0, 0)

	right := newLedger(want)
	for _, total := range all {
		right.add(total, now)
	}
	require.True(t, right.complete())
	require.Zero(t, right.duplicated)
	require.Empty(t, right.wrong)
	require.Equal(t, s.orders, right.committed)

	lost := newLedger(want)
	for _, total := range all[1:] {
		lost.add(total, now)
	}
	require.False(t, lost.complete())
	require.Equal(t, 1, lost.missing())

	twice := newLedger(want)
	for _, total := range all {
		twice.add(total, now)
	}
	twice.add(all[0], now)
	require.Equal(t, 1, twice.duplicated)

	wrong := newLedger(want)
	bad := all[0]
	bad.Cents++
	wrong.add(bad, now)
	wrong.add(Total{User: "nobody", Start: 1}, now)
	require.Len(t, wrong.wrong, 2)
}

func TestOrdersAreNeverLate(t *testing.T) {
	s := stream{orders: 20_000, base: 1_700_000_000_000, rate: 10_000}
	var newest [partitions]int64
	for n := range s.orders {
		o, p := s.order(n), s.partition(n)
		require.Greater(t, o.At, newest[p]-lateness.Milliseconds(), "order %d", n)
		newest[p] = max(newest[p], o.At)
	}
	for _, end := range newest {
		require.Greater(t, s.flush().At-lateness.Milliseconds(), end+window.Milliseconds())
	}
}
