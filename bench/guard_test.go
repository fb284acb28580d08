package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/kafkatest"
)

// Whatever the machine does at the time, one of five rounds shows a pass-through and a running count at 0.4 of the hand-written program's
// records per CPU-second, where they come to about the same. The programs are built without the race detector.
func TestWeirKeepsUpWithTheHandWrittenProgram(t *testing.T) {
	if os.Getenv(kafkatest.EnvBroker) != "" {
		t.Skip("the broker is not the test's own: topics of that size are for one that is thrown away")
	}
	program := filepath.Join(t.TempDir(), "bench")
	text, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", text)
	text, err = exec.CommandContext(t.Context(), program, "-at-least", "0.4", "-workloads", "passthrough,running-count",
		"-records", "2000000", "-interval", "100ms", "-rounds", "5").CombinedOutput()
	t.Logf("%s", text)
	require.NoError(t, err)
}
