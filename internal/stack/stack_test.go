package stack_test

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/stack"
)

type counter struct{ counts map[string]int }

func (c *counter) add(key string) { c.counts[key]++ }

func trace(f func()) (s string) {
	defer func() {
		if recover() != nil {
			s = string(debug.Stack())
		}
	}()
	f()
	return ""
}

func TestThePlaceIsFirst(t *testing.T) {
	var none *counter
	for name, f := range map[string]func(){
		"panic":         func() { panic("oops") },
		"runtime error": func() { (&counter{}).add("k") },
		"nil pointer":   func() { none.add("k") },
	} {
		t.Run(name, func(t *testing.T) {
			trimmed := stack.Trim(trace(f))
			first, _, _ := strings.Cut(trimmed, "\n")
			require.Contains(t, first, "internal/stack_test.")
			top := stack.Top(trimmed, 2)
			require.Equal(t, 1, strings.Count(top, " < "), top)
			require.Regexp(t, `^github\.com/weir-stream/weir/internal/stack_test\.\S+ \(\S+stack_test\.go:\d+\) < `, top)
			require.NotContains(t, top, "debug.Stack")
		})
	}
}

func TestTheStandardLibraryIsNotTheOrigin(t *testing.T) {
	trimmed := stack.Trim(trace(func() { _ = strings.Repeat("x", -1) }))
	require.Contains(t, stack.Top(trimmed, 1), "strings.Repeat")
	require.Regexp(t, `^github\.com/weir-stream/weir/internal/stack_test\.\S+ \(\S+stack_test\.go:\d+\)$`, stack.Origin(trimmed))
	require.Equal(t, "main.job (/go/src/x/main.go:3)",
		stack.Origin("encoding/json.(*d).x({0x1, 0x2})\n\tencoding/json/decode.go:1 +0x3\nmain.job(...)\n\t/go/src/x/main.go:3 +0x4"))
	require.Equal(t, "flag.Var (flag/flag.go:1)", stack.Origin("flag.Var(...)\n\tflag/flag.go:1"))
}

func TestOtherTexts(t *testing.T) {
	for _, text := range []string{"", "no trace", "panic(", "panic(1)\n\tx.go:1 +0x1", "panic(1)\n\tx.go:1 +0x1\nruntime.sigpanic()"} {
		require.Equal(t, text, stack.Trim(text))
		require.NotContains(t, stack.Top(text, 3), "\n")
	}
}
