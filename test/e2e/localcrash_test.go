package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/test/harness"
)

// localCells are the points of a local run, and of those it shares with workers one for each thing that can be half done.
var localCells = []cell{
	{faultpoint.Prepared, localRun, always, false},
	{faultpoint.StateUploaded, localRun, always, false},
	{faultpoint.LocalMetadataWritten, localRun, always, false},
	{faultpoint.LocalCompletionRecorded, localRun, always, false},
	{faultpoint.EndTxnSent, localRun, always, false},
	{faultpoint.Committed, localRun, always, false},
	{faultpoint.LocalAttemptRecorded, localRun, restarts, false},
	{faultpoint.RecoveredOne, localRun, restarts, false},
	{faultpoint.FencedOne, localRun, restarts, false},
	{faultpoint.LocalFencedRecorded, localRun, restarts, false},
}

// program is a job that runs by itself.
type program struct {
	t      *testing.T
	path   string
	args   []string
	dir    string
	points string
	cmd    *exec.Cmd
	output *bytes.Buffer
}

func (p *program) start() {
	p.cmd, p.output = exec.Command(p.path, p.args...), new(bytes.Buffer)
	p.cmd.Env = append(os.Environ(), "WEIR_STATE_DIR="+p.dir, faultpoint.EnvDir+"="+p.points)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	require.NoError(p.t, p.cmd.Start())
}

// died waits for the end of a program that is killed.
func (p *program) died() {
	_ = p.cmd.Wait()
	require.Equal(p.t, -1, p.cmd.ProcessState.ExitCode(), "it exited by itself:\n%s", p.output)
}

// A program that runs its job by itself dies at points of the protocol and is started again, and nothing is lost or repeated.
func TestLocalCrashTable(t *testing.T) {
	t.Parallel()
	bin, err := harness.BuildWithFaultPoints()
	require.NoError(t, err)
	broker := kafkatest.Shared(t)
	run := harness.StartNumbers(t, broker)
	p := &program{
		t: t, path: bin.Job, dir: filepath.Join(t.TempDir(), "state"), points: t.TempDir(),
		args: append([]string{"--brokers", broker.Addr(), "--interval", "250ms"}, run.Args()...),
	}
	p.start()
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("last output:\n%s", p.output)
		}
	})
	run.Require(t, recovered)
	began := time.Now()
	all := began
	for _, c := range localCells {
		ok := t.Run(c.String(), func(t *testing.T) {
			p.t, began = t, time.Now()
			run.Begin(c.String())
			point := filepath.Join(p.points, string(c.point))
			require.NoError(t, harness.ArmFile(point, "kill"))
			if c.when == restarts {
				require.NoError(t, p.cmd.Process.Kill())
				p.died()
				p.start()
			}
			_, err := harness.AwaitFileFired(point, firedWithin)
			require.NoError(t, err)
			p.died()
			p.start()
			run.Require(t, recovered)
			t.Logf("all output after %s", time.Since(began).Round(time.Millisecond))
		})
		if !ok {
			break
		}
	}
	p.t = t
	t.Logf("%d cells within %s", len(localCells), time.Since(all).Round(time.Second))
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, p.cmd.Wait(), "%s", p.output)
	for _, out := range []string{run.Out, run.Sums} {
		require.NoError(t, broker.WaitNoOpenTransactions(t.Context(), out))
	}
}
