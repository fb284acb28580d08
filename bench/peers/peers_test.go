package peers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/bench/peers"
	"github.com/weir-stream/weir/internal/javatest"
)

func TestAnUnknownPeerIsNamed(t *testing.T) {
	_, err := peers.Prepare(t.Context(), t.TempDir(), []string{"storm"})
	require.ErrorContains(t, err, `"storm"`)
	require.ErrorContains(t, err, "kafka-streams")
}

func TestWithoutJavaThePeerIsNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, name := range []string{"flink", "flink-rocksdb", "kafka-streams"} {
		_, err := peers.Prepare(t.Context(), t.TempDir(), []string{name})
		require.ErrorIs(t, err, javatest.ErrNoJava)
		require.ErrorContains(t, err, name)
	}
}
