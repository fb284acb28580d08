package lint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wallClockAllowed are the places, by file and function, where wall-clock times are compared or stored as numbers on purpose.
var wallClockAllowed = map[string]string{
	"internal/demo/demo.go start":               "event times of made-up orders",
	"jobmanager/driver/deploy.go nowMs":         "times that are shown",
	"jobmanager/rpc/submit.go SubmitJob":        "times that are shown",
	"jobmanager/rpc/jobs.go completed":          "an age that is shown, where nobody has measured it",
	"statebackend/blob/file.go removeStale":     "both times are of the storage's own clock",
	"statebackend/blob/hdfs/put.go removeStale": "both times are of the storage's own clock",
	"taskmanager/worker/task/run.go waitTime":   "processing time is the wall clock",
	"jobmanager/driver/errand.go beginErrand":   "a number that no attempt reaches; each is larger than the one before whatever the clock does",
	"jobmanager/driver/transactions.go inquire": "a number that a former leader did not use; nothing is measured",
	"jobmanager/driver/sweep.go Sweep":          "a file has no other age; what is referred to decides, the age is a guard beside it",
	"sinks/kafka/inspect.go agesOf":             "the broker tells the start of a transaction by its clock only; shown to people, decides nothing",
}

// wallTime reports whether an expression is a time without a monotonic reading for sure: made from a number, or a file's.
func wallTime(e ast.Expr, vars map[string]bool) bool {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return wallTime(e.X, vars)
	case *ast.Ident:
		return vars[e.Name]
	case *ast.SelectorExpr:
		return e.Sel.Name == "ModTime"
	case *ast.CallExpr:
		sel, ok := e.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" {
			return strings.HasPrefix(sel.Sel.Name, "Unix")
		}
		switch sel.Sel.Name {
		case "ModTime":
			return true
		case "Add", "UTC", "Local", "In":
			return wallTime(sel.X, vars)
		case "Round":
			return len(e.Args) == 1 && isZero(e.Args[0]) || wallTime(sel.X, vars)
		}
	}
	return false
}

func isZero(e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	return ok && lit.Value == "0"
}

func isCall(e ast.Expr, pkg string, names ...string) (*ast.CallExpr, bool) {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return nil, false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains(names, sel.Sel.Name) {
		return nil, false
	}
	if pkg != "" {
		id, ok := sel.X.(*ast.Ident)
		return call, ok && id.Name == pkg
	}
	return call, true
}

// wallClockUses returns the places of a function that measure an interval by a wall clock, or keep the present time as a number.
func wallClockUses(body *ast.BlockStmt) []token.Pos {
	vars := map[string]bool{}
	var found []token.Pos
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) && wallTime(n.Rhs[i], vars) {
					vars[id.Name] = true
				}
			}
		case *ast.CallExpr:
			sel, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if call, ok := isCall(n, "time", "Since", "Until"); ok && wallTime(call.Args[0], vars) {
				found = append(found, n.Pos())
			}
			if sel.Sel.Name == "Sub" && len(n.Args) == 1 && (wallTime(n.Args[0], vars) || wallTime(sel.X, vars)) {
				found = append(found, n.Pos())
			}
			if _, ok := isCall(n, "", "Unix", "UnixMilli", "UnixMicro", "UnixNano"); ok {
				if _, ok := isCall(sel.X, "time", "Now"); ok {
					found = append(found, n.Pos())
				}
			}
		}
		return true
	})
	return found
}

// Intervals are measured by the monotonic clock: a wall clock is set, and that of another machine is another one.
func TestNoIntervalIsMeasuredByAWallClock(t *testing.T) {
	used := map[string]bool{}
	for _, f := range files(t) {
		// Tests, and what is made for them, may do as they like: nobody sets their clock.
		if f.test || strings.HasPrefix(f.pkg, "test/") || strings.HasPrefix(f.pkg, "bench") || strings.HasSuffix(f.pkg, "test") {
			continue
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, filepath.Join("../..", f.path), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			for _, pos := range wallClockUses(fn.Body) {
				place := filepath.ToSlash(f.path) + " " + fn.Name.Name
				if wallClockAllowed[place] == "" {
					t.Errorf("%s:%d, in %s: an interval by the wall clock, or the present time as a number; keep the time.Time that time.Now returned",
						f.path, fset.Position(pos).Line, fn.Name.Name)
				}
				used[place] = true
			}
		}
	}
	for place := range wallClockAllowed {
		require.True(t, used[place], "%s is allowed what it does not do", place)
	}
}

// gRPC's keepalive counts by the wall clock: a server has it off, and of the clients only the command line, which connects again.
func TestNoConnectionEndsWhenTheClockIsSet(t *testing.T) {
	for _, f := range files(t) {
		if f.test {
			continue
		}
		raw, err := os.ReadFile(filepath.Join("../..", f.path))
		require.NoError(t, err)
		text := string(raw)
		require.False(t, strings.Contains(text, "grpc.NewServer(") && !strings.Contains(text, ".Off()"), "%s: a server without keepalive.Off", f.path)
		require.False(t, strings.Contains(text, "WithKeepaliveParams(") && f.pkg != "internal/client", "%s: a client with keepalive", f.path)
	}
}

func TestWallClockUsesAreFound(t *testing.T) {
	for text, want := range map[string]int{
		"time.Since(time.UnixMilli(ms)) > limit":                     1,
		"now.Sub(time.UnixMilli(e.GetAtMs())).Abs()":                 1,
		"time.Since(info.ModTime()) < age":                           1,
		"time.Since(a.ModTime) < age":                                1,
		"at := time.UnixMilli(ms).Add(took); d := c.now().Sub(at)":   1,
		"x.Store(time.Now().UnixNano())":                             1,
		"begin := time.Now().Round(0); d := time.Since(begin)":       1,
		"begin := time.Now(); d := time.Since(begin)":                0,
		"show(time.UnixMilli(ms).UTC())":                             0,
		"ms := record.Timestamp.UnixMilli(); late := ms < watermark": 0,
	} {
		parsed, err := parser.ParseFile(token.NewFileSet(), "x.go", "package p\nfunc f() {\n"+strings.ReplaceAll(asStatements(text), "; ", "\n")+"\n}", 0)
		require.NoError(t, err, text)
		require.Len(t, wallClockUses(parsed.Decls[0].(*ast.FuncDecl).Body), want, text)
	}
}

// asStatements makes an expression a statement.
func asStatements(text string) string {
	if strings.Contains(text, ":=") {
		return text
	}
	return "_ = " + text
}
