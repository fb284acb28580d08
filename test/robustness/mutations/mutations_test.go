package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A mutation that applies no longer shows nothing.
func TestMutationsApply(t *testing.T) {
	require.NoError(t, checkAll("../../.."))
	names := map[string]bool{}
	for _, m := range mutations {
		require.False(t, names[m.name], "two are called %q", m.name)
		names[m.name] = true
		require.NotEmpty(t, m.edits, m.name)
		require.NotEmpty(t, m.suite, m.name)
		for _, e := range m.edits {
			require.NotEqual(t, e.old, e.new, m.name)
		}
	}
}
