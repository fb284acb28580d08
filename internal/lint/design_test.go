package lint_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A test that a page of the design points to exists.
func TestDesignNamesTestsThatExist(t *testing.T) {
	var tests strings.Builder
	for _, f := range files(t) {
		if f.test {
			text, err := os.ReadFile(filepath.Join("../..", f.path))
			require.NoError(t, err)
			tests.Write(text)
		}
	}
	declared := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w+)\(`).FindAllStringSubmatch(tests.String(), -1) {
		declared[m[1]] = true
	}
	pages, err := filepath.Glob("../../docs/design/*.md")
	require.NoError(t, err)
	named := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w+)").FindAllStringSubmatch(string(text), -1) {
			named++
			if !declared[m[1]] {
				t.Errorf("%s names %s, which is no test", page, m[1])
			}
		}
	}
	require.NotZero(t, named)
}
