package lint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

// The program in the README compiles and plans, and its job function can run more than once in a process, as it does in a local run.
func TestReadmeJob(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(readme), "\n## A job\n")
	require.True(t, ok, "README.md has no section A job")
	section, _, _ = strings.Cut(section, "\n## ")
	_, program, ok := strings.Cut(section, "\n```go\n")
	require.True(t, ok, "the section has no Go program")
	program, _, _ = strings.Cut(program, "\n```\n")

	dir := t.TempDir()
	source, binary, plan := filepath.Join(dir, "main.go"), filepath.Join(dir, "job"), filepath.Join(dir, "plan")
	require.NoError(t, os.WriteFile(source, []byte(program+"\n"), 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, source)
	build.Dir = filepath.Join("..", "..")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	planned := exec.CommandContext(t.Context(), binary)
	planned.Dir, planned.Env = dir, append(os.Environ(), "WEIR_MODE=plan", "WEIR_PLAN_OUTPUT="+plan)
	out, err = planned.CombinedOutput()
	require.NoError(t, err, "%s", out)
	data, err := os.ReadFile(plan)
	require.NoError(t, err)
	var result jobv1.PlanResult
	require.NoError(t, proto.Unmarshal(data, &result))
	require.Empty(t, result.GetErrors())
	require.Equal(t, "totals", result.GetGraph().GetName())

	// A local run has planned twice before it finds that its state directory is a file.
	run := exec.CommandContext(t.Context(), binary, "-brokers", "127.0.0.1:1")
	run.Dir, run.Env = dir, append(os.Environ(), "WEIR_MODE=", "WEIR_STATE_DIR="+source)
	out, err = run.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode(), "%s", out)
	require.Regexp(t, `^error: lock the state directory: .*\n$`, string(out), "the only thing that is wrong")
}
