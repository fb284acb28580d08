package lint_test

import (
	"bufio"
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each direct dependency has a line of why, and nothing is listed that is not one.
func TestDirectDependenciesAreExplained(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	text, err := os.ReadFile("../../docs/dependencies.md")
	require.NoError(t, err)
	direct := map[string]bool{}
	s := bufio.NewScanner(bytes.NewReader(mod))
	for s.Scan() {
		fields := strings.Fields(s.Text())
		if len(fields) == 2 && strings.Contains(fields[0], ".") && strings.HasPrefix(fields[1], "v") {
			direct[fields[0]] = true
			if !bytes.Contains(text, []byte("`"+fields[0]+"`")) {
				t.Errorf("docs/dependencies.md does not say why %s is here", fields[0])
			}
		}
	}
	require.NotEmpty(t, direct)
	for _, part := range strings.Split(string(text), "`") {
		if host, _, ok := strings.Cut(part, "/"); ok && strings.Contains(host, ".") && !strings.Contains(part, " ") && !direct[part] {
			t.Errorf("docs/dependencies.md lists %s, which is no direct dependency", part)
		}
	}
}
