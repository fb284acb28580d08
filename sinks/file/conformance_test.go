package filesink_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-stream/weir/sinks"
	filesink "github.com/weir-stream/weir/sinks/file"
	"github.com/weir-stream/weir/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// finished returns the files below a directory that readers see, in order of their names.
func finished(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Name() == ".weir":
			return fs.SkipDir
		case !d.IsDir():
			out = append(out, path)
		}
		return nil
	})
	slices.Sort(out)
	return out, err
}

// unfinished returns the files in progress or pending.
func unfinished(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, ".weir"), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".pending") || strings.HasSuffix(path, ".inprogress") {
			out = append(out, filepath.Base(path))
		}
		return err
	}))
	return out
}

func readNumbers(dir string) ([]int, error) {
	files, err := finished(dir)
	if err != nil {
		return nil, err
	}
	var all []int
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			var n int
			if _, err := fmt.Sscan(line, &n); err != nil {
				return nil, fmt.Errorf("file %s: %w", f, err)
			}
			all = append(all, n)
		}
	}
	return all, nil
}

func settled(t *testing.T, dir string) func(context.Context) error {
	return func(ctx context.Context) error {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			left := unfinished(t, dir)
			if len(left) == 0 {
				return nil
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%v are left", left)
			case <-tick.C:
			}
		}
	}
}

func TestConformance(t *testing.T) {
	for name, sink := range map[string]func(dir string) sinks.Sink[int]{
		"one directory": func(dir string) sinks.Sink[int] {
			return filesink.New(filesink.Directory(dir), filesink.JSONLines[int]())
		},
		"small files": func(dir string) sinks.Sink[int] {
			return filesink.New(filesink.Directory(dir), filesink.JSONLines[int](), filesink.MaxBytes(6))
		},
	} {
		t.Run(name, func(t *testing.T) {
			sinktest.Run(t, func(t *testing.T) sinktest.Output {
				dir := t.TempDir()
				return sinktest.Output{
					Sink:    func() sinks.Sink[int] { return sink(dir) },
					Read:    func(context.Context) ([]int, error) { return readNumbers(dir) },
					Settled: settled(t, dir),
				}
			})
		})
	}
}
