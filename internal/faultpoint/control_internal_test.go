package faultpoint

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fixture records what a process would have suffered.
func fixture(t *testing.T, points, dir string) (*controller, *[]string) {
	t.Helper()
	var suffered []string
	note := func(what string) func() { return func() { suffered = append(suffered, what) } }
	c, err := newController(points, dir, effects{
		kill: note("kill"), stop: note("stop"), hang: note("hang"),
		delay: func(d time.Duration) { suffered = append(suffered, d.String()) },
	})
	require.NoError(t, err)
	return c, &suffered
}

func TestPointsArmedByTheEnvironment(t *testing.T) {
	c, suffered := fixture(t, "a=kill@2;b=stop;c=delay:5ms@2;d=error", "")
	require.NoError(t, c.reach("a"))
	require.Empty(t, *suffered)
	require.NoError(t, c.reach("a"))
	require.NoError(t, c.reach("a"), "once only")
	require.NoError(t, c.reach("b"))
	for range 3 {
		require.NoError(t, c.reach("c"))
	}
	require.ErrorIs(t, c.reach("d"), ErrInjected)
	require.NoError(t, c.reach("d"))
	require.NoError(t, c.reach("nothing"))
	require.Equal(t, []string{"kill", "stop", "5ms", "5ms"}, *suffered)
}

func TestConditions(t *testing.T) {
	c, suffered := fixture(t, "a=hang@2,attempt=3,role=worker", "")
	c.is("role", "worker")
	for attempt := range 5 {
		c.is("attempt", string(rune('0'+attempt)))
		require.NoError(t, c.reach("a"))
	}
	require.Empty(t, *suffered, "passes count only where the conditions hold")
	c.is("attempt", "3")
	require.NoError(t, c.reach("a"))
	require.Equal(t, []string{"hang"}, *suffered)
}

func TestAFileArmsAPointOnceForAllProcesses(t *testing.T) {
	dir := t.TempDir()
	c, suffered := fixture(t, "", dir)
	successor, suffered2 := fixture(t, "", dir)
	require.NoError(t, c.reach("a"))
	path := filepath.Join(dir, "a")
	require.NoError(t, os.WriteFile(path, []byte("kill@2\n"), 0o600))
	require.NoError(t, c.reach("a"))
	require.Empty(t, *suffered)
	require.NoError(t, c.reach("a"))
	by, err := os.ReadFile(path + Fired)
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(os.Getpid()), string(by))
	require.NoFileExists(t, path)
	for range 3 {
		require.NoError(t, c.reach("a"))
		require.NoError(t, successor.reach("a"))
	}
	require.Equal(t, []string{"kill"}, *suffered)
	require.Empty(t, *suffered2)

	require.NoError(t, os.WriteFile(path, []byte("stop"), 0o600))
	require.NoError(t, c.reach("a"))
	require.Equal(t, []string{"kill", "stop"}, *suffered, "armed again")
}

func TestWhatIsNoAction(t *testing.T) {
	for _, points := range []string{"a", "a=", "a=explode", "a=kill@0", "a=kill@x", "a=kill:3s", "a=delay", "a=delay:x", "a=kill,attempt"} {
		_, err := newController(points, "", effects{})
		require.Error(t, err, points)
	}
}

// Without the tag the calls compile to nothing: all of their bodies are empty and inlined.
func TestCallsCostNothingWithoutTheTag(t *testing.T) {
	build := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-m", ".")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
	for _, f := range []string{"Hit", "Err", "Is"} {
		require.Contains(t, string(text), "can inline "+f)
	}
	code := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-S", ".")
	text, err = code.CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Regexp(t, `faultpoint\.Hit STEXT nosplit size=(1|4|16) `, string(text), "a return and nothing else")
}
