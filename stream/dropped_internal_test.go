package stream

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	printsink "github.com/weir-stream/weir/sinks/print"
	"github.com/weir-stream/weir/sources/generator"
)

// stopAfter is a writer that ends a run after the first output.
type stopAfter struct{ stop context.CancelFunc }

func (s stopAfter) Write(p []byte) (int, error) {
	s.stop()
	return len(p), nil
}

// count emits how often a key came, from a state of the given name.
func count(state string) func(*States[uint64]) Handler[uint64, uint64, uint64] {
	return func(s *States[uint64]) Handler[uint64, uint64, uint64] {
		times := ValueOf[uint64](s, state)
		return Handler[uint64, uint64, uint64]{Record: func(c *Context[uint64, uint64], _ uint64) error {
			n, _, err := times.Get()
			if err != nil {
				return err
			}
			if err := times.Put(n + 1); err != nil {
				return err
			}
			return c.Emit(n + 1)
		}}
	}
}

// TestDroppedStateInALocalRun renames an operator with state between two runs, and a state.
func TestDroppedStateInALocalRun(t *testing.T) {
	env := map[string]string{"WEIR_STATE_DIR": t.TempDir(), "WEIR_LOG_LEVEL": "error"}
	start := func(uid, state string) (code int, stderr string) {
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		var messages bytes.Buffer
		job := func(e *Env) error {
			numbers := From(e, "numbers", generator.New(func(n uint64) uint64 { return n }).Rate(100))
			unique := Process(KeyBy(numbers, func(n uint64) uint64 { return n % 3 }), count(state)).Named(uid)
			To(unique, "out", printsink.New[uint64](printsink.To(stopAfter{stop}))).WithGuarantee(AtLeastOnce)
			return nil
		}
		h := host{args: []string{"hello"}, setArgs: func([]string) {}, getenv: func(n string) string { return env[n] }, stderr: &messages}
		return run(ctx, job, h, nil), messages.String()
	}
	code, messages := start("first", "times")
	require.Zero(t, code, messages)
	for _, now := range []struct{ uid, state, gone string }{{"second", "times", "operators first"}, {"second", "visits", `the state "times"`}} {
		code, messages = start(now.uid, now.state)
		require.Equal(t, 1, code)
		require.Contains(t, messages, now.gone)
		require.Contains(t, messages, "a restart cannot mend this")
		require.Contains(t, messages, "WEIR_ALLOW_DROPPED_STATE=1", "the way out")

		env["WEIR_ALLOW_DROPPED_STATE"] = "1"
		code, messages = start(now.uid, now.state)
		require.Zero(t, code, messages)
		delete(env, "WEIR_ALLOW_DROPPED_STATE")
		code, messages = start(now.uid, now.state)
		require.Zero(t, code, messages)
	}
}
