package parquetfile_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/graph"
	filesink "github.com/weir-stream/weir/sinks/file"
	"github.com/weir-stream/weir/sinks/file/parquetfile"
	"github.com/weir-stream/weir/sinks/sinktest"
)

type total struct {
	User  string   `parquet:"user,dict"`
	Cents int64    `parquet:"cents"`
	Tags  []string `parquet:"tags,list"`
	Ratio *float64 `parquet:"ratio,optional"`
}

func TestFilesAreReadBack(t *testing.T) {
	dir := t.TempDir()
	half := 0.5
	rows := []total{{"ann", 1, []string{"a", "b"}, &half}, {"bob", 2, []string{}, nil}, {"cid", 3, []string{"c"}, nil}}
	a := sinktest.Start[total](t, t.Context(), filesink.New(filesink.Directory(dir), parquetfile.Format[total](parquet.MaxRowsPerRowGroup(2))), sinktest.Deployment{
		Job: "job", Attempt: 1, Parallelism: 1, Guarantee: graph.ExactlyOnce, Checkpoints: sinktest.Checkpoints(),
	})
	a.Write(rows...)
	a.Barrier(1)
	files, err := filepath.Glob(filepath.Join(dir, "*.parquet"))
	require.NoError(t, err)
	require.Empty(t, files)
	a.Commit(1)
	files, err = filepath.Glob(filepath.Join(dir, "*.parquet"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	got, err := parquet.ReadFile[total](files[0])
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(rows, got))
}

func TestTypeWithoutColumnsIsRefused(t *testing.T) {
	_, err := parquetfile.Format[func()]().NewEncoder(nil)
	require.ErrorContains(t, err, "cannot be written as Parquet")
}
