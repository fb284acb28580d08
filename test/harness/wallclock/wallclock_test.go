package wallclock_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/test/harness/wallclock"
)

// program prints, for each line it reads, its wall clock and how much has passed by the monotonic one since the start.
const program = `package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

func main() {
	start := time.Now()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		now := time.Now()
		fmt.Println(now.UnixNano(), int64(now.Sub(start)), int64(time.Since(start)))
	}
}
`

func TestOnlyTheWallClockJumps(t *testing.T) {
	dir := t.TempDir()
	overlay, err := wallclock.Overlay(dir)
	require.NoError(t, err)
	source, bin := filepath.Join(dir, "main.go"), filepath.Join(dir, "clock")
	require.NoError(t, os.WriteFile(source, []byte(program), 0o644))
	text, err := exec.Command("go", "build", "-overlay", overlay, "-o", bin, source).CombinedOutput()
	require.NoError(t, err, "%s", text)

	clock, err := wallclock.New(dir, "offset", -90*time.Minute)
	require.NoError(t, err)
	cmd := exec.Command(bin)
	cmd.Env = append(os.Environ(), clock.Env())
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for _, offset := range []time.Duration{-90 * time.Minute, 2 * time.Hour, 0, -time.Nanosecond, -2 * time.Hour} {
		require.NoError(t, clock.Set(offset))
		_, err := io.WriteString(in, "\n")
		require.NoError(t, err)
		require.True(t, lines.Scan())
		fields := strings.Fields(lines.Text())
		require.Len(t, fields, 3)
		var values [3]int64
		for i, f := range fields {
			values[i], err = strconv.ParseInt(f, 10, 64)
			require.NoError(t, err)
		}
		require.WithinDuration(t, time.Now().Add(offset), time.Unix(0, values[0]), 10*time.Second, "wall clock at %s", offset)
		for _, passed := range values[1:] {
			require.GreaterOrEqual(t, passed, int64(0), fmt.Sprint(offset))
			require.Less(t, time.Duration(passed), time.Minute, fmt.Sprint(offset))
		}
	}
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
}
