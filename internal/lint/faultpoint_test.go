package lint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const faultpoints = "internal/faultpoint"

// faultPoints returns the points, identifier to name.
func faultPoints(t *testing.T) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "../../"+faultpoints+"/points.go", nil, 0)
	require.NoError(t, err)
	points := map[string]string{}
	names := map[string]string{}
	for _, d := range parsed.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			name, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			require.Empty(t, names[name], "%s and %s have one name", v.Names[0].Name, names[name])
			points[v.Names[0].Name], names[name] = name, v.Names[0].Name
		}
	}
	require.NotEmpty(t, points)
	return points
}

// selected counts per identifier how often a file uses one of package faultpoint.
func selected(t *testing.T, path string) map[string]int {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", path), nil, 0)
	require.NoError(t, err)
	count := map[string]int{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "faultpoint" {
				count[s.Sel.Name]++
			}
		}
		return true
	})
	return count
}

// A point is one place in the code, is described in the design, and is what some test stops a process at.
func TestFaultPointsAreUsedOnceTestedAndDescribed(t *testing.T) {
	used, tested := map[string][]string{}, map[string]bool{}
	for _, f := range files(t) {
		if !anyUnder(faultpoints, f.imports) {
			continue
		}
		for name, n := range selected(t, f.path) {
			if f.test {
				tested[name] = true
				continue
			}
			for range n {
				used[name] = append(used[name], f.path)
			}
		}
	}
	var design strings.Builder
	pages, err := filepath.Glob("../../docs/design/*.md")
	require.NoError(t, err)
	for _, p := range pages {
		text, err := os.ReadFile(p)
		require.NoError(t, err)
		design.Write(text)
	}
	for ident, name := range faultPoints(t) {
		if len(used[ident]) != 1 {
			t.Errorf("faultpoint.%s is used in %v, not in exactly one place", ident, used[ident])
		}
		if !tested[ident] {
			t.Errorf("no test stops a process at faultpoint.%s", ident)
		}
		if !strings.Contains(design.String(), "`"+name+"`") {
			t.Errorf("docs/design does not describe the fault point %s", name)
		}
	}
}
