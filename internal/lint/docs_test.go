package lint_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every page of the documentation is found from both lists of it.
func TestEveryPageIsListed(t *testing.T) {
	lists := map[string]string{"README.md": "docs/", "docs/README.md": ""}
	for list, below := range lists {
		text, err := os.ReadFile("../../" + list)
		require.NoError(t, err)
		for _, dir := range []string{"guides", "design", "reference"} {
			pages, err := filepath.Glob("../../docs/" + dir + "/*.md")
			require.NoError(t, err)
			require.NotEmpty(t, pages)
			for _, page := range pages {
				link := "(" + below + dir + "/" + filepath.Base(page) + ")"
				require.Contains(t, string(text), link, "%s does not list a page", list)
			}
		}
	}
}

// Links within the documentation lead somewhere, with their headings.
func TestLinksOfTheDocumentation(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code := regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	pages, err := filepath.Glob("../../docs/*/*.md")
	require.NoError(t, err)
	more, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	for _, page := range append(append(pages, more...), "../../README.md", "../../CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), "code"), -1) {
			path, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			to := filepath.Join(filepath.Dir(page), path)
			if path == "" {
				to = page
			}
			target, err := os.Stat(to)
			require.NoError(t, err, "%s links to %s", page, m[1])
			if heading == "" || target.IsDir() {
				continue
			}
			content, err := os.ReadFile(to)
			require.NoError(t, err)
			require.Contains(t, headings(string(content)), heading, "%s links to %s", page, m[1])
		}
	}
}

// headings are those of a page as links name them.
func headings(page string) (names []string) {
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		name := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		name = regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(name, "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// Each decision has a number of its own.
func TestDecisionsAreNumbered(t *testing.T) {
	files, err := filepath.Glob("../../docs/adr/*.md")
	require.NoError(t, err)
	seen := map[string]string{}
	for _, file := range files {
		number, _, _ := strings.Cut(filepath.Base(file), "-")
		require.Empty(t, seen[number], "%s has the number of another decision", file)
		seen[number] = file
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(text), "# "+strings.TrimLeft(number, "0")+". "), "%s: its heading has another number", file)
	}
}
