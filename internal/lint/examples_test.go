package lint_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every function of the public API has an example that runs as a test, and every method is used in one. Methods that only implement
// another package's interface are left out.
func TestPublicAPIHasExamples(t *testing.T) {
	for _, dir := range []string{"stream", "stream/window", "stream/streamtest"} {
		t.Run(dir, func(t *testing.T) {
			p, examples, used := parsePackage(t, "../../"+dir)
			need := func(f *doc.Func) {
				if !examples[f.Name] {
					t.Errorf("%s has no example: add func Example%s with an output comment", f.Name, f.Name)
				}
			}
			for _, f := range p.Funcs {
				need(f)
			}
			for _, typ := range p.Types {
				for _, f := range typ.Funcs {
					need(f)
				}
				for _, m := range typ.Methods {
					if !used[m.Name] && !strings.Contains(m.Doc, "implements ") {
						t.Errorf("%s.%s is used in no example", typ.Name, m.Name)
					}
				}
			}
		})
	}
}

// parsePackage returns a package's documentation, the names its examples with an output are for, suffixes cut off, and the names of the
// fields and methods that they use.
func parsePackage(t *testing.T, dir string) (p *doc.Package, examples, used map[string]bool) {
	t.Helper()
	fset := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	var all, tests []*ast.File
	for _, path := range paths {
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		require.NoError(t, err)
		if strings.HasSuffix(path, "_test.go") {
			tests = append(tests, f)
		} else {
			all = append(all, f)
		}
	}
	p, err = doc.NewFromFiles(fset, all, module+dir)
	require.NoError(t, err)
	examples, used = map[string]bool{}, map[string]bool{}
	for _, e := range doc.Examples(tests...) {
		if e.Output == "" && !e.EmptyOutput {
			continue
		}
		ast.Inspect(e.Code, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				used[s.Sel.Name] = true
			}
			return true
		})
		// A suffix begins with a lower-case letter.
		parts := strings.Split(e.Name, "_")
		if last := parts[len(parts)-1]; len(parts) > 1 && last != "" && last[0] >= 'a' && last[0] <= 'z' {
			parts = parts[:len(parts)-1]
		}
		examples[strings.Join(parts, "_")] = true
	}
	return p, examples, used
}
