package registry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSilenceOfOnesOwn(t *testing.T) {
	due := time.Now()
	const timeout = 4 * time.Second
	require.False(t, stoodStill(due, due, timeout))
	require.False(t, stoodStill(due, due.Add(time.Second), timeout), "a machine under load")
	require.True(t, stoodStill(due, due.Add(time.Second+1), timeout))
	require.True(t, stoodStill(due, due.Add(10*time.Second), timeout))
}
