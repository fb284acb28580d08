package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/demo"
)

func TestDemoEndsWithAVerdict(t *testing.T) {
	for want, r := range map[string]demo.Report{
		"\n\nevery result exactly once\n": {Produced: 5, ExpectedWindows: 2},
		"\n\nNOT exactly once\n":          {Produced: 5, ExpectedWindows: 2, Duplicated: 1},
	} {
		var out bytes.Buffer
		require.NoError(t, (&app{IO: IO{Out: &out}}).printDemo(r, "text"))
		require.Contains(t, out.String(), want)
	}
}

func TestUnfinishedDemoLeavesOnlyLogs(t *testing.T) {
	failure := errors.New("no broker")
	a := &app{IO: IO{Err: io.Discard}}
	withLogs := func() string {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "jm1.log"), nil, 0o600))
		return dir
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()

	dir := withLogs()
	require.ErrorIs(t, a.unfinishedDemo(interrupted, failure, dir, true), context.Canceled)
	require.NoDirExists(t, dir)

	dir = withLogs()
	var said bytes.Buffer
	require.ErrorIs(t, (&app{IO: IO{Err: &said}}).unfinishedDemo(interrupted, failure, dir, false), context.Canceled)
	require.DirExists(t, dir)
	require.Contains(t, said.String(), dir)

	dir = withLogs()
	require.EqualError(t, a.unfinishedDemo(t.Context(), failure, dir, true), "no broker\nthe logs of the cluster are in "+dir)
	require.DirExists(t, dir)

	dir = t.TempDir()
	require.Equal(t, failure, a.unfinishedDemo(t.Context(), failure, dir, true))
	require.NoDirExists(t, dir)
}
