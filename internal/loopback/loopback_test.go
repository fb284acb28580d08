package loopback_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/loopback"
)

func TestIs(t *testing.T) {
	for _, here := range []string{"127.0.0.1:1", "127.8.9.1:0", "[::1]:80", "localhost:6123"} {
		require.True(t, loopback.Is(here), here)
	}
	for _, elsewhere := range []string{"", ":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "localhost.example:1", "127.0.0.1", "example:1"} {
		require.False(t, loopback.Is(elsewhere), elsewhere)
	}
}

func TestFreePorts(t *testing.T) {
	ports, err := loopback.FreePorts(20)
	require.NoError(t, err)
	seen := map[int]bool{}
	for _, p := range ports {
		require.False(t, seen[p], "port %d twice", p)
		seen[p] = true
		l, err := net.Listen("tcp", loopback.Address(p))
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
}
