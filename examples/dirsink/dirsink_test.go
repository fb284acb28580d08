package dirsink_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-stream/weir/examples/dirsink"
	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/sinks/sinktest"
)

func TestConformance(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Output {
		dir := t.TempDir()
		return sinktest.Output{
			Sink: func() sinks.Sink[int] { return dirsink.New[int](dir) },
			Read: func(context.Context) ([]int, error) {
				files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
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
							return nil, err
						}
						all = append(all, n)
					}
				}
				return all, nil
			},
			Settled: func(context.Context) error {
				left, err := filepath.Glob(filepath.Join(dir, "pending", "*", "*"))
				if err == nil && len(left) > 0 {
					err = fmt.Errorf("%v are left", left)
				}
				return err
			},
		}
	})
}
