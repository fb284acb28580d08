package e2e_test

import (
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/test/harness"
)

// What anybody can type to see that a cluster without its leader goes on.
func TestDemoOfLeaderKillsHasNoRestart(t *testing.T) {
	bin, err := harness.Build()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), bin.Weir, "demo", "--kills", "jm,jm,jm", "--records", "180000", "--headless", "-o", "json")
	text, err := cmd.Output()
	require.NoError(t, err, "%s", text)
	var report struct {
		Missing, Duplicated, Wrong int
		JobRestarts                int `json:"job_restarts"`
		Kills                      []struct{ Role string }
	}
	require.NoError(t, json.Unmarshal(text, &report))
	require.Len(t, report.Kills, 3)
	require.Zero(t, report.JobRestarts, "job restarts")
	require.Zero(t, report.Missing, "missing")
	require.Zero(t, report.Duplicated, "duplicated")
	require.Zero(t, report.Wrong, "wrong")
}
