package stream

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/version"
	printsink "github.com/weir-stream/weir/sinks/print"
	"github.com/weir-stream/weir/sources/generator"
)

// binary is a job binary started with an environment.
type binary struct {
	env    map[string]string
	args   []string
	seen   []string // the arguments when the job function ran
	stderr bytes.Buffer
	stdout bytes.Buffer
}

func (b *binary) run(t *testing.T) int {
	b.seen = append([]string{"/bin/hello"}, b.args...)
	h := host{
		args: b.seen, setArgs: func(args []string) { b.seen = args },
		getenv: func(name string) string { return b.env[name] }, stderr: &b.stderr,
	}
	job := func(env *Env) error {
		numbers := From(env, "numbers", generator.New(func(n uint64) uint64 { return n }).Count(3))
		To(numbers, "out", printsink.New[uint64](printsink.To(&b.stdout))).WithGuarantee(AtLeastOnce)
		if len(b.seen) > 1 && b.seen[1] == "faulty" {
			From(env, "numbers", generator.New[int](nil))
		}
		return nil
	}
	return run(t.Context(), job, h, nil)
}

func planResult(t *testing.T, path string) *jobv1.PlanResult {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var result jobv1.PlanResult
	require.NoError(t, proto.Unmarshal(data, &result))
	return &result
}

func TestPlanMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan")
	b := &binary{args: []string{"${env:SECRET}"}, env: map[string]string{
		"WEIR_MODE": "plan", "WEIR_PLAN_OUTPUT": path, "WEIR_PARALLELISM": "3", "WEIR_JOB_NAME": "given",
	}}
	require.Zero(t, b.run(t), b.stderr.String())
	result := planResult(t, path)
	require.Empty(t, result.GetErrors())
	require.EqualValues(t, version.ProtocolMax, result.GetProtocolMax())
	require.Equal(t, "given", result.GetGraph().GetName())
	require.EqualValues(t, 3, result.GetGraph().GetVertices()[0].GetParallelism())
	require.Len(t, result.GetGraph().GetFingerprint(), 64)
	require.Equal(t, "${env:SECRET}", b.seen[1], "secrets stay out of the plan")

	delete(b.env, "WEIR_JOB_NAME")
	require.Zero(t, b.run(t))
	require.Equal(t, "hello", planResult(t, path).GetGraph().GetName(), "the program's name is the default")
	b.env["WEIR_JOB_DEFAULT_NAME"] = "wordcount"
	require.Zero(t, b.run(t))
	require.Equal(t, "wordcount", planResult(t, path).GetGraph().GetName(), "unless the client knows a better one")
}

func TestPlanModeWritesTheErrorsOfAJob(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan")
	b := &binary{args: []string{"faulty"}, env: map[string]string{"WEIR_MODE": "plan", "WEIR_PLAN_OUTPUT": path}}
	require.Zero(t, b.run(t), "a faulty job is a result too")
	result := planResult(t, path)
	require.Nil(t, result.GetGraph())
	require.Len(t, result.GetErrors(), 2)
}

func TestBadStarts(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"unknown mode":    {map[string]string{"WEIR_MODE": "dance"}, nil, "unknown mode"},
		"no plan output":  {map[string]string{"WEIR_MODE": "plan"}, nil, "WEIR_PLAN_OUTPUT"},
		"bad parallelism": {map[string]string{"WEIR_PARALLELISM": "many"}, nil, "WEIR_PARALLELISM"},
		"bad log level":   {map[string]string{"WEIR_LOG_LEVEL": "loud"}, nil, "WEIR_LOG_LEVEL"},
		"bad permission":  {map[string]string{"WEIR_ALLOW_DROPPED_STATE": "maybe"}, nil, "WEIR_ALLOW_DROPPED_STATE"},
		"unset variable":  {nil, []string{"${env:NOT_SET}"}, "NOT_SET"},
		"absent file":     {nil, []string{"${file:/does/not/exist}"}, "/does/not/exist"},
		"faulty job":      {map[string]string{}, []string{"faulty"}, `uid "numbers"`},
	} {
		t.Run(name, func(t *testing.T) {
			b := &binary{env: c.env, args: c.args}
			require.Equal(t, 1, b.run(t))
			require.Contains(t, b.stderr.String(), c.want)
			for line := range bytes.Lines(b.stderr.Bytes()) {
				require.True(t, bytes.HasPrefix(line, []byte("error: ")), "%s", line)
			}
		})
	}
}

func TestReferencesInArguments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(path, []byte("s3cret\n"), 0o600))
	getenv := func(name string) string { return map[string]string{"USER": "ann"}[name] }
	args, err := resolveArgs([]string{"job", "--login=${env:USER}:${file:" + path + "}", "${other:x}", "$USER"}, getenv)
	require.NoError(t, err)
	require.Equal(t, []string{"job", "--login=ann:s3cret", "${other:x}", "$USER"}, args)

	_, err = resolveArgs([]string{"${env:A}", "${env:B}"}, getenv)
	require.Len(t, split(err), 2, "all are reported")
}

func TestLocalRun(t *testing.T) {
	b := &binary{env: map[string]string{"WEIR_STATE_DIR": t.TempDir(), "WEIR_LOG_LEVEL": "error"}}
	require.Zero(t, b.run(t), b.stderr.String())
	require.Equal(t, "0\n1\n2\n", b.stdout.String())
}

func TestACanceledLocalRunEndsCleanly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stderr bytes.Buffer
	endless := func(env *Env) error {
		To(From(env, "numbers", generator.New(func(n uint64) uint64 { return n }).Rate(1)), "out", printsink.New[uint64](printsink.To(&stderr))).WithGuarantee(AtLeastOnce)
		return nil
	}
	env := map[string]string{"WEIR_STATE_DIR": t.TempDir(), "WEIR_LOG_LEVEL": "error"}
	code := run(ctx, endless, host{args: []string{"hello"}, setArgs: func([]string) {}, getenv: func(n string) string { return env[n] }, stderr: &stderr}, nil)
	require.Zero(t, code, stderr.String())
}
