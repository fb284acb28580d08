package lint_test

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module   = "github.com/weir-stream/weir/"
	maxLines = 800
)

// file is one Go file of the repository, path relative to its root.
type file struct {
	path    string
	pkg     string // directory relative to the root
	test    bool
	lines   int
	imports []string // of this module only, relative to it
	doc     bool
	name    string
}

func files(t *testing.T) []file {
	t.Helper()
	root := "../.."
	var out []file
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if rel == "gen" || (strings.HasPrefix(d.Name(), ".") && rel != ".") || d.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		f := file{
			path: rel, pkg: filepath.ToSlash(filepath.Dir(rel)), test: strings.HasSuffix(rel, "_test.go"),
			lines: bytes.Count(src, []byte("\n")), doc: parsed.Doc != nil && hasText(parsed.Doc), name: parsed.Name.Name,
		}
		for _, imp := range parsed.Imports {
			p, _ := strconv.Unquote(imp.Path.Value)
			if strings.HasPrefix(p, module) {
				f.imports = append(f.imports, strings.TrimPrefix(p, module))
			}
		}
		out = append(out, f)
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, out)
	return out
}

func hasText(c *ast.CommentGroup) bool { return len(strings.TrimSpace(c.Text())) > 0 }

// forbidden lists, per directory prefix, what its packages may not import. Tests may import anything.
var forbidden = []struct {
	from   string
	banned []string
	except []string
	why    string
}{
	{"jobmanager", []string{"taskmanager", "stream", "sources", "sinks", "cmd"}, nil, "JobManager and TaskManager meet in gen/ only"},
	{"taskmanager", []string{"jobmanager", "stream", "cmd"}, nil, "JobManager and TaskManager meet in gen/ only"},
	{"stream", []string{"jobmanager", "cmd"}, []string{"jobmanager/checkpoint", "jobmanager/restart"}, "a job binary never links the JobManager's server"},
	{"operator", []string{"taskmanager", "jobmanager", "stream", "sinks", "cmd"}, nil, "operators do not know who runs them"},
	{"statebackend", []string{"taskmanager", "jobmanager", "stream", "operator", "sources", "sinks", "graph", "cmd"}, nil, "state knows nothing of jobs"},
	{"sources", []string{"taskmanager", "jobmanager", "stream", "sinks", "cmd"}, nil, "connectors do not know who runs them"},
	{"sinks", []string{"taskmanager", "jobmanager", "stream", "cmd"}, []string{}, "connectors do not know who runs them"},
	{"graph", []string{"taskmanager", "jobmanager", "stream", "operator", "sources", "sinks", "statebackend", "cmd"}, nil, "the graph is pure"},
	{"codec", []string{"taskmanager", "jobmanager", "stream", "operator", "sources", "sinks", "statebackend", "graph", "cmd"}, nil, "codecs stand at the bottom"},
	{"jobmanager/fsm", []string{"jobmanager/raftnode", "jobmanager/rpc", "jobmanager/registry", "statebackend"}, nil, "the state machine does no I/O"},
	{"jobmanager/checkpoint", []string{"jobmanager/fsm", "jobmanager/raftnode", "jobmanager/rpc", "jobmanager/registry", "statebackend"}, nil, "the coordinator core does no I/O"},
	{"jobmanager/scheduler", []string{"jobmanager/raftnode", "jobmanager/rpc", "jobmanager/registry", "statebackend"}, nil, "the scheduler core does no I/O"},
}

func TestImportsPointOneWay(t *testing.T) {
	for _, f := range files(t) {
		if f.test {
			continue
		}
		for _, rule := range forbidden {
			if !under(f.pkg, rule.from) {
				continue
			}
			for _, imp := range f.imports {
				if anyUnder(imp, rule.banned) && !anyUnder(imp, rule.except) {
					t.Errorf("%s imports %s: %s", f.path, imp, rule.why)
				}
			}
		}
	}
}

func TestPureCoresHaveNoClockOrGoroutines(t *testing.T) {
	cores := []string{"jobmanager/checkpoint", "jobmanager/scheduler", "jobmanager/restart", "taskmanager/worker/barrier", "graph", "sinks/ledger", "sinks/kafka/slots", "sinks/kafka/internal/answers"}
	for _, f := range files(t) {
		if f.test || !anyUnder(f.pkg, cores) {
			continue
		}
		src, err := os.ReadFile(filepath.Join("../..", f.path))
		require.NoError(t, err)
		s := bufio.NewScanner(bytes.NewReader(src))
		for n := 1; s.Scan(); n++ {
			line, _, _ := strings.Cut(s.Text(), "//")
			for _, bad := range []string{"time.Now(", "time.Since(", "time.After(", "rand.", "slog.", "os.", "\tgo func"} {
				if strings.Contains(line, bad) {
					t.Errorf("%s:%d: a pure core uses %s", f.path, n, strings.TrimSpace(bad))
				}
			}
		}
	}
}

func TestFilesAreShort(t *testing.T) {
	for _, f := range files(t) {
		if f.lines > maxLines {
			t.Errorf("%s has %d lines, more than %d: which part of it is a thing of its own?", f.path, f.lines, maxLines)
		}
	}
}

func TestPackagesAreDocumented(t *testing.T) {
	documented := map[string]bool{}
	count := map[string]int{}
	for _, f := range files(t) {
		if f.test {
			continue
		}
		count[f.pkg]++
		documented[f.pkg] = documented[f.pkg] || f.doc
	}
	for pkg := range count {
		if !documented[pkg] {
			t.Errorf("package %s has no package comment", pkg)
		}
	}
}

func TestPackageNamesSayWhatTheyHold(t *testing.T) {
	for _, f := range files(t) {
		switch strings.TrimSuffix(f.name, "_test") {
		case "util", "utils", "common", "helper", "helpers", "types", "models", "misc", "shared":
			t.Errorf("%s: package %s: name it after the one thing it holds", f.path, f.name)
		}
	}
}

func under(pkg, prefix string) bool { return pkg == prefix || strings.HasPrefix(pkg, prefix+"/") }

func anyUnder(pkg string, prefixes []string) bool {
	for _, p := range prefixes {
		if under(pkg, p) {
			return true
		}
	}
	return false
}

// storageDrivers bring the clients of object stores with them; servers are the packages that may link them.
var (
	storageDrivers = []string{"statebackend/blob/storage", "statebackend/blob/s3", "statebackend/blob/hdfs"}
	servers        = []string{"jobmanager", "jobmanager/rpc", "taskmanager", "statebackend/blob/storage"}
)

func TestOnlyServersLinkStorageDrivers(t *testing.T) {
	for _, f := range files(t) {
		if f.test || under(f.pkg, "cmd") || slices.Contains(servers, f.pkg) {
			continue
		}
		for _, imp := range f.imports {
			if anyUnder(imp, storageDrivers) {
				t.Errorf("%s imports %s: a job binary holds no client of an object store; ask the TaskManager", f.path, imp)
			}
		}
	}
}
