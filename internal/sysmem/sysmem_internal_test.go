package sysmem

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheSmallerOfMachineAndContainerCounts(t *testing.T) {
	info := []byte("MemFree: 1 kB\nMemTotal:       16000000 kB\n")
	require.Equal(t, int64(16000000)<<10, total(info, nil))
	require.Equal(t, int64(16000000)<<10, total(info, []byte("max\n")))
	require.Equal(t, int64(1<<30), total(info, []byte("1073741824\n")))
	require.Equal(t, int64(fallback), total([]byte("nonsense"), nil))
	require.Positive(t, Total())
}
