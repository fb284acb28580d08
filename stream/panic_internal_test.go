package stream

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	printsink "github.com/weir-stream/weir/sinks/print"
	"github.com/weir-stream/weir/sources/generator"
)

// failing runs a job that fails and returns the lines it prints.
func failing(t *testing.T, job func(*Env) error) []string {
	t.Helper()
	var stderr bytes.Buffer
	env := map[string]string{"WEIR_STATE_DIR": t.TempDir()}
	h := host{
		args: []string{"hello"}, setArgs: func([]string) {}, getenv: func(n string) string { return env[n] }, stderr: &stderr,
	}
	require.Equal(t, 1, run(t.Context(), job, h, nil))
	return strings.Split(strings.TrimSpace(stderr.String()), "\n")
}

// after returns the lines from the first one with the prefix on.
func after(t *testing.T, lines []string, prefix string) []string {
	t.Helper()
	for i, line := range lines {
		if strings.HasPrefix(line, prefix) {
			return lines[i:]
		}
	}
	require.Failf(t, "no such line", "%q in\n%s", prefix, strings.Join(lines, "\n"))
	return nil
}

func TestAPanicOfTheJobFunctionShowsWhere(t *testing.T) {
	out := failing(t, func(*Env) error { panic("oops") })
	require.Regexp(t, `^error: the job function panicked: oops, at \S+/stream\.TestAPanicOfTheJobFunctionShowsWhere\.func1 \(\S+/panic_internal_test\.go:\d+\)$`, out[0])
	require.Contains(t, out[1], "TestAPanicOfTheJobFunctionShowsWhere")
	require.Contains(t, out[2], "panic_internal_test.go:")
}

func TestAPanicOfAUserFunctionShowsWhere(t *testing.T) {
	out := failing(t, func(env *Env) error {
		env.SetRestartPolicy(RestartPolicy{Multiplier: 1, Window: time.Minute})
		numbers := Map(From(env, "numbers", generator.New(func(n uint64) uint64 { return n })), divide)
		To(numbers, "out", printsink.New[uint64](printsink.To(new(bytes.Buffer)))).WithGuarantee(AtLeastOnce)
		return nil
	})
	running, logged := -1, -1
	for i, line := range out {
		if strings.Contains(line, `msg="job is running"`) {
			running = i
		}
		if strings.Contains(line, `msg="attempt failed"`) {
			logged = i
			require.Regexp(t, ` at="\S+/stream\.divide \(\S+/panic_internal_test\.go:\d+\) < `, line)
		}
	}
	require.GreaterOrEqual(t, running, 0)
	require.Less(t, running, logged, "a failed attempt is not running")
	end := after(t, out, "error: job failed in ")
	require.Contains(t, end[0], "integer divide by zero")
	require.NotContains(t, end[0], "; github.com/")
	require.Contains(t, end[1], "/stream.divide(")
	require.Contains(t, end[2], "panic_internal_test.go:")
}

func divide(n uint64) uint64 { return 1 / n }
